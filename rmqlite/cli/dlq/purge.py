"""rmqlite dlq purge: hide dead letters, or show them again.

Only the group's marker moves: only retention deletes letters.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rmqlite.cli.broker_view import CALL_MS_MAX, BrokerView
from rmqlite.cli.letter_options import Group, checked_group, past_ms
from rmqlite.cli.options import DEFAULT_ENDPOINT, NOT_ALL, WRONG_COMMAND_LINE, AsJson, Endpoint, Yes
from rmqlite.cli.output.letter_text import letters_text
from rmqlite.cli.output.terminal import can_ask, is_confirmed, note, print_json, time_text
from rmqlite.requests.letters import Purged, PurgeRequest


def purge(
    group: Group,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="Only those that died before: '2026-11-20 10:00', epoch ms, or 7d for a week ago.",
        ),
    ] = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Show the letters again that the log still has.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show how many it would be; change nothing.")
    ] = False,
    yes: Yes = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Hide the dead letters of GROUP; --restore shows them again.

    Only retention deletes them.  Exit code 1 if there was none.
    """
    from rmqlite.client import AdminClient

    group = checked_group(group)
    if until == "" or (until and restore):
        raise typer.BadParameter("--until needs a time, and cannot be used with --restore")
    if not (dry_run or yes or can_ask()):
        note("error: there is no terminal to ask on: look with --dry-run, then give --yes")
        raise typer.Exit(WRONG_COMMAND_LINE)
    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        until_ms = past_ms("--until", until, BrokerView(admin))
        found = admin.letters.purge(PurgeRequest(group, until_ms, restore, dry_run=True))
        is_wanted = found.letters and not dry_run
        if is_wanted and not yes and not _confirmed(group, until_ms, found, restore=restore):
            raise typer.Exit(NOT_ALL)
        if is_wanted:
            found = admin.letters.purge(PurgeRequest(group, until_ms, restore))
    if as_json:
        about = {"group": group, "restore": restore, "dry_run": dry_run}
        print_json(about | {"letters": found.letters, "open": found.open})
    elif found.letters:
        done = "restored" if restore else "purged"
        would = "would be " if dry_run else ""
        sys.stdout.write(f"{letters_text(found.letters)} {would}{done}{_open_text(found)}\n")
    if not found.letters:
        note(f"nothing to {'restore' if restore else 'purge'} of group {group}")
        raise typer.Exit(NOT_ALL)


def _confirmed(group: str, until_ms: int | None, found: Purged, *, restore: bool) -> bool:
    if not restore:
        note("the letters stay in the log until retention: --restore undoes this")
    before = "" if until_ms is None else f", died before {time_text(until_ms)}"
    what = f"{letters_text(found.letters)} of group {group}{before}{_open_text(found)}"
    if is_confirmed(f"{'restore' if restore else 'purge'} {what}?"):
        return True
    note("nothing was changed")
    return False


def _open_text(found: Purged) -> str:
    return f", {found.open:,} of them open" if found.open else ", none of them open"
