"""What monitoring reads: counts up to each bound, exact, and as cheap for a million as for one."""

from __future__ import annotations

import pytest

from rmqlite.kernel.counts import BOUNDS_S, Durations
from rmqlite.kernel.waits.wait_queue import BOUNDS_MS, LATENESS_MS_MAX, Lateness


def test_a_duration_counts_up_to_every_bound_that_it_does_not_exceed() -> None:
    """Prometheus' "le": a duration that is exactly a bound is within it."""
    durations = Durations()
    for seconds in (0.0, 0.001, 0.001_1, 60.0):
        durations.add(seconds)
    histogram = durations.histogram()
    up_to = dict(histogram.up_to)
    assert up_to[BOUNDS_S[0]] == 1
    assert up_to[0.001] == 2
    assert up_to[0.002_5] == 3
    assert up_to[BOUNDS_S[-1]] == 3
    assert histogram.total == 4
    assert histogram.sum_s == pytest.approx(60.002_1)


def test_nothing_was_measured_yet() -> None:
    """Every series is there from the start, so that a first event is seen as an increase."""
    for nothing in (Durations().histogram(), Lateness().histogram()):
        assert {count for _, count in nothing.up_to} == {0}
        assert (nothing.total, nothing.sum_s) == (0, 0)


@pytest.mark.parametrize(
    "late_ms",
    [0, 1, 2, 3, 1_000, 1_001, 4_999, 5_000, 5_001, 30_000, 30_001, LATENESS_MS_MAX, 86_400_000],
)
def test_lateness_is_counted_up_to_every_bound_that_it_does_not_exceed(late_ms: int) -> None:
    """Also one that the tally does not keep exactly: its sum does."""
    lateness = Lateness()
    lateness.add(late_ms, 7)
    histogram = lateness.histogram()
    assert histogram.up_to == tuple(
        (bound_ms / 1000, 7 if late_ms <= bound_ms else 0) for bound_ms in BOUNDS_MS
    )
    assert histogram.total == lateness.count == 7
    assert histogram.sum_s == late_ms * 7 / 1000


def test_lateness_is_told_to_three_digits() -> None:
    """By the millisecond up to a second; above never as less than it was."""
    for late_ms, told_ms in (
        *((0, 0), (999, 999), (1_000, 1_000), (1_001, 1_010), (9_999, 10_000)),
        *((10_001, 10_100), (59_999, LATENESS_MS_MAX), (3_600_000, LATENESS_MS_MAX)),
    ):
        lateness = Lateness()
        lateness.add(late_ms, 99)
        # No quantile is above the latest, whatever it is rounded to.
        assert lateness.quantile_ms(0.99) == min(late_ms, told_ms)
        lateness.add(4_000_000)
        assert lateness.quantile_ms(0.99) == told_ms
        assert lateness.max_ms == 4_000_000


def test_the_tally_keeps_every_bound_of_the_histogram_apart() -> None:
    """A bound at the tally's limit would count what was hours late as within it."""
    assert list(BOUNDS_MS) == sorted(set(BOUNDS_MS))
    assert BOUNDS_MS[-1] < LATENESS_MS_MAX
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))
