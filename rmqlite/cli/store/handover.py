"""rmqlite store handover: give a store's timers to RocketMQ, whose broker goes on with it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

from rmqlite.cli.options import AsJson, option
from rmqlite.cli.output.documents import Document, prints
from rmqlite.cli.output.terminal import print_json, print_table
from rmqlite.cli.store.options import ConfigFile, StorePath, store_location
from rmqlite.views.numbers import time_text

if TYPE_CHECKING:
    from rmqlite.store_tools.moving.handover import Handover


_HANDED_OVER: Final = Document(
    "HandedOver",
    "Timers that were handed over, or would be; to: RocketMQ's version.",
    "rmqlite.store_tools.moving.handover:Handover",
    store=str,
    to=str,
    dry_run=bool,
)


@prints(lambda: _HANDED_OVER)
def handover(
    to: Annotated[str, option("--to VERSION", "RocketMQ's version: 4.9, 5.3, 5.4, 5.5.")],
    path: StorePath = None,
    config: ConfigFile = None,
    dry_run: Annotated[
        bool, option("--dry-run", "Show what would be done; only open and close the store.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let RocketMQ deliver the pending timers of a store; no broker may be running on it.

    Do it at the very end: timers that are sent, changed or delivered here afterwards are unknown
    to RocketMQ.  It may be repeated.
    """
    from rmqlite.store_tools.moving.handover import hand_over

    root, given = store_location(path, config)
    found = hand_over(root, to, given, dry_run=dry_run)
    if as_json:
        print_json(_HANDED_OVER.tree(found._asdict(), store=str(root), to=to, dry_run=dry_run))
        return
    row = (to, found.pending, found.overdue, time_text(found.first_due_ms))
    columns = ("TO", "TIMERS", "OVERDUE", "FIRST DUE", "LAST DUE")
    print_table(columns, [(*row, time_text(found.last_due_ms))])
    for line in _advice(found, dry_run=dry_run):
        sys.stdout.write(line + "\n")


def _advice(found: Handover, *, dry_run: bool) -> list[str]:
    if dry_run:
        return ["nothing was handed over: without --dry-run this is done"]
    if not found.pending:
        return ["no timer is pending: there is nothing to do in RocketMQ"]
    if found.levels:
        return [
            "the timers wait in the last level of this table; put it into RocketMQ's broker.conf:",
            f"messageDelayLevel={found.levels}",
        ]
    return ["keep timerPrecisionMs=1000, and start RocketMQ within a week"]
