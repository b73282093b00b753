"""The commands that look at both brokers, or change which one is the master."""

from __future__ import annotations

from typing import Annotated, Final

from rmqlite.cli.broker_view import CALL_MS_MAX, connected
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint, Note, option
from rmqlite.cli.output.documents import Document, prints
from rmqlite.cli.output.terminal import print_json, print_lines, print_view
from rmqlite.kernel.requests.broker import ReplicationStatus
from rmqlite.views.broker import authority_table, replication_table
from rmqlite.views.numbers import size_text

_PROMOTED: Final = Document(
    "Promoted", "A standby that is the master now; lacking_bytes: of the other.", lacking_bytes=int
)
_SWITCHED: Final = Document("Switched", "master: its address now.", master=str)


@prints(lambda: tuple[ReplicationStatus, ...])
def show(endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """Show the broker's role, who follows or is followed, and what is missing."""
    with connected(endpoint, CALL_MS_MAX) as admin:
        status = admin.broker_status()
    if as_json:
        print_json(status.replication)
        return
    shown = replication_table(status)
    if shown.rows:
        print_view(shown)
        if (decided := authority_table(status)).rows:
            print_view(decided)
    else:
        print_lines(["no standby has followed this broker"])
    print_lines(each.trouble for each in status.replication if each.trouble)


@prints(lambda: _PROMOTED)
def promote(
    force: Annotated[bool, option("--force", "Also while the standby hears the master.")] = False,
    note: Note = "",
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Make a standby the master, because the master is lost; ask the standby.

    Make sure that the former master does not run, or cannot be reached: nobody else prevents two
    masters.
    """
    with connected(endpoint, CALL_MS_MAX, note=note) as admin:
        lacking = admin.promote(force=force)
    if as_json:
        print_json({"lacking_bytes": lacking})
    elif lacking:
        print_lines([f"it is the master now, and lacks {size_text(lacking)} of the other's log"])
    else:
        print_lines(["it is the master now"])


@prints(lambda: _SWITCHED)
def switch(note: Note = "", endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """Hand over from the master to its standby, which has all; ask the master."""
    with connected(endpoint, CALL_MS_MAX, note=note) as admin:
        master = admin.switch()
    if as_json:
        print_json({"master": master})
    else:
        print_lines([f"{master} is the master now"])
