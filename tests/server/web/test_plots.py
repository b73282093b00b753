"""Plots: each figure has its place, and no part is drawn outside."""

from __future__ import annotations

import pytest

from rmqlite.features.changes.requests import TIMELINE_BOUNDS_MAX, LevelTimeline
from rmqlite.kernel.requests.broker import LevelStatus
from rmqlite.kernel.words.clock import local_ms, local_text
from rmqlite.kernel.words.levels import parse_delay
from rmqlite.web.schedule import (
    OTHERS,
    SERIES_MAX,
    SPANS,
    bounds_of,
    lateness_plot,
    marks_of,
    timeline,
)

NOW_MS = local_ms("2027-12-31 23:59:58.765") or 0
DAY_MS = 86_400_000
AHEAD_MS = {"1y": 363 * DAY_MS, "2y": 730 * DAY_MS, "10y": 3650 * DAY_MS}


@pytest.mark.parametrize("span", SPANS)
def test_a_timeline_reaches_as_far_as_it_says(span: str) -> None:
    """The longest timer of the default is two years away, and the longest of all ten."""
    bounds = bounds_of(NOW_MS, span)
    assert bounds[0] == NOW_MS
    assert list(bounds) == sorted(set(bounds))
    assert len(bounds) <= TIMELINE_BOUNDS_MAX
    reach_ms = bounds[-1] - NOW_MS
    assert reach_ms >= (AHEAD_MS.get(span) or parse_delay(span))
    marks = marks_of(bounds, span)
    assert len(marks) == len(set(marks)) == 5


@pytest.mark.parametrize(
    ("span", "first", "last"),
    [
        ("1y", "2028-01-07", "2028-12-29"),
        ("2y", "2028-01-01", "2030-01-01"),
        ("10y", "2028-03-01", "2038-03-01"),
    ],
)
def test_a_column_of_years_begins_with_a_day_or_a_month(span: str, first: str, last: str) -> None:
    """People plan in months; a column of 12 days and 4 hours tells them nothing."""
    bounds = bounds_of(NOW_MS, span)
    assert local_text(bounds[1]) == f"{first} 00:00:00.000"
    assert local_text(bounds[-1]) == f"{last} 00:00:00.000"


def test_a_column_is_its_levels_one_on_the_other() -> None:
    """The parts begin at the ground and are as high as the scale says."""
    levels = [LevelTimeline(5, (1, 3, 0, 2)), LevelTimeline(7, (0, 1, 4, 5))]
    plot = timeline((0, 10, 20), levels, {5: "1m", 7: "3m"})
    assert (plot.most, plot.total, plot.overdue, plot.later) == (4, 8, 1, 7)
    assert plot.series == ("1m", "3m")
    first, second = plot.columns
    assert [(p.series, p.count, p.y, p.height) for p in first.parts] == [
        (0, 3, 25.0, 75.0),
        (1, 1, 0.0, 25.0),
    ]
    assert (first.begin_ms, first.end_ms, first.total, second.total) == (0, 10, 4, 4)


def test_many_levels_are_drawn_as_few() -> None:
    """More colours cannot be told apart; but all messages are drawn."""
    levels = [LevelTimeline(n, (0, n, 0)) for n in range(1, 19)]
    plot = timeline((0, 10), levels, {n: f"level {n}" for n in range(1, 19)})
    assert plot.series == tuple([f"level {n}" for n in range(13, 19)] + [OTHERS])
    assert len(plot.series) == SERIES_MAX + 1
    assert plot.total == sum(range(19))
    assert plot.columns[0].parts[-1].count == sum(range(13))


def test_nothing_that_comes_due_is_an_empty_plot() -> None:
    """There must be no division by zero."""
    plot = timeline((0, 10), [LevelTimeline(1, (0, 0, 0))], {1: "1s"})
    assert (plot.total, plot.most, plot.series) == (0, 4, ())


@pytest.mark.parametrize("count", [1, 4, 5, 99, 100, 101, 999, 12_345, 999_999, 1_000_001])
def test_the_scale_holds_the_highest_column(count: int) -> None:
    """It is at most twice as high as the highest column."""
    plot = timeline((0, 10), [LevelTimeline(1, (0, count, 0))], {1: "1s"})
    assert count <= plot.most <= max(4, 2 * count)
    (part,) = plot.columns[0].parts
    assert 0 <= part.y <= 100
    assert part.y + part.height == pytest.approx(100, abs=0.01)


def _level(level: int, *late_ms: int, delivered: int = 1) -> LevelStatus:
    return LevelStatus(level, "1s", 0, 0, delivered, *late_ms)


def test_lateness_is_drawn_on_a_scale_of_tenfold_steps() -> None:
    """One scale must show both a millisecond and a minute."""
    plot = lateness_plot(
        [_level(1, 0, 1, 10), _level(2, 10, 100, 10_000), _level(3, 0, 0, 0, delivered=0)]
    )
    assert [(row.p50, row.p99, row.most) for row in plot.rows] == [
        (0.0, 0.0, 25.0),
        (25.0, 50.0, 100.0),
    ]
    assert [name for _, name in plot.ticks] == ["1 ms", "10 ms", "100 ms", "1s", "10s"]
    assert lateness_plot([]).rows == ()
