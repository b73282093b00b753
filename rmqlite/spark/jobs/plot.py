"""The plot of a job as a PNG: the title says the finding, the axis covers the data there is."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, SymmetricalLogLocator

from rmqlite.kernel.words.clock import local_ms, local_text, zone_text
from rmqlite.spark.jobs.redrives import STATES

Row = Mapping[str, Any]

_SERIES_MAX: Final = 8
"""Nobody can distinguish more colours; the other values share one, or are not shown."""
_BARS_MAX: Final = 120
_ROWS_MIN: Final = 4
_ROWS_MAX: Final = 20
_LABEL_CHARS: Final = 40
_PARTS: Final = ("#2da44e", "#afb8c1", "#cf5b3c", "#57606a", "#8250df")
"""The colours of the parts of a bar: good, undecided, bad, and two others; as in STATES."""
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_STEPS_MS: Final = (
    *(1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000),
    *(_HOUR_MS * hours for hours in (1, 2, 3, 6, 12, 24, 48, 168, 720, 2_160, 8_760)),
)
"""The possible distances between two marks of a time axis."""
_TICKS_MAX: Final = 9


def lateness_plot(
    snapshot: str, late_ms: int, tables: Mapping[str, Sequence[Row]], counts: Sequence[Row]
) -> bytes:
    """Was it late, and when?  p99 per level and hour; of a single hour, the distribution.

    tables: by the names that the command uses.  counts: rows of level, late_ms, messages.
    """
    by_hour, levels = tables["levels_and_hours"], tables["levels"]
    busiest = sorted(levels, key=lambda row: -row["messages"])[:_SERIES_MAX]
    shown = sorted(row["level"] for row in busiest)
    total = sum(row["messages"] for row in levels)
    late = sum(row["messages"] for row in counts if row["late_ms"] > late_ms)
    worst = max((row["max_ms"] for row in levels), default=0)
    earliest = min((row["min_ms"] for row in levels), default=0)
    lowest = 1.5 * earliest if earliest < 0 else -0.2
    figure, axes = _figure(
        f"{late:,} of {total:,} messages were more than {late_ms:,} ms late; "
        f"the latest by {worst:,} ms"
        if total
        else "Nothing was delivered from the schedule",
        snapshot + (f"; the {len(shown)} busiest levels" if len(levels) > len(shown) else ""),
    )
    over_time = len({row["hour_ms"] for row in by_hour}) > 1
    for level, colour in zip(shown, _colours(len(shown)), strict=True):
        name = "timer" if level < 0 else f"level {level}"
        if over_time:
            mine = [row for row in by_hour if row["level"] == level]
            hours, p99 = [row["hour_ms"] for row in mine], [row["p99_ms"] for row in mine]
            axes.plot(hours, p99, "o-", color=colour, ms=3, lw=1.4, label=name)
        else:
            at, shares = _cumulated([row for row in counts if row["level"] == level])
            axes.step(at, shares, where="post", color=colour, lw=1.6, label=name)
    ms_axis = axes.yaxis if over_time else axes.xaxis
    if over_time:
        axes.axhline(late_ms, color="black", lw=0.8, ls="--")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(lowest, 1.5 * max(1, *[row["p99_ms"] for row in by_hour]))
        axes.set_ylabel("p99 of an hour's deliveries, ms late")
        _time_axis(axes, [row["hour_ms"] for row in by_hour], _HOUR_MS // 4)
    else:
        axes.axvline(late_ms, color="black", lw=0.8, ls="--")
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(lowest, 1.5 * max(1, worst))
        axes.set_xlabel("ms late")
        axes.set_ylabel("share of messages at most so late")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    ms_axis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1, subs=(1, 2, 5)))
    ms_axis.set_major_formatter(FuncFormatter(_whole))
    return _png(figure, axes)


def forecast_plot(
    snapshot: str,
    rows: Sequence[Row],
    *,
    now_ms: int,
    span_ms: int,
    bucket_ms: int,
    from_ms: int | None = None,
) -> bytes:
    """When does how much come due, and of which topics?  rows: the table of the job."""
    when = "" if from_ms is None else f", from {local_text(from_ms)[:16]} on"
    now_ms = now_ms if from_ms is None else from_ms
    due = [row for row in rows if row["state"] == "due"]
    ahead_ms = max((row["due_timestamp_ms"] for row in due), default=now_ms) + bucket_ms - now_ms
    bar_ms = bucket_ms * -(-ahead_ms // (bucket_ms * _BARS_MAX))
    bars: dict[str, Counter[int]] = {}
    sums, every = Counter[str](), Counter[int]()
    for row in due:
        sums[str(row["real_topic"])] += row["messages"]
    often = [topic for topic, _ in sums.most_common(_SERIES_MAX)]
    for row in due:
        topic = str(row["real_topic"])
        begin_ms = now_ms + (row["due_timestamp_ms"] - now_ms) // bar_ms * bar_ms
        bars.setdefault(topic if topic in often else "others", Counter())[begin_ms] += row[
            "messages"
        ]
        every[begin_ms] += row["messages"]
    states = Counter[str]()
    for row in rows:
        states[row["state"]] += row["messages"]
    sooner = f"{states['sooner']:,} sooner, " if from_ms is not None else ""
    rest = f"{states['overdue']:,} overdue, {sooner}{states['later']:,} later"
    title = f"Nothing comes due in this time; {rest}"
    if every:
        at, most = max(every.items(), key=lambda each: each[1])
        title = f"{sum(every.values()):,} come due, most at {_clock(at)} ({most:,}); {rest}"
    figure, axes = _figure(title, f"{snapshot}; the next {span_ms / _HOUR_MS:g} h{when}")
    below = Counter[int]()
    for (topic, mine), colour in zip(bars.items(), _colours(len(bars)), strict=True):
        begins = sorted(mine)
        bottom = [below[begin] for begin in begins]
        heights = [mine[begin] for begin in begins]
        axes.bar(begins, heights, bar_ms, bottom, align="edge", color=colour, label=topic, lw=0)
        below.update(mine)
    axes.set_ylabel(f"messages per {bar_ms / 1000:,g} s")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _time_axis(axes, [now_ms, now_ms + max(ahead_ms, bar_ms)], 0)
    return _png(figure, axes)


def retries_plot(snapshot: str, tables: Mapping[str, Sequence[Row]]) -> bytes:
    """Do retries help, and which?  tables: by the names that the command uses."""
    names = ("succeeded", "in_hand", "failed")
    sums = {name: Counter[int]() for name in names}
    for row in tables["funnel"]:
        for name in names:
            sums[name][row["attempt"]] += row[name]
    totals = Counter[str]()
    for row in tables["groups"]:
        for name in ("messages", "succeeded", "dead"):
            totals[name] += row[name]
    figure, axes = _figure(
        f"Of {totals['messages']:,} failed messages {totals['succeeded']:,} succeeded in a retry, "
        f"{totals['dead']:,} died",
        snapshot,
    )
    attempts = sorted(sums["succeeded"])
    below = [0] * len(attempts)
    for name, colour in zip(names, _PARTS, strict=False):
        mine = [sums[name][attempt] for attempt in attempts]
        axes.bar(attempts, mine, 0.7, below, color=colour, label=name.replace("_", " "))
        below = [one + other for one, other in zip(below, mine, strict=True)]
    axes.set_xlabel("retry")
    axes.set_ylabel("messages that reached it")
    if attempts:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(attempts[0] - 1, attempts[-1] + 1)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return _png(figure, axes)


def redrives_plot(snapshot: str, rows: Sequence[Row]) -> bytes:
    """Which redrives worked?  rows: the summary of the job."""
    sums = {name: sum(row[name] for row in rows) for name in ("sent", "consumed", "dead")}
    title = "Of {sent:,} redriven messages {consumed:,} are consumed, {dead:,} are dead again"
    bars = {
        f"{row['redriven_by']}, {row['consumer_group']}": [row[name] for name in STATES]
        for row in rows
    }
    return _bars(title.format(**sums), snapshot, STATES, bars, "messages")


def costs_plot(snapshot: str, rows: Sequence[Row]) -> bytes:
    """Which groups' failures fill the log?  rows: the costs of the job."""
    attempts, size = [sum(row[name] for row in rows) for name in ("attempts", "record_bytes")]
    bars = {
        f"{row['consumer_group']}, {row['origin_topic'] or '-'}": [row["record_bytes"] / 2**20]
        for row in rows
    }
    title = f"Failures cost {attempts:,} further attempts and {size / 2**20:,.1f} MiB of the log"
    return _bars(title, snapshot, ("log",), bars, "MiB")


