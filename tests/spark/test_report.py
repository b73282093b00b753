"""Pages with plots: of nothing, of names that somebody else chose, of one hour and of many."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from rmqlite.spark.jobs.report import Page, forecast_report, lateness_report, retries_report

HOUR_MS = 3_600_000
NOON_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
SNAPSHOT = "/store: physical offsets 0 to 1"


def lateness_page(hours: int, levels: int) -> Page:
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
    return lateness_report(SNAPSHOT, 100, tables, counts)


@pytest.mark.parametrize(("hours", "levels"), [(0, 0), (1, 1), (30, 18), (2_000, 2)])
def test_lateness_is_drawn_of_any_span(hours: int, levels: int) -> None:
    """Nothing, an hour, more levels than colours, months: never an error or a warning."""
    page = lateness_page(hours, levels)
    assert SNAPSHOT in page.html
    assert ("The 8 levels with most messages" in page.html) == (levels > 8)


def test_a_page_needs_no_other_file() -> None:
    """Two pictures, one for a light page and one for a dark one; the first is the PNG."""
    page = lateness_page(3, 2)
    pictures = [base64.b64decode(text) for text in re.findall(r"base64,([^\"]+)", page.html)]
    assert [each[:4] for each in pictures] == [b"\x89PNG"] * 2
    assert page.png == pictures[1] != pictures[0]
    assert not re.search(r'(?:src|href|srcset)="(?!data:)', page.html)


def test_what_somebody_else_chose_is_text() -> None:
    """A topic, a group or a reason is no markup."""
    name = "<script>x</script>"
    rows = [
        {"state": "due", "due_timestamp_ms": NOON_MS, "real_topic": name, "level": 1, "messages": 2}
    ]
    sizes = {"now_ms": NOON_MS, "span_ms": HOUR_MS, "bucket_ms": 60_000}
    reasons = [{"consumer_group": "g", "reason": name, "failures": 1}]
    tables: dict[str, list[dict[str, Any]]] = {"groups": [], "funnel": [], "levels": []}
    for page in (
        forecast_report(name, rows, **sizes),
        retries_report(SNAPSHOT, tables | {"reasons": reasons}),
    ):
        assert "<script" not in page.html
        assert "&lt;script&gt;" in page.html


def test_a_forecast_of_nothing_is_a_page() -> None:
    """An idle broker has one, too; so has one whose messages all come later."""
    sizes = {"now_ms": NOON_MS, "span_ms": 6 * HOUR_MS, "bucket_ms": 60_000}
    later = {"state": "later", "due_timestamp_ms": None, "real_topic": "a", "level": 1}
    assert "Nothing." in forecast_report(SNAPSHOT, [], **sizes).html
    assert "later" in forecast_report(SNAPSHOT, [later | {"messages": 3}], **sizes).html
