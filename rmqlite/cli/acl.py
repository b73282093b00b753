"""rmqlite acl: checks, shows and tries a file of accounts, without a broker.

What it prints never has a secret in it.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite.cli.options import NOT_ALL, AsJson, option, wrong
from rmqlite.cli.output.documents import Document, fields_of, many, maybe, prints
from rmqlite.cli.output.terminal import note, print_json, print_lines, print_table
from rmqlite.cli.output.writing import template_to_standard_output

if TYPE_CHECKING:
    from rmqlite.features.accounts.accounts import Account, Accounts
    from rmqlite.kernel.service.access import Need

app = typer.Typer(
    no_args_is_help=True,
    help="Look at a file of accounts; no broker is needed.",
)

_CHECKED: Final = Document(
    "CheckedAccounts", "A file.", **fields_of(int, "accounts white_addresses"), warnings=list[str]
)
_ACCOUNT: Final = Document(
    "Account",
    "An account and its rights, without its secret.",
    **fields_of(str, "access_key role white_remote_address default_topic_perm default_group_perm"),
    **fields_of(dict[str, str], "topic_perms group_perms"),
)
_SHOWN: Final = Document(
    "ShownAccounts",
    "The accounts of a file.",
    **fields_of(list[str], "global_white_remote_addresses warnings"),
    accounts=many(_ACCOUNT),
)
_TRIED: Final = Document(
    "TriedRight", "rule: the one that forbids it.", allowed=bool, rule=maybe(str)
)


class Verb(StrEnum):
    PUB = "pub"
    SUB = "sub"
    VIEW = "view"
    ADMIN = "admin"


FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        show_default=False,
        help="The file of accounts; the folder acl beside it is read, too.",
    ),
]


@app.command("template")
def template() -> None:
    """Print a file of accounts that explains every key, to begin with."""
    template_to_standard_output("plain_acl.yml")


@app.command("check")
@prints(lambda: _CHECKED)
def check(file: FileArgument, as_json: AsJson = False) -> None:
    """Check that a file of accounts can be used; the error names line, key and rule."""
    accounts = _loaded(file)
    _print_warnings(accounts)
    number, white = len(accounts.accounts), len(accounts.global_white_remote_addresses)
    if as_json:
        print_json(
            _CHECKED.tree(accounts=number, white_addresses=white, warnings=accounts.warnings)
        )
    else:
        words = "account" if number == 1 else "accounts"
        addresses = "white address" if white == 1 else "white addresses"
        print_lines([f"{number:,} {words}, {white:,} {addresses}"])


@app.command("show")
@prints(lambda: _SHOWN)
def show(file: FileArgument, as_json: AsJson = False) -> None:
    """Show the accounts of a file and their rights; never a secret."""
    accounts = _loaded(file)
    _print_warnings(accounts)
    trees = [_tree(each) for each in accounts.accounts.values()]
    white = [each.text for each in accounts.global_white_remote_addresses]
    if as_json:
        print_json(
            _SHOWN.tree(
                global_white_remote_addresses=white, accounts=trees, warnings=accounts.warnings
            )
        )
        return
    print_table(
        ("ACCOUNT", "ROLE", "WHITE ADDRESSES", "TOPICS", "GROUPS", "RIGHTS BY NAME"),
        [row for tree in trees for row in _rows(tree)],
    )
    if white:
        print_lines(["", f"white addresses for everything: {' '.join(white)}"])


@app.command("test")
@prints(lambda: _TRIED)
def try_right(
    file: FileArgument,
    account: Annotated[
        str, typer.Argument(metavar="ACCOUNT", show_default=False, help="The access key.")
    ],
    verb: Annotated[
        Verb,
        typer.Argument(
            metavar="VERB",
            show_default=False,
            help="pub, sub, view (look without consuming) or admin (change).",
        ),
    ],
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic's name.")
    ] = "",
    group: Annotated[
        str, option("--group GROUP", "Also, or only, the right on this group.", show_default=False)
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Say whether an account may do something, or which rule forbids it (exit code 1)."""

    needs = _needs(verb, topic, group)
    found = _loaded(file).accounts.get(account)
    # RocketMQ's words, as a client gets them.
    rule = found.why_not(needs) if found else f"No acl config for {account}"
    if as_json:
        print_json(_TRIED.tree(allowed=rule is None, rule=rule))
    else:
        print_lines([rule or "allowed"])
    if rule:
        raise typer.Exit(NOT_ALL)


def _loaded(file: Path) -> Accounts:
    from rmqlite.features.accounts.reading import load_accounts

    return load_accounts(file)


def _print_warnings(accounts: Accounts) -> None:
    for each in accounts.warnings:
        note(f"warning: {each}")


def _needs(verb: Verb, topic: str, group: str) -> list[Need]:
    from rmqlite.kernel.service.access import Need, Right

    right = Right[verb.name]
    needs = [Need(right, "topic", topic)] if topic else []
    needs += [Need(right, "group", group)] if group else []
    if not needs and verb in (Verb.PUB, Verb.SUB):
        wrong(f"give a TOPIC or a --group: {verb} needs one of them")
    return needs or [Need(right)]


def _tree(account: Account) -> dict[str, Any]:
    """An account for JSON, field by field: what is not named here is not shown."""
    from rmqlite.features.accounts.accounts import perm_text

    return _ACCOUNT.tree(
        access_key=account.access_key,
        role=str(account.role),
        white_remote_address=account.white_remote_address.text,
        default_topic_perm=perm_text(account.default_topic_perm),
        default_group_perm=perm_text(account.default_group_perm),
        topic_perms={name: perm_text(perm) for name, perm in account.topic_perms.items()},
        group_perms={name: perm_text(perm) for name, perm in account.group_perms.items()},
    )


def _rows(tree: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row, and one below it for each further name."""
    named = [f"topic {name}={perm}" for name, perm in tree["topic_perms"].items()]
    named += [f"group {name}={perm}" for name, perm in tree["group_perms"].items()]
    first, *others = named or ["-"]
    row = (
        tree["access_key"],
        tree["role"],
        tree["white_remote_address"] or "-",
        tree["default_topic_perm"],
        tree["default_group_perm"],
        first,
    )
    return [row, *[("", "", "", "", "", each) for each in others]]
