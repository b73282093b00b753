"""rmqlite pipeline reconcile: was every scheduled message delivered once, and none early?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from rmqlite.cli.options import option, with_options
from rmqlite.cli.output.documents import fields_of, maybe, prints
from rmqlite.cli.output.terminal import (
    note,
    print_table,
    print_two_line_table,
    printable,
    time_text,
)
from rmqlite.cli.pipeline.running import (
    PROMISE_BROKEN,
    TableOptions,
    answer,
    answered,
    started,
    write,
)
from rmqlite.views.levels import level_text

_OFFENDERS_SHOWN: Final = 20
_MEANINGS: Final = {
    "delivered": "once, at or after its deliver time",
    "fired": "delivered at once, on request",
    "rescheduled": "waits again, or waited, as another record",
    "cancelled": "on request",
    "undeliverable": "a dead letter of SCHEDULE_CONSUMER",
    "pending": "not due yet",
    "overdue": "due, and so is every later message: a backlog",
    "missing": "due and not delivered, but later messages were",
    "orphan": "ended, but its scheduled record is missing",
    "expired": "ended, and retention removed its scheduled record",
    "duplicates": "second ends of the same wait",
    "early": "delivered before the deliver time",
}


_ANSWER: Final = answered(
    "Reconciled",
    "held: no promise was broken.  totals: messages by state.  offenders: the first of them.",
    "levels offenders",
    held=bool,
    totals=dict[str, int],
    **fields_of(int, "without_pointer now_ms"),
    horizon_ms=maybe(int),
)


@prints(lambda: _ANSWER)
@with_options
def reconcile(
    *,
    options: TableOptions,
    slack_ms: Annotated[
        int,
        option(
            "--slack-ms MS",
            "A message is missing if it was due this much before the latest delivered "
            "one; messages due after that may be on their way.",
            min=0,
        ),
    ] = 60_000,
) -> None:
    """Was every scheduled message delivered exactly once, and none early?

    Exit code 4 if not, 5 if a crash may have taken records.  --output gets all messages that
    broke a promise.
    """
    from rmqlite.spark.jobs.reconcile import OFFENDERS_SCHEMA, audit
    from rmqlite.spark.tables import collected

    with started("reconcile", options) as job:
        snapshot = job.snapshot
        found = audit(
            job.read,
            begin_offset=snapshot.begin_offset,
            now_ms=snapshot.newest_timestamp_ms,
            slack_ms=slack_ms,
        )
        shown: list[dict[str, Any]] = []
        if found.offenders is not None:
            shown = collected(found.offenders.limit(_OFFENDERS_SHOWN))
        none = job.spark.createDataFrame([], OFFENDERS_SCHEMA)
        write(none if found.offenders is None else found.offenders, options)
    totals = {name: found.total(name) for name in _MEANINGS}
    names = ("level", "state", "messages", "duplicates", "early")
    tree = {
        "held": found.held,
        "totals": totals,
        "without_pointer": found.total("without_pointer"),
        "now_ms": found.now_ms,
        "horizon_ms": found.horizon_ms,
        "levels": [{name: row[name] for name in names} for row in found.rows],
        "offenders": shown,
    }

    def show() -> None:
        _print(found.rows, totals, found.total("without_pointer"))
        _print_verdict(totals, shown, is_held=found.held)

    answer(job, options, _ANSWER, tree, show, 0 if found.held else PROMISE_BROKEN)


def _print(rows: Sequence[dict[str, Any]], totals: dict[str, int], without_pointer: int) -> None:
    if not rows:
        note("nothing was scheduled")
        return
    groups: dict[str, tuple[str, ...]] = {
        "DELIVERED": ("delivered",),
        "CHANGED": ("fired", "rescheduled", "cancelled"),
        "DEAD": ("undeliverable",),
        "PENDING": ("pending",),
        "OVERDUE": ("overdue",),
        "MISSING": ("missing",),
    }
    by_level: dict[int, dict[str, int]] = {}
    for row in rows:
        cells = by_level.setdefault(row["level"], dict.fromkeys([*groups, "TWICE", "EARLY"], 0))
        for name, states in groups.items():
            cells[name] += row["messages"] if row["state"] in states else 0
        cells["TWICE"] += row["duplicates"]
        cells["EARLY"] += row["early"]
    names = [*groups, "TWICE", "EARLY"]
    print_table(
        ("LEVEL", *names),
        [(level_text(level), *cells.values()) for level, cells in by_level.items()],
        "Scheduled messages",
    )
    always = ("delivered", "pending", "missing", "duplicates", "early")
    listed = [
        (name, count, _MEANINGS[name]) for name, count in totals.items() if count or name in always
    ]
    print_table(("STATE", "MESSAGES", "MEANING"), listed, "All levels")
    if without_pointer:
        note(
            f"{without_pointer:,} were delivered by RocketMQ, without a scheduled record's name: "
            "found by message id, destination and reconsume times, or as a timer's"
        )


def _print_verdict(
    totals: dict[str, int], shown: Sequence[dict[str, Any]], *, is_held: bool
) -> None:
    if is_held:
        typer.echo("\nThe promises held: each exactly once, none early, none missing.")
        return
    names = ("missing", "orphan", "duplicates", "early")
    wrong = [f"{totals[name]:,} {name}" for name in names if totals[name]]
    typer.echo(f"\nPROMISES BROKEN: {', '.join(wrong)}.")
    rows = [
        (
            (
                row["what"],
                level_text(row["level"]),
                time_text(row["deliver_timestamp_ms"] or 0),
                time_text(row["completed_timestamp_ms"] or 0),
            ),
            printable(
                f"{row['unique_key'] or '-'}  to {row['real_topic'] or '-'}"
                f"  scheduled record ends at {row['end_offset']}"
            ),
        )
        for row in shown
    ]
    print_two_line_table(("WHAT", "LEVEL", "DUE", "ENDED"), rows)
    if len(shown) == _OFFENDERS_SHOWN:
        note(f"these are the first {_OFFENDERS_SHOWN}; --output writes all of them")
