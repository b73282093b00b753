"""Turns figures into places and sizes of drawings, which the templates write as SVG.

A drawing has no words in it, so that a browser may stretch it to any width: its axes are text
beside it, and every figure is in a table, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rmqlite.features.changes.requests import LevelTimeline
from rmqlite.kernel.requests.broker import LevelStatus
from rmqlite.kernel.words.clock import local_ms, local_text, month_start_ms
from rmqlite.kernel.words.levels import parse_delay

SERIES_MAX: Final = 6
"""There are so many distinct colours; further levels are drawn together."""
OTHERS: Final = "other levels"
SPANS: Final = ("10m", "1h", "6h", "1d", "7d", "30d", "1y", "2y", "10y")
"""How far a timeline may look ahead."""
COLUMNS: Final = 60
_DAY_MS: Final = 86_400_000
_WEEKS: Final = 52
_MONTHS: Final = {"2y": (1, 25), "10y": (3, 41)}
"""The months of a column, and the number of columns."""


@dataclass(frozen=True, slots=True)
class PlotPart:
    """A piece of a column; y and height in percent of the plot, from its top."""

    series: int
    name: str
    count: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class PlotColumn:
    """The messages that fall due from begin_ms until before end_ms."""

    x: float
    begin_ms: int
    end_ms: int
    total: int
    parts: tuple[PlotPart, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """columns: of equal width, 1 each in x.  most: the height of the plot, in messages."""

    columns: tuple[PlotColumn, ...]
    series: tuple[str, ...]
    most: int
    overdue: int
    later: int

    @property
    def total(self) -> int:
        return sum([column.total for column in self.columns])


def bounds_of(now_ms: int, ahead: str) -> tuple[int, ...]:
    """The bounds of a timeline's columns; those of years begin with a local week or month."""
    if ahead in _MONTHS:
        months, columns = _MONTHS[ahead]
        starts = [month_start_ms(now_ms)]
        for _ in range(months * columns):
            # 32 days after its start every month is over, and the next one is not.
            starts.append(month_start_ms(starts[-1] + 32 * _DAY_MS))
        return now_ms, *starts[months::months]
    if ahead == "1y":
        weeks = [local_text(now_ms + n * 7 * _DAY_MS)[:10] for n in range(1, _WEEKS + 1)]
        return now_ms, *[local_ms(day) or 0 for day in weeks]
    step_ms = parse_delay(ahead) // COLUMNS
    return tuple([now_ms + n * step_ms for n in range(COLUMNS + 1)])


def marks_of(bounds_ms: Sequence[int], ahead: str) -> list[str]:
    """Five words for the axis under a timeline."""
    begin, end = (0, 10) if ahead == "1y" else (0, 7) if ahead[-1] == "y" else (5, 16)
    if ahead[-1] in "mh":
        begin = 11
    columns = len(bounds_ms) - 1
    return [local_text(bounds_ms[round(n * columns / 4)])[begin:end] for n in range(5)]


def timeline(
    bounds_ms: Sequence[int], levels: Sequence[LevelTimeline], names: Mapping[int, str]
) -> Timeline:
    """A column between each two instants, stacked by level; the rarest levels are one part."""
    by_count = sorted(levels, key=lambda each: -sum(each.counts[1:-1]))
    apart = sorted(by_count[:SERIES_MAX], key=lambda each: each.level)
    stacked = [(names[each.level], each.counts) for each in apart if sum(each.counts[1:-1])]
    rest = [each.counts for each in by_count[SERIES_MAX:]]
    if any(sum(counts[1:-1]) for counts in rest):
        stacked.append((OTHERS, tuple([sum(column) for column in zip(*rest, strict=True)])))
    slots = len(bounds_ms) - 1
    totals = [sum([counts[slot + 1] for _, counts in stacked]) for slot in range(slots)]
    most = _round_up(max(totals, default=0))
    columns = []
    for slot in range(slots):
        parts, top = [], 100.0
        for series, (name, counts) in enumerate(stacked):
            count = counts[slot + 1]
            if count:
                height = 100 * count / most
                top -= height
                parts.append(PlotPart(series, name, count, round(top, 3), round(height, 3)))
        columns.append(
            PlotColumn(slot, bounds_ms[slot], bounds_ms[slot + 1], totals[slot], tuple(parts))
        )
    return Timeline(
        tuple(columns),
        tuple([name for name, _ in stacked]),
        most,
        sum([each.counts[0] for each in levels]),
        sum([each.counts[-1] for each in levels]),
    )


def _round_up(count: int) -> int:
    """The next round number, for an axis; at least 4."""
    if count <= 4:
        return 4
    unit: int = 10 ** (len(str(count)) - 1)
    return next(
        step
        for tenths in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)
        if (step := tenths * unit // 10) >= count
    )


@dataclass(frozen=True, slots=True)
class LatenessLine:
    """One level's line; p50, p99, most: places in percent of the width."""

    level: LevelStatus
    p50: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class LatenessPlot:
    """ticks: place in percent of the width, and text such as "10 ms"."""

    rows: tuple[LatenessLine, ...]
    ticks: tuple[tuple[float, str], ...]


def lateness(levels: Sequence[LevelStatus]) -> LatenessPlot:
    """How late each level delivered, on a scale on which each tick is ten times the last."""
    most_ms = max([each.lateness_max_ms for each in levels], default=0)
    decades = max(3, math.ceil(math.log10(max(1, most_ms))))

    def place(late_ms: int) -> float:
        # One millisecond or less is at the left end, because 0 has no logarithm.
        return round(100 * math.log10(max(1, late_ms)) / decades, 2)

    rows = [
        LatenessLine(
            each,
            place(each.lateness_p50_ms),
            place(each.lateness_p99_ms),
            place(each.lateness_max_ms),
        )
        for each in levels
        if each.delivered
    ]
    ticks = [(round(100 * n / decades, 2), _tick(10**n)) for n in range(decades + 1)]
    return LatenessPlot(tuple(rows), tuple(ticks))


def _tick(length_ms: int) -> str:
    # No minutes: readers should see that each tick is ten times the one before.
    return f"{length_ms} ms" if length_ms < 1_000 else f"{length_ms // 1000:,}s"
