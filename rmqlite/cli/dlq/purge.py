"""rmqlite dlq purge: hide dead letters, or show them again.

Only the group's marker moves: only retention deletes letters.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rmqlite.cli.broker_view import CALL_MS_MAX, BrokerView
from rmqlite.cli.letter_options import Group, checked_group, past_ms
from rmqlite.cli.options import NOT_ALL, ChangeOptions, with_options
from rmqlite.cli.output.letter_text import letters_text
from rmqlite.cli.output.terminal import is_confirmed, note, print_json, time_text
from rmqlite.requests.letters import Purged, PurgeRequest


@with_options
def purge(
    *,
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
    how: ChangeOptions,
) -> None:
    """Hide the dead letters of GROUP; --restore shows them again.

    Only retention deletes them.  Exit code 1 if there was none.
    """
    from rmqlite.client import AdminClient

    group = checked_group(group)
    if until == "" or (until and restore):
        raise typer.BadParameter("--until needs a time, and cannot be used with --restore")
    how.check_can_ask()
    with AdminClient(how.endpoint, timeout_ms=CALL_MS_MAX) as admin:
        until_ms = past_ms("--until", until, BrokerView(admin))
        found = admin.letters.purge(PurgeRequest(group, until_ms, restore, dry_run=True))
        is_wanted = found.letters and not how.dry_run
        if is_wanted and not how.yes and not _confirmed(group, until_ms, found, restore=restore):
            raise typer.Exit(NOT_ALL)
        if is_wanted:
            found = admin.letters.purge(PurgeRequest(group, until_ms, restore))
    if how.as_json:
        about = {"group": group, "restore": restore, "dry_run": how.dry_run}
        print_json(about | {"letters": found.letters, "open": found.open})
    elif found.letters:
        done = "restored" if restore else "purged"
        would = "would be " if how.dry_run else ""
        sys.stdout.write(f"{letters_text(found.letters)} {would}{done}{_open_text(found)}\n")
    if not found.letters:
        note(f"nothing to {'restore' if restore else 'purge'} of group {group}")
        raise typer.Exit(NOT_ALL)


def _confirmed(group: str, until_ms: int | None, found: Purged, *, restore: bool) -> bool:
    if not restore:
        note("the letters stay in the log until retention: --restore undoes this")
    before = "" if until_ms is None else f", died before {time_text(until_ms)}"
    what = f"{letters_text(found.letters)} of group {group}{before}{_open_text(found)}"
    return is_confirmed(f"{'restore' if restore else 'purge'} {what}?")


def _open_text(found: Purged) -> str:
    return f", {found.open:,} of them open" if found.open else ", none of them open"
