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


def test_a_forecast_from_a_time_on_says_what_comes_sooner(titles: list[str]) -> None:
    """The axis begins at that time."""
    sooner = {"state": "sooner", "due_timestamp_ms": None, "real_topic": "a", "messages": 3}
    drawn = plot.forecast_plot(SNAPSHOT, [sooner], **SIZES, from_ms=NOON_MS + HOUR_MS)
    assert drawn.startswith(b"\x89PNG")
    assert titles == ["Nothing comes due in this time; 0 overdue, 3 sooner, 0 later"]


@pytest.mark.parametrize("count", [0, 1, 30])
def test_bars_are_drawn_of_any_number_of_rows(count: int, titles: list[str]) -> None:
    """Nothing, one, more than there is room for; names with signs of a formula."""
    group = {"consumer_group": "$x^{" * 20, "origin_topic": None, "redriven_by": "night"}
    states = {"consumed": 2, "waiting": 0, "dead": 1, "cancelled": 0, "elsewhere": 0}
    costs = {"attempts": 3, "record_bytes": 1 << 20}
    rows = [group | states | costs | {"sent": 3, "redriven_by": f"${n}^{{"} for n in range(count)]
    assert plot.redrives_plot(SNAPSHOT, rows).startswith(b"\x89PNG")
    assert plot.costs_plot(SNAPSHOT, rows).startswith(b"\x89PNG")
    assert titles == [
        f"Of {3 * count} redriven messages {2 * count} are consumed, {count} are dead again",
        f"Failures cost {3 * count} further attempts and {count}.0 MiB of the log",
    ]


@pytest.mark.parametrize(("days", "topics"), [(0, 0), (1, 1), (28, 12)])
def test_service_levels_are_drawn_of_any_time(days: int, topics: int, titles: list[str]) -> None:
    """A day without a decided message has no share."""
    rows = [
        {"real_topic": f"$t{n}^{{", "day": f"2026-11-{day:02}", "is_met": n > 0}
        | {"in_time_share": None if day == 2 else 0.9 + n / 1_000}
        for day in range(1, days + 1)
        for n in range(topics)
    ]
    assert plot.slo_plot(SNAPSHOT, rows, within_ms=1_000, in_time=0.999).startswith(b"\x89PNG")
    missed = f"{days} of {days * topics} topics and days missed the target"
    assert titles == [missed if days else "Nothing was due"]


def test_retries_say_how_many_messages_they_saved(titles: list[str]) -> None:
    """And nothing is drawn of nothing."""
    row = {"attempt": 1, "succeeded": 2, "in_hand": 1, "failed": 3}
    group = {"messages": 6, "succeeded": 2, "dead": 1}
    nothing: dict[str, list[dict[str, Any]]] = {"funnel": [], "groups": []}
    for tables in (nothing, {"funnel": [row], "groups": [group]}):
        assert plot.retries_plot(SNAPSHOT, tables).startswith(b"\x89PNG")
    assert titles[1] == "Of 6 failed messages 2 succeeded in a retry, 1 died"
