"""The clock never goes back, and starts no earlier than the log it serves."""

from __future__ import annotations

import re
import time

import pytest

from rmqlite import clock


def test_the_clock_begins_at_the_wall_clocks_time() -> None:
    """Records carry times that other machines compare with theirs."""
    before_ms = clock.wall_ms()
    now_ms = clock.SystemClock().now_ms()
    after_ms = clock.wall_ms()
    assert before_ms - 50 <= now_ms <= after_ms + 50


def test_the_clock_never_goes_back() -> None:
    """A queue of one level is in due order because store timestamps are."""
    system = clock.SystemClock()
    seen = [system.now_ms() for _ in range(10_000)]
    assert seen == sorted(seen)


def test_the_clock_is_never_before_the_newest_record() -> None:
    """After the wall clock stepped back, a restart goes on where the log ended."""
    system = clock.SystemClock()
    future_ms = system.now_ms() + 3_600_000
    system.not_before(future_ms)
    assert future_ms <= system.now_ms() < future_ms + 60_000


def test_an_older_record_does_not_turn_the_clock_back() -> None:
    """not_before is a lower bound, not a setting."""
    system = clock.SystemClock()
    before_ms = system.now_ms()
    system.not_before(before_ms - 3_600_000)
    system.not_before(0)
    assert system.now_ms() >= before_ms


def test_a_duration_is_never_negative() -> None:
    """It is measured by a clock that nobody sets."""
    started_s = clock.elapsed_s()
    assert clock.elapsed_s() >= started_s


def test_a_pause_lasts() -> None:
    """The command line's only way to wait."""
    started_s = clock.elapsed_s()
    clock.pause_s(0.002)
    assert clock.elapsed_s() - started_s >= 0.002


def test_a_time_for_people_has_milliseconds() -> None:
    """Lateness is a matter of milliseconds."""
    text = clock.local_text(1_700_000_000_007)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.007", text)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
def test_what_people_read_they_can_write(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the millisecond, in whatever zone they live; and shorter, if they like."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for at_ms in (0, 1_700_000_000_007, 1_793_000_123_250, 1_720_000_000_900):
            text = clock.local_text(at_ms)
            assert clock.local_ms(text) == at_ms
            assert clock.local_ms(text.replace(" ", "T")) == at_ms
            assert clock.local_ms(text[:-4]) == at_ms // 1000 * 1000
            minute_ms = clock.local_ms(text[:16])
            assert minute_ms is not None
            assert clock.local_text(minute_ms) == text[:16] + ":00.000"
            assert clock.local_text(clock.local_ms(text[:10]) or 0).endswith("00:00:00.000")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "10:00", "2026-13-01", "2026-11-20 25:00", "20.11.2026"),
        *("2026-11-20 10:00.5", "2026-11-20 10:00:00.", "2026-11-20 10:00:00.1234"),
        *("2026-11-20 10:00:00.x", "2026-11-20 10:00:00.²"),
    ],
)
def test_what_is_no_time_is_none(text: str) -> None:
    """Who asked for it says which option it was."""
    assert clock.local_ms(text) is None


def test_a_months_start_is_the_same_for_the_whole_month() -> None:
    """RocketMQ's unique ids count from there (reference §5.1)."""
    middle_ms = 1_700_000_000_000  # 14 November 2023, in every time zone
    start_ms = clock.month_start_ms(middle_ms)
    assert clock.local_text(start_ms).endswith("-01 00:00:00.000")
    assert clock.month_start_ms(start_ms) == start_ms
    assert clock.month_start_ms(middle_ms + 86_400_000) == start_ms
    assert clock.month_start_ms(start_ms - 1) < start_ms
