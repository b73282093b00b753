"""rmqlite pipeline slo: were the messages of each topic and day delivered in time, and all?"""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from rmqlite.cli.options import NOT_ALL, moment_ms, option, refuse, with_options
from rmqlite.cli.output.documents import prints
from rmqlite.cli.output.terminal import note, print_table, shortened
from rmqlite.cli.pipeline.running import PlotOptions, answer, answered, started, write, write_plot
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import wait_ms
from rmqlite.views.numbers import span_text

_NAME_CHARS: Final = 16
_ROWS_SHOWN: Final = 40
_COUNTS: Final = ("due", "late", "undelivered")


_ANSWER: Final = answered(
    "ServiceLevels",
    "By topic and day.",
    "rows",
    within_ms=int,
    in_time=float,
    complete=float,
    is_met=bool,
)


@prints(lambda: _ANSWER)
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
    answer(job, options, _ANSWER, tree, lambda: _print(rows, len(missed)), code)


def _within_ms(text: str) -> int:
    try:
        return wait_ms("--within", text)
    except InvalidValue as error:
        refuse("--within", text, error.rule)


def _print(rows: list[dict[str, Any]], missed: int) -> None:
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
