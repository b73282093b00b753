"""Tokens, by a time that is moved by hand."""

from __future__ import annotations

from random import Random

import pytest

from rmqlite.features.rate_limits.requests import burst_of
from rmqlite.features.rate_limits.token_bucket import TokenBucket
from tests.support.rate_limits import HandTime, most_above


def bucket_of(per_second: float, burst: int) -> tuple[TokenBucket, HandTime]:
    time = HandTime()
    return TokenBucket(per_second, burst, time.read), time


def test_a_bucket_begins_empty() -> None:
    """A broker that is killed every second would else hand out a burst every second."""
    bucket, time = bucket_of(2, 10)
    assert bucket.take_tokens(5) == 0
    time.forward(0.5)
    assert bucket.take_tokens(5) == 1


def test_it_holds_no_more_than_the_burst() -> None:
    """An hour without messages earns no hour's messages at once."""
    bucket, time = bucket_of(100, 7)
    time.forward(3_600)
    assert (bucket.take_tokens(32), bucket.take_tokens(32)) == (7, 0)


def test_a_call_gets_as_many_tokens_as_there_are() -> None:
    """One that may have 32 waits for no more than the first."""
    bucket, time = bucket_of(10, 10)
    time.forward(0.35)
    assert bucket.take_tokens(32) == 3
    time.forward(0.05)
    assert bucket.take_tokens(32) == 1


def test_tokens_that_were_not_used_come_back() -> None:
    """A look that finds nothing costs nothing, and makes no more than a burst of tokens."""
    bucket, time = bucket_of(1, 5)
    time.forward(5)
    bucket.give_back(bucket.take_tokens(3))
    time.forward(100)
    bucket.give_back(3)
    assert bucket.take_tokens(32) == 5


def test_a_change_keeps_the_tokens_that_fit() -> None:
    """An operator who sets a limit again and again gives nobody a burst."""
    bucket, time = bucket_of(10, 10)
    time.forward(0.6)
    bucket.set_rate(1, 4)
    assert bucket.take_tokens(32) == 4
    time.forward(1)
    bucket.set_rate(100, 100)
    assert bucket.take_tokens(32) == 1
    time.forward(0.1)
    assert bucket.take_tokens(32) == 10


@pytest.mark.parametrize(
    ("per_second", "burst", "seconds"),
    [(0.5, 1, 2.0), (10, 10, 0.1), (10_000, 10_000, 0.005), (10_000, 20, 0.001), (1_000, 1, 0.001)],
)
def test_a_call_waits_for_what_is_worth_a_look(
    per_second: float, burst: int, seconds: float
) -> None:
    """One token at a slow rate; at a fast one those of 5 ms, and never a full bucket, which
    would lose what comes until the call has looked."""
    bucket, time = bucket_of(per_second, burst)
    assert bucket.seconds_left() == pytest.approx(seconds, rel=1e-3)
    time.forward(bucket.seconds_left())
    assert bucket.seconds_left() == 0
    assert bucket.take_tokens(32) >= 1


@pytest.mark.parametrize(("asked", "burst"), [((0.5, 0), 1), ((10.2, 0), 11), ((10, 3), 3)])
def test_the_usual_burst_is_the_messages_of_a_second(asked: tuple[float, int], burst: int) -> None:
    """A smaller one could not keep a limit that pulls of 32 use."""
    assert burst_of(*asked) == burst


@pytest.mark.parametrize("seed", range(20))
def test_no_time_sees_more_than_burst_and_rate(seed: int) -> None:
    """Whatever is taken, given back or changed to a lower burst, in any window of time; and who
    asks all the time gets the rate."""
    random = Random(seed)
    per_second = random.choice([0.3, 2, 17, 900.5])
    burst = random.choice([1, 3, 50])
    bucket, time = bucket_of(per_second, burst)
    began_s = time.now_s
    handed_out: list[tuple[float, int]] = []
    for _ in range(400):
        time.forward(random.choice([0, 0.001, 0.3 / per_second, 1 / per_second, 3 / per_second]))
        taken = bucket.take_tokens(random.choice([1, 2, 32]))
        used = random.choice([0, taken, taken, random.randint(0, taken)])
        bucket.give_back(taken - used)
        handed_out.append((time.now_s, used))
    assert most_above(handed_out, per_second) <= burst + 1e-3
    assert sum([used for _, used in handed_out]) <= per_second * (time.now_s - began_s) + 1e-3
