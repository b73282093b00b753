"""rmqlite pipeline reconcile, lateness and slo: were messages delivered once, when due, and all?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from rmqlite.cli.options import NOT_ALL, moment_ms, option, refuse, with_options
from rmqlite.cli.output.documents import fields_of, maybe, prints
from rmqlite.cli.output.terminal import note, print_table, print_tall_table, printable, shortened
from rmqlite.cli.pipeline.running import (
    PROMISE_BROKEN,
    PlotOptions,
    TableOptions,
    answer,
    answered,
    started,
    write,
    write_plot,
)
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import wait_ms
from rmqlite.views.levels import level_text
from rmqlite.views.numbers import span_text, time_text

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
_RECONCILED: Final = answered(
    "Reconciled",
    "held: no promise was broken.  totals: messages by state.  offenders: the first of them.",
    "levels offenders",
    held=bool,
    totals=dict[str, int],
    **fields_of(int, "without_pointer now_ms"),
    horizon_ms=maybe(int),
)
_LATENESS_HEAD: Final = ("MESSAGES", "P50 MS", "P90 MS", "P99 MS", "MAX MS", "LATE %", "EARLY")
_HOURS_SHOWN: Final = 24
_LATENESS: Final = answered(
    "Lateness", "Of deliveries.", "all levels hours levels_and_hours", late_ms=int
)
_NAME_CHARS: Final = 16
_ROWS_SHOWN: Final = 40
_COUNTS: Final = ("due", "late", "undelivered")
_SERVICE_LEVELS: Final = answered(
    "ServiceLevels",
    "By topic and day.",
    "rows",
    within_ms=int,
    in_time=float,
    complete=float,
    is_met=bool,
)


@prints(lambda: _RECONCILED)
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
        _print_reconciled(found.rows, totals, found.total("without_pointer"))
        _print_verdict(totals, shown, is_held=found.held)

    answer(job, options, _RECONCILED, tree, show, 0 if found.held else PROMISE_BROKEN)


def _print_reconciled(
    rows: Sequence[dict[str, Any]], totals: dict[str, int], without_pointer: int
) -> None:
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
    print_tall_table(("WHAT", "LEVEL", "DUE", "ENDED"), rows)
    if len(shown) == _OFFENDERS_SHOWN:
        note(f"these are the first {_OFFENDERS_SHOWN}; --output writes all of them")


@prints(lambda: _LATENESS)
@with_options
def lateness(
    *,
    options: PlotOptions,
    late_ms: Annotated[
        int, option("--late-ms MS", "A delivery is late after this time.", min=0)
    ] = 100,
    since: Annotated[str, option("--since TIME", "Delivered at this time or later.")] = "",
    until: Annotated[str, option("--until TIME", "Delivered before this time.")] = "",
) -> None:
    """Show the lateness of deliveries per level and hour; --output has a row for each."""
    since_ms, until_ms = moment_ms("--since", since), moment_ms("--until", until)
    from rmqlite.spark.jobs import lateness as job_of
    from rmqlite.spark.tables import collected

    with started("lateness", options) as job:
        counts = job_of.log_counts(
            job.read,
            now_ms=job.snapshot.newest_timestamp_ms,
            since_ms=since_ms,
            until_ms=until_ms,
        )
        tables = {
            name: collected(job_of.lateness(counts, by=by, late_ms=late_ms))
            for name, by in (
                ("all", ()),
                ("levels", ("level",)),
                ("hours", ("hour",)),
                ("levels_and_hours", job_of.BY_LEVEL_AND_HOUR),
            )
        }

        def draw(plot: Any) -> bytes:
            late = collected(counts.where("late_ms IS NOT NULL"))
            return bytes(plot.lateness_plot(job.snapshot.text, late_ms, tables, late))

        write_plot(draw, options)
        write(job_of.lateness(counts, late_ms=late_ms), options)
        counts.unpersist()
    tree = {"late_ms": late_ms, **tables}
    answer(job, options, _LATENESS, tree, lambda: _print_lateness(tables, late_ms))


def _print_lateness(tables: dict[str, list[dict[str, Any]]], late_ms: int) -> None:
    if not tables["levels"]:
        note("nothing was delivered from the schedule")
        return
    levels = [(level_text(row["level"]), *_cells(row)) for row in tables["levels"]]
    levels += [("all", *_cells(row)) for row in tables["all"]]
    title = f"Delivery - deliver time, per level; late is more than {late_ms} ms"
    print_table(("LEVEL", *_LATENESS_HEAD), levels, title)
    hours = tables["hours"]
    if len(hours) > 1:
        shown = hours[-_HOURS_SHOWN:]
        which = f"the last {_HOURS_SHOWN} of {len(hours)} hours" if shown != hours else "per hour"
        rows = [(time_text(row["hour_ms"])[:16], *_cells(row)) for row in shown]
        print_table(("HOUR", *_LATENESS_HEAD), rows, f"All levels, {which}")


def _cells(row: dict[str, Any]) -> Sequence[object]:
    names = ("messages", "p50_ms", "p90_ms", "p99_ms", "max_ms")
    return (*[row[name] for name in names], 100 * row["late_share"], row["early"])


@prints(lambda: _SERVICE_LEVELS)
@with_options
def slo(
    *,
    options: PlotOptions,
    within: Annotated[
        str, option("--within SPAN", "In time is at most so late: 500ms, 1s, 1m30s.")
    ] = "1s",
    in_time: Annotated[
        float, option("--in-time PERCENT", "At least so many in time.", min=0, max=100)
    ] = 99.9,
    complete: Annotated[
        float, option("--complete PERCENT", "At least so many delivered.", min=0, max=100)
    ] = 100,
    topic: Annotated[
        list[str] | None, option("--topic -t NAME", "Only this topic; can be repeated.")
    ] = None,
    since: Annotated[str, option("--since TIME", "Due at this time or later.")] = "",
    until: Annotated[str, option("--until TIME", "Due before this time.")] = "",
) -> None:
    """Compare each topic and day (UTC) with a target of timely and complete delivery.

    Exit code 1 if one missed it.  --output has a row for each topic and day.
    """
    within_ms = _within_ms(within)
    since_ms, until_ms = moment_ms("--since", since), moment_ms("--until", until)
    from rmqlite.spark.jobs import slo as job_of
    from rmqlite.spark.tables import collected

    target = job_of.Target(within_ms, in_time / 100, complete / 100)
    due = job_of.Due(tuple(topic or ()), since_ms, until_ms)
    with started("slo", options, lambda found: found.check_topics(due.topics)) as job:
        now_ms = job.snapshot.newest_timestamp_ms
        table = job_of.log_service_levels(job.read, target, now_ms=now_ms, due=due)
        rows = [row | {"day": str(row["day"])} for row in collected(table)]
        ends = {"within_ms": within_ms, "in_time": target.in_time}
        write_plot(lambda plot: plot.slo_plot(job.snapshot.text, rows, **ends), options)
        write(table, options)
        table.unpersist()
    missed = [row for row in rows if not row["is_met"]]
    tree = {**ends, "complete": target.complete, "is_met": not missed, "rows": rows}
    code = NOT_ALL if missed else 0
    answer(job, options, _SERVICE_LEVELS, tree, lambda: _print_slo(rows, len(missed)), code)


def _within_ms(text: str) -> int:
    try:
        return wait_ms("--within", text)
    except InvalidValue as error:
        refuse("--within", text, error.rule)


def _print_slo(rows: list[dict[str, Any]], missed: int) -> None:
    if not rows:
        note("nothing was due")
        return
    # The days that missed the target first: they are what somebody looks for.
    ordered = sorted(rows, key=lambda row: row["is_met"])
    cells = [
        (
            row["day"],
            shortened(row["real_topic"], _NAME_CHARS),
            *[row[name] for name in _COUNTS],
            "-" if row["p99_ms"] is None else span_text(round(row["p99_ms"])),
            _percent(row["in_time_share"]),
            "met" if row["is_met"] else "missed",
        )
        for row in ordered[:_ROWS_SHOWN]
    ]
    head = ("DAY (UTC)", "TOPIC", "DUE", "LATE", "UNDELIVERED", "P99", "IN TIME %", "TARGET")
    print_table(head, cells, "Scheduled messages by the day on which they were due")
    if len(rows) > _ROWS_SHOWN:
        note(f"these are {_ROWS_SHOWN} of {len(rows):,}; --output writes all of them")
    if missed:
        typer.echo(f"\nTARGET MISSED by {missed:,} of {len(rows):,} topics and days.")
    else:
        typer.echo("\nThe target was met by every topic on every day.")


def _percent(share: float | None) -> str:
    """Rounded down, so that 100 % means all."""
    return "-" if share is None else f"{int(share * 100_000) / 1_000:.3f}"
