"""Plots: of nothing, of names that somebody else chose, of one hour and of many."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.spark.jobs import plot

HOUR_MS = 3_600_000
NOON_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
SNAPSHOT = "/store: physical offsets 0 to 1"
SIZES = {"now_ms": NOON_MS, "span_ms": 6 * HOUR_MS, "bucket_ms": 60_000}


@pytest.fixture(autouse=True)
def titles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of the plots that a test draws."""
    seen: list[str] = []
    draw = plot._figure

    def seeing(title: str, below: str) -> Any:
        seen.append(title)
        return draw(title, below)

    monkeypatch.setattr(plot, "_figure", seeing)
    return seen


@pytest.mark.parametrize(("hours", "levels"), [(0, 0), (1, 1), (30, 18), (2_000, 2)])
def test_lateness_is_drawn_of_any_span(hours: int, levels: int, titles: list[str]) -> None:
    """Nothing, an hour, more levels than colours, months: never an error or a warning."""
    figures = {"messages": 4, "p50_ms": 1.0, "p90_ms": 2.0, "p99_ms": 3.0, "min_ms": -7}
    figures |= {"max_ms": 300, "late_share": 0.25, "early": 1}
    rows: list[dict[str, Any]] = [
        {"level": level, "hour_ms": NOON_MS + n * HOUR_MS} | figures
        for level in range(1, levels + 1)
        for n in range(hours)
    ]
    counts = [
        {"level": level, "hour_ms": NOON_MS, "late_ms": late_ms, "messages": 1}
        for level in range(1, levels + 1)
        for late_ms in (-7, 0, 1, 300)
    ]
    tables = {"levels": rows[::hours] if hours else [], "levels_and_hours": rows}
    assert plot.lateness_plot(SNAPSHOT, 100, tables, counts).startswith(b"\x89PNG")
    late = f"{levels} of {4 * levels} messages were more than 100 ms late; the latest by 300 ms"
    assert titles == [late if levels else "Nothing was delivered from the schedule"]


def test_a_forecast_says_when_most_comes_due(titles: list[str]) -> None:
    """An idle broker has a plot, too; a name with signs of a formula is drawn as text."""
    due = {"state": "due", "due_timestamp_ms": NOON_MS + HOUR_MS, "real_topic": "$x^{", "level": 1}
    later = {"state": "later", "due_timestamp_ms": None, "real_topic": "a", "level": 1}
    some = [later | {"messages": 3}]
    every: list[list[dict[str, Any]]] = [[], some, [due | {"messages": 2}, *some]]
    for rows in every:
        assert plot.forecast_plot("$y^{", rows, **SIZES).startswith(b"\x89PNG")
    assert titles[0] == "Nothing comes due in this time; 0 overdue, 0 later"
    assert titles[1] == "Nothing comes due in this time; 0 overdue, 3 later"
    assert titles[2].startswith("2 come due, most at ")
    assert titles[2].endswith("(2); 0 overdue, 3 later")


def test_retries_say_how_many_messages_they_saved(titles: list[str]) -> None:
    """And nothing is drawn of nothing."""
    row = {"attempt": 1, "succeeded": 2, "in_hand": 1, "failed": 3}
    group = {"messages": 6, "succeeded": 2, "dead": 1}
    nothing: dict[str, list[dict[str, Any]]] = {"funnel": [], "groups": []}
    for tables in (nothing, {"funnel": [row], "groups": [group]}):
        assert plot.retries_plot(SNAPSHOT, tables).startswith(b"\x89PNG")
    assert titles[1] == "Of 6 failed messages 2 succeeded in a retry, 1 died"
