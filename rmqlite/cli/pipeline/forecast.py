"""rmqlite pipeline forecast: the messages that come due per minute in the next hours."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Final

from rmqlite.cli.options import option, refuse, with_options
from rmqlite.cli.output.bars import print_bars
from rmqlite.cli.output.documents import fields_of, prints
from rmqlite.cli.output.terminal import note, print_table, time_text
from rmqlite.cli.pipeline.running import PlotOptions, answer, answered, started, write, write_plot
from rmqlite.clock import wall_ms
from rmqlite.errors import InvalidValue
from rmqlite.levels import parse_delay
from rmqlite.views.times import delay_text

_HOUR_MS: Final = 3_600_000
_BARS_MAX: Final = 18
"""The lines of a terminal without overdue, later and the first lines of the tables."""
_BUCKETS_MAX: Final = 100_000
_ROWS_SHOWN: Final = 10
_CLOCK: Final = slice(0, 16)
"""The part of a time's text without seconds."""
Row = dict[str, Any]


_ANSWER: Final = answered(
    "Forecast", "By due time.", "rows", **fields_of(int, "now_ms span_ms bucket_ms")
)


@prints(lambda: _ANSWER)
@with_options
def forecast(
    *,
    options: PlotOptions,
    hours: Annotated[float, option("--hours N", "Hours to look ahead.", min=0.01)] = 6,
    bucket: Annotated[str, option("--bucket SPAN", "The span of a count: 1m, 30s, 1h.")] = "1m",
) -> None:
    """Count messages by due time, topic and level; the time of the snapshot is "now"."""
    span_ms = round(hours * _HOUR_MS)
    bucket_ms = _bucket_ms(bucket, span_ms)
    from rmqlite.spark.jobs import forecast as job_of
    from rmqlite.spark.tables import collected

    with started("forecast", options) as job:
        sizes = {
            "now_ms": job.snapshot.newest_timestamp_ms or wall_ms(),
            "span_ms": span_ms,
            "bucket_ms": bucket_ms,
        }
        table = job_of.log_forecast(job.read, **sizes)
        rows = collected(table)

        write_plot(lambda plot: plot.forecast_plot(job.snapshot.text, rows, **sizes), options)
        write(table, options)
        table.unpersist()
    answer(job, options, _ANSWER, {**sizes, "rows": rows}, lambda: _print(rows, **sizes))


def _bucket_ms(text: str, span_ms: int) -> int:
    try:
        bucket_ms = parse_delay(text)
    except InvalidValue as error:
        refuse("--bucket", text, error.rule)
    if span_ms / bucket_ms > _BUCKETS_MAX:
        refuse("--bucket", text, f"at most {_BUCKETS_MAX:,} buckets in --hours")
    return bucket_ms


def _print(rows: list[Row], now_ms: int, span_ms: int, bucket_ms: int) -> None:
    if not rows:
        note("nothing waits")
        return
    states = Counter[str]()
    for row in rows:
        states[row["state"]] += row["messages"]
    buckets = -(-span_ms // bucket_ms)
    # One bar covers several buckets if there are many.
    bar_ms = bucket_ms * -(-buckets // _BARS_MAX)
    bars = Counter[int]()
    for row in rows:
        if row["state"] == "due":
            bars[(row["due_timestamp_ms"] - now_ms) // bar_ms] += row["messages"]
    shown = [("overdue", "", states["overdue"])]
    for number in range(-(-span_ms // bar_ms)):
        begin_ms = number * bar_ms
        span = f"{delay_text(begin_ms) if begin_ms else 'now'} -"
        shown.append((span, time_text(now_ms + begin_ms)[_CLOCK], bars[number]))
    shown.append((f"after {delay_text(span_ms)}", "", states["later"]))
    total = sum(states.values())
    print_bars(f"{total:,} pending, as of {time_text(now_ms)}", shown)
    for column, head in (("real_topic", "TOPIC"), ("level", "LEVEL")):
        table = Counter[tuple[str, str]]()
        for row in rows:
            table[str(row[column]), row["state"]] += row["messages"]
        print_table((head, "OVERDUE", f"IN {delay_text(span_ms)}".upper(), "LATER"), _by(table))


def _by(table: Counter[tuple[str, str]]) -> list[tuple[object, ...]]:
    """The rows with the most messages, and one row for all others."""
    sums = Counter[str]()
    for (name, _), count in table.items():
        sums[name] += count
    names = [name for name, _ in sums.most_common()]
    states = ("overdue", "due", "later")
    rows: list[tuple[object, ...]] = [
        (name, *[table[name, state] for state in states]) for name in names[:_ROWS_SHOWN]
    ]
    others = names[_ROWS_SHOWN:]
    if others:
        counts = [sum(table[name, state] for name in others) for state in states]
        rows.append((f"{len(others)} others", *counts))
    return rows
