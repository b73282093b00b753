"""rmqlite store tails: what was cut off the log of a former master, and its messages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rmqlite.cli.options import AsJson, option
from rmqlite.cli.output.documents import Document, fields_of, many, prints
from rmqlite.cli.output.message_text import json_of
from rmqlite.cli.output.terminal import print_json, print_lines, print_table
from rmqlite.cli.output.writing import quiet_when_nobody_reads
from rmqlite.views.numbers import time_text

if TYPE_CHECKING:
    from rmqlite.features.standby.tails import Tail

_TAIL: Final = Document(
    "CutTail",
    "Records that the master did not have; file: where they lie, one behind the other.",
    **fields_of(int, "begin end records cut_at_ms"),
    file=str,
    message_ids=tuple[str, ...],
)


@prints(lambda: many(_TAIL))
def tails(
    store: Annotated[Path, typer.Argument(metavar="DIR", help="The store's folder.")],
    ids: Annotated[bool, option("--ids", "Print the message ids, one a line.")] = False,
    export: Annotated[
        bool, option("--export", "Print the messages as JSON lines, as store export does.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what was cut off the log when a former master became the standby.

    None of it was acknowledged while both brokers had to have it.
    """
    from rmqlite.features.standby.tails import records_in, tails_of

    found = tails_of(store)
    if export:
        with quiet_when_nobody_reads():
            for each in (each for tail in found for each in records_in(tail)):
                sys.stdout.write(json_of(each.to_message(), None))
    elif as_json:
        print_json([_row(each) for each in found])
    elif ids:
        print_lines(each for tail in found for each in tail.message_ids)
    else:
        print_table(
            ("CUT", "FROM", "TO", "RECORDS", "FILE"),
            [
                (time_text(each.cut_at_ms), each.begin, each.end, each.records, each.path.name)
                for each in found
            ],
        )


def _row(tail: Tail) -> dict[str, object]:
    return {
        "begin": tail.begin,
        "end": tail.end,
        "records": tail.records,
        "cut_at_ms": tail.cut_at_ms,
        "file": str(tail.path),
        "message_ids": tail.message_ids,
    }
