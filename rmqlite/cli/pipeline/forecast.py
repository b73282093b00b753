"""rmqlite pipeline forecast: the messages that come due per minute in the next hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Final

from rmqlite.cli.options import moment_ms, option, refuse, with_options, wrong
from rmqlite.cli.output.documents import fields_of, prints
from rmqlite.cli.output.terminal import note, print_bars, print_table
from rmqlite.cli.pipeline.running import PlotOptions, answer, answered, started, write, write_plot
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import parse_delay
from rmqlite.views.levels import level_text
from rmqlite.views.numbers import delay_text, time_text

_HOUR_MS: Final = 3_600_000
_BARS_MAX: Final = 18
"""The lines of a terminal without overdue, later and the first lines of the tables."""
_BUCKETS_MAX: Final = 100_000
_ROWS_SHOWN: Final = 10
_CLOCK: Final = slice(0, 16)
"""The part of a time's text without seconds."""
Row = dict[str, Any]


_ANSWER: Final = answered(
    "Forecast",
    "By due time.",
    "rows",
    **fields_of(int, "now_ms span_ms bucket_ms"),
    from_ms=int | None,
)


@prints(lambda: _ANSWER)
@with_options
def forecast(
    *,
    options: PlotOptions,
    hours: Annotated[float, option("--hours N", "Hours to look ahead.", min=0.01)] = 6,
    due_from: Annotated[
        str, option("--from TIME", "Look from this time on, not from now: '2026-11-27 20:00'.")
    ] = "",
    until: Annotated[str, option("--until TIME", "Due before this time, instead of --hours.")] = "",
    bucket: Annotated[str, option("--bucket SPAN", "The span of a count: 1m, 30s, 1h.")] = "1m",
) -> None:
    """Count messages by due time, topic and level; the time of the snapshot is "now".

    --from and --until ask for the time between, such as the hour of a sale.
    """
    from_ms, until_ms = moment_ms("--from", due_from), moment_ms("--until", until)
    span_ms = round(hours * _HOUR_MS)
    if until_ms is not None:
        if from_ms is None:
            wrong("give --from with --until")
        if until_ms <= from_ms:
            refuse("--until", until, f"later than --from {due_from!r}")
        span_ms = until_ms - from_ms
    bucket_ms = _bucket_ms(bucket, span_ms)
    from rmqlite.spark.jobs import forecast as job_of
    from rmqlite.spark.tables import collected

    with started("forecast", options) as job:
        sizes: dict[str, Any] = {
            "now_ms": job.snapshot.newest_timestamp_ms or wall_ms(),
            "span_ms": span_ms,
            "bucket_ms": bucket_ms,
            "from_ms": from_ms,
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
        refuse("--bucket", text, f"at most {_BUCKETS_MAX:,} buckets in the whole time")
    return bucket_ms


def _print(rows: list[Row], now_ms: int, span_ms: int, bucket_ms: int, from_ms: int | None) -> None:
    if not rows:
        note("nothing waits")
        return
    states = Counter[str]()
    for row in rows:
        states[row["state"]] += row["messages"]
    buckets = -(-span_ms // bucket_ms)
    # One bar covers several buckets if there are many.
    bar_ms = bucket_ms * -(-buckets // _BARS_MAX)
    first_ms = now_ms if from_ms is None else from_ms
    bars = Counter[int]()
    for row in rows:
        if row["state"] == "due":
            bars[(row["due_timestamp_ms"] - first_ms) // bar_ms] += row["messages"]
    shown = [("overdue", "", states["overdue"])]
    if from_ms is not None:
        shown.append(("before", "", states["sooner"]))
    for number in range(-(-span_ms // bar_ms)):
        begin_ms = number * bar_ms
        start = "now" if from_ms is None else "then"
        span = f"{delay_text(begin_ms) if begin_ms else start} -"
        shown.append((span, time_text(first_ms + begin_ms)[_CLOCK], bars[number]))
    shown.append((f"after {delay_text(span_ms)}", "", states["later"]))
    total = sum(states.values())
    print_bars(f"{total:,} pending, as of {time_text(now_ms)}", shown)
    heads = {"overdue": "OVERDUE", "due": f"IN {delay_text(span_ms)}".upper(), "later": "LATER"}
    if from_ms is not None:
        heads = {"overdue": "OVERDUE", "sooner": "BEFORE", "due": "THEN", "later": "LATER"}
    most = f"MOST IN {delay_text(bucket_ms)}".upper()
    for column, head in (("real_topic", "TOPIC"), ("level", "LEVEL")):
        print_table((head, *heads.values(), most), _by(rows, column, tuple(heads)))


def _by(rows: list[Row], column: str, states: Sequence[str]) -> list[tuple[object, ...]]:
    """A row for each value with the most messages, and one row for all others."""
    table, sums = Counter[tuple[str, str]](), Counter[str]()
    most: dict[str, Counter[int]] = {}
    for row in rows:
        name = level_text(row[column]) if column == "level" else str(row[column])
        table[name, row["state"]] += row["messages"]
        sums[name] += row["messages"]
        if row["state"] == "due":
            most.setdefault(name, Counter())[row["due_timestamp_ms"]] += row["messages"]
    names = [name for name, _ in sums.most_common()]
    found: list[tuple[object, ...]] = [
        (name, *[table[name, state] for state in states], _most_text(most.get(name, Counter())))
        for name in names[:_ROWS_SHOWN]
    ]
    others = names[_ROWS_SHOWN:]
    if others:
        counts = [sum(table[name, state] for name in others) for state in states]
        found.append((f"{len(others)} others", *counts, ""))
    return found


def _most_text(buckets: Counter[int]) -> str:
    """The fullest bucket and its begin: "1,930 at 20:01"."""
    if not buckets:
        return "-"
    # Of equally full ones the first.
    at_ms, count = max(buckets.items(), key=lambda each: (each[1], -each[0]))
    return f"{count:,} at {time_text(at_ms)[11:19]}"
