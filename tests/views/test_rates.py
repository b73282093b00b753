"""Rates from counters: per second of the broker's time, and never negative."""

from __future__ import annotations

from rmqlite.views.broker import HISTORY_MAX, RateRows
from tests.support.broker_answers import NOW_MS, status


def test_a_rate_is_what_came_in_the_brokers_own_time() -> None:
    """An answer that was late makes no rate."""
    rates = RateRows()
    rates.take(status(sent=1_000))
    assert rates.now("sent") is None
    rates.take(status(2_000, sent=1_500))
    assert (rates.now("sent"), rates.over_ms) == (250.0, 2_000)
    assert rates.now("dead") == 0.0


def test_a_restart_makes_no_negative_rate() -> None:
    """Its counters begin at 0; what it did in between is not known."""
    rates = RateRows()
    rates.take(status(sent=1_000))
    rates.take(status(1_000, sent=1_100))
    rates.take(status(2_000, sent=5, started_at_ms=NOW_MS + 1_500))
    assert rates.now("sent") is None
    rates.take(status(3_000, sent=15, started_at_ms=NOW_MS + 1_500))
    assert list(rates.history["sent"]) == [100.0, None, 10.0]


def test_a_status_that_comes_too_soon_makes_no_rate_of_its_own() -> None:
    """No division by nothing, no flood of two messages in a millisecond, and none is lost."""
    rates = RateRows()
    rates.take(status(sent=1_000))
    rates.take(status(0, sent=1_001))
    rates.take(status(1, sent=1_002))
    rates.take(status(1_000, sent=1_002))
    assert list(rates.history["sent"]) == [2.0]


def test_what_died_in_the_last_minute_is_forgotten_after_it() -> None:
    """Yesterday's dead letters are no alarm."""
    rates = RateRows()
    rates.take(status(dead=1))
    rates.take(status(1_000, dead=4))
    rates.take(status(60_000, dead=6))
    assert rates.dead_lately == 5
    rates.take(status(61_000, dead=6))
    assert rates.dead_lately == 2


def test_the_history_has_an_end() -> None:
    """Somebody leaves it running for a year."""
    rates = RateRows()
    for second in range(HISTORY_MAX + 50):
        rates.take(status(second * 1_000))
    assert len(rates.history["sent"]) == HISTORY_MAX
