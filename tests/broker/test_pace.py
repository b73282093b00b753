"""A limit on deliveries in a second, by itself: it holds, and nearly all of it is used."""

from __future__ import annotations

from random import Random

import pytest

from rmqlite.kernel.schedule.schedule import Pace
from tests.support.deliveries import most_in_a_second
from tests.support.thinned import Thinned


@pytest.mark.parametrize("is_steady", [True, False])
def test_a_pace_holds_in_every_second_and_reaches_nearly_the_rate(
    is_steady: bool, thinned: Thinned
) -> None:
    """Every rate, with as much to do as one likes, and at odd moments."""
    for rate in thinned(range(1, 400), 3):
        random = Random(rate)
        pace, now_ms, done = Pace(rate), 0, []
        while now_ms < 10_000:
            free = pace.free(now_ms, 1 << 30)
            if free:
                count = free if is_steady else random.randint(1, free)
                pace.take(now_ms, count)
                done.append((now_ms, count))
            elif is_steady:
                assert pace.free_at_ms(now_ms) > now_ms
                now_ms = pace.free_at_ms(now_ms)
            if not is_steady:
                now_ms += random.choice((0, 1, 3, 40, 300))
        assert most_in_a_second(done) <= rate, rate
        if is_steady:
            assert sum(count for _, count in done) >= 10 * rate * 0.94, rate


@pytest.mark.one_of(3)
@pytest.mark.parametrize("rate", [40, 1_000, 5_000, 50_000])
@pytest.mark.parametrize("late_ms", [0, 1, 4])
def test_who_comes_a_little_late_reaches_the_rate_all_the_same(rate: int, late_ms: int) -> None:
    """A loop wakes a millisecond late, and an append takes some more."""
    pace, now_ms, done = Pace(rate), 0, []
    while now_ms < 10_000:
        count = pace.free(now_ms, 200)
        if not count:
            now_ms = pace.free_at_ms(now_ms) + late_ms
            continue
        pace.take(now_ms, count)
        done.append((now_ms, count))
    assert most_in_a_second(done) <= rate
    assert sum(count for _, count in done) >= 10 * rate * 0.98
