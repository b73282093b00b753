"""rmqlite dlq purge: hide dead letters, or show them again.

Only marks of the broker change: only retention deletes letters.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated, Final

import typer

from rmqlite.cli.broker_view import BrokerView, connected
from rmqlite.cli.filters import DeadLetterOptions, Group, checked_group
from rmqlite.cli.options import NOT_ALL, ChangeOptions, option, with_options
from rmqlite.cli.output.documents import Document, fields_of, prints
from rmqlite.cli.output.terminal import note, print_json, printable
from rmqlite.client import DeadLetterFilter, Purged, PurgeRequest
from rmqlite.views.failed_messages import filter_text, letters_text

_PURGED: Final = Document(
    "Purged",
    "Dead letters that were hidden, shown again, or would be; open: not redriven.",
    group=str,
    **fields_of(bool, "restore dry_run"),
    **fields_of(int, "letters open"),
)


@prints(lambda: _PURGED)
@with_options
def purge(
    *,
    group: Group,
    options: DeadLetterOptions,
    restore: Annotated[
        bool, option("--restore", "Show all that were purged and that the log still has.")
    ] = False,
    how: ChangeOptions,
) -> None:
    """Hide the dead letters of GROUP that match all options; --restore shows all of them again.

    Hidden ones are not listed, counted or redriven.  Only retention deletes them.  Exit code 1
    if there was none.
    """
    group = checked_group(group)
    how.check_can_ask()
    with connected(how.endpoint, note=how.note) as admin:
        wanted = options.filter(BrokerView(admin))
        if restore and wanted != DeadLetterFilter():
            raise typer.BadParameter("--restore shows all letters, so it takes no filter")
        request = PurgeRequest(group, restore=restore, filter=wanted)
        found = admin.dead_letters.purge(replace(request, dry_run=True))
        is_wanted = found.letters and not how.dry_run
        if is_wanted:
            if not (how.yes or restore):
                note("the letters stay in the log until retention: --restore undoes this")
            how.check_confirmed(_question(request, found))
            found = admin.dead_letters.purge(request)
    if how.as_json:
        about = {"group": group, "restore": restore, "dry_run": how.dry_run}
        print_json(_PURGED.tree(**about, letters=found.letters, open=found.open))
    elif found.letters:
        done = "restored" if restore else "purged"
        would = "would be " if how.dry_run else ""
        sys.stdout.write(f"{letters_text(found.letters)} {would}{done}{_open_text(found)}\n")
    if not found.letters:
        verb = "restore" if restore else "purge"
        note(f"nothing to {verb} of group {group}{_matching(request)}")
        raise typer.Exit(NOT_ALL)


def _question(request: PurgeRequest, found: Purged) -> str:
    verb = "restore" if request.restore else "purge"
    which = f"{letters_text(found.letters)} of group {request.group}{_matching(request)}"
    return f"{verb} {which}{_open_text(found)}?"


def _matching(request: PurgeRequest) -> str:
    text = filter_text(request.filter)
    return f" ({printable(text)})" if text else ""


def _open_text(found: Purged) -> str:
    return f", {found.open:,} of them open" if found.open else ", none of them open"