def slo_plot(snapshot: str, rows: Sequence[Row], *, within_ms: int, in_time: float) -> bytes:
    """On which days were which topics late?  rows: the table of the job."""
    missed = sum(not row["is_met"] for row in rows)
    figure, axes = _figure(
        f"{missed:,} of {len(rows):,} topics and days missed the target"
        if rows
        else "Nothing was due",
        f"{snapshot}; in time is at most {within_ms:,} ms late",
    )
    days = sorted({str(row["day"]) for row in rows})
    shares: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["in_time_share"] is not None:
            at = days.index(str(row["day"]))
            shares.setdefault(str(row["real_topic"]), {})[at] = row["in_time_share"]
    worst = sorted(shares, key=lambda topic: min(shares[topic].values()))[:_SERIES_MAX]
    for topic, colour in zip(worst, _colours(len(worst)), strict=True):
        mine = sorted(shares[topic].items())
        axes.plot(*zip(*mine, strict=True), "o-", color=colour, ms=4, lw=1.4, label=topic)
    axes.axhline(in_time, color="black", lw=0.8, ls="--")
    axes.set_ylabel("share delivered in time")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g}%"))
    step = -(-len(days) // _TICKS_MAX) or 1
    axes.set_xticks(range(0, len(days), step), days[::step])
    return _png(figure, axes)


def _bars(
    title: str, snapshot: str, names: Sequence[str], bars: Mapping[str, Sequence[float]], unit: str
) -> bytes:
    """Horizontal bars by label, the first one on top, each with a part for every name."""
    shown = list(bars)[:_ROWS_MAX]
    cut = f"; the first {_ROWS_MAX} of {len(bars)}" if len(bars) > _ROWS_MAX else ""
    figure, axes = _figure(title, snapshot + cut)
    below = [0.0] * len(shown)
    for number, name in enumerate(names):
        mine = [bars[label][number] for label in shown]
        if any(mine):
            axes.barh(range(len(shown)), mine, 0.7, below, color=_PARTS[number], label=name)
            below = [one + other for one, other in zip(below, mine, strict=True)]
    axes.set_yticks(range(len(shown)), [label[:_LABEL_CHARS] for label in shown], parse_math=False)
    axes.set_ylim(max(len(shown), _ROWS_MIN) - 0.5, -0.5)
    axes.set_xlabel(unit)
    return _png(figure, axes)


def _figure(title: str, below: str) -> tuple[Figure, Axes]:
    figure = Figure((9.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    # A name in a title may have signs that matplotlib would read as a formula.
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, parse_math=False)
    axes = figure.add_subplot()
    axes.set_title(below, loc="left", fontsize=7, color="#57606a", parse_math=False)
    axes.grid(color="#d0d7de", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    return figure, axes


def _png(figure: Figure, axes: Axes) -> bytes:
    if axes.get_legend_handles_labels()[0]:
        # Inside the plot it would hide some of it.
        legend = axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        for text in legend.get_texts():
            text.set_parse_math(False)
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=130)
    return written.getvalue()


def _colours(count: int) -> list[Any]:
    return [colormaps["viridis_r"](0.2 + 0.75 * n / max(1, count - 1)) for n in range(count)]


def _cumulated(rows: Sequence[Row]) -> tuple[list[int], list[float]]:
    """Lateness ascending, and the share of messages that are at most so late."""
    by_ms = Counter[int]()
    for row in rows:
        by_ms[row["late_ms"]] += row["messages"]
    late = sorted(by_ms)
    sums = list(accumulate(by_ms[each] for each in late))
    # Begin at share 0, so that even a level that was never late has a line.
    return [late[0] - 1, *late], [0.0, *[each / sums[-1] for each in sums]]


def _time_axis(axes: Axes, times_ms: Sequence[int], margin_ms: int) -> None:
    first_ms, last_ms = min(times_ms) - margin_ms, max(times_ms) + margin_ms
    axes.set_xlim(first_ms, last_ms)
    step_ms = next((n for n in _STEPS_MS if (last_ms - first_ms) / n <= _TICKS_MAX), _STEPS_MS[-1])
    # Count the marks from local midnight, so that they are round in every zone.
    midnight_ms = local_ms(local_text(first_ms)[:10]) or 0
    first = midnight_ms - (midnight_ms - first_ms) // step_ms * step_ms
    marks = range(first, last_ms + 1, step_ms)
    is_long = last_ms - first_ms > _DAY_MS
    clock = slice(5, 16) if is_long else slice(11, 16 if step_ms >= 60_000 else 19)
    axes.set_xticks(list(marks), [local_text(mark)[clock] for mark in marks])
    day = "" if is_long else f"from {local_text(first_ms)[:10]}, "
    axes.set_xlabel(f"{day}{zone_text(first_ms)}")


def _clock(at_ms: int) -> str:
    return local_text(at_ms)[11:16]


def _whole(value: float, _: int | None) -> str:
    return f"{value:,.0f}"
