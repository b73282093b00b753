"""A captured call: no copy of it counts, and every real call does."""

from __future__ import annotations

from random import Random

import pytest

from rmqlite.protocols.native.replays import (
    FORGET_MS,
    INSTANCES_MAX,
    KEY_INSTANCES_MAX,
    SKEW_MS_MAX,
    WINDOW,
    Replays,
)
from rmqlite.protocols.shared.signing import Signed
from tests.support.clock import FakeClock

NOW_MS = 1_700_000_000_000


class Under:
    """The class under test with a clock; each call has the date of that clock."""

    def __init__(self) -> None:
        self.replays = Replays()
        self.clock = FakeClock(NOW_MS)

    def check(
        self, counter: int = 1, *, key: str = "k", instance: int = 1, date_ms: int | None = None
    ) -> str | None:
        now_ms = self.clock.now_ms()
        date_ms = now_ms if date_ms is None else date_ms
        signed = Signed(key, date_ms, f"{instance:016x}", counter, b"")
        return self.replays.check(signed, now_ms)


@pytest.fixture
def under() -> Under:
    return Under()


def test_a_call_counts_once(under: Under) -> None:
    """Whoever sends it again has captured it."""
    assert under.check(7) is None
    assert under.check(7) == "a call counts once, and this one has come before"
    assert under.check(8) is None
    assert under.check(7) is not None


@pytest.mark.parametrize("side", [-1, 1])
def test_a_date_far_from_the_brokers_time_is_refused(under: Under, side: int) -> None:
    """An old call was perhaps forgotten; one of the future would have to be remembered long."""
    assert under.check(1, date_ms=NOW_MS + side * SKEW_MS_MAX) is None
    rule = under.check(2, date_ms=NOW_MS + side * (SKEW_MS_MAX + 1))
    assert rule is not None
    assert "60001 ms " + {-1: "behind", 1: "ahead of"}[side] in rule
    # The refused call has used up nothing.
    assert under.check(2) is None


def test_calls_may_overtake_each_other_within_the_window(under: Under) -> None:
    """A client has many calls under way, and threads do not wait for each other."""
    assert under.check(WINDOW) is None
    assert under.check(1) is None
    assert under.check(1) is not None
    assert under.check(0) == f"at most {WINDOW - 1} calls of its client overtake a call"
    assert under.check(WINDOW + 1) is None
    # 1 has left the window, 2 is the last one in it.
    assert under.check(1) is not None
    assert under.check(2) is None
    assert under.check(2) is not None


def test_calls_in_any_order_within_the_window_count_once_each(under: Under) -> None:
    """Compared with a plain set."""
    random = Random(1)
    seen: set[int] = set()
    newest = 0
    for _ in range(20_000):
        counter = max(0, newest + random.randint(-WINDOW + 1, 40))
        assert (under.check(counter) is None) == (counter not in seen)
        seen.add(counter)
        newest = max(newest, counter)


def test_a_counter_of_any_size_costs_no_memory(under: Under) -> None:
    """A bitmap that is shifted by such a number would fill it."""
    far = 10**18 - 1
    assert under.check(5) is None
    assert under.check(far) is None
    assert under.check(5) is not None
    assert under.check(far) is not None
    assert under.check(far - WINDOW + 1) is None


def test_clients_and_accounts_count_apart(under: Under) -> None:
    """Each client counts from 1."""
    assert under.check(1) is None
    assert under.check(1, instance=2) is None
    assert under.check(1, key="other") is None
    assert under.check(1, instance=2) is not None


def test_an_account_at_its_limit_does_not_hinder_another(under: Under) -> None:
    """One that makes a new client for each call would else shut out everybody."""
    for instance in range(KEY_INSTANCES_MAX):
        assert under.check(instance=instance) is None
    rule = under.check(instance=KEY_INSTANCES_MAX)
    assert rule is not None
    assert str(KEY_INSTANCES_MAX) in rule
    assert under.check(key="other") is None
    # The clients that are known go on, and silent ones make room.
    assert under.check(2, instance=0) is None
    under.clock.forward(FORGET_MS + 1)
    assert under.check(instance=KEY_INSTANCES_MAX) is None


def test_all_accounts_together_have_a_limit(under: Under) -> None:
    """The broker's memory is bounded, whatever many accounts do."""
    for instance in range(INSTANCES_MAX):
        assert under.check(key=f"k{instance // KEY_INSTANCES_MAX}", instance=instance) is None
    rule = under.check(key="other")
    assert rule is not None
    assert str(INSTANCES_MAX) in rule
    assert under.check(1, key="k0", instance=0) is not None, "nobody was forgotten early"
    under.clock.forward(FORGET_MS + 1)
    assert under.check(key="other") is None


def test_a_silent_client_is_forgotten_and_its_calls_are_too_old(under: Under) -> None:
    """Memory is for clients that call; the date alone refuses the calls of the others."""
    date_ms = NOW_MS + SKEW_MS_MAX
    assert under.check(1, date_ms=date_ms) is None
    under.clock.forward(FORGET_MS)
    assert under.check(1, date_ms=date_ms) is not None, "the last moment of its date"
    under.clock.forward(1)
    assert "behind" in (under.check(1, date_ms=date_ms) or "")
    # It may come back, with its own next counter.
    assert under.check(2) is None


def test_no_copy_counts_at_any_time(under: Under) -> None:
    """The promise itself: real calls of clients with any clock, and copies at any later time."""
    random = Random(2)
    made: list[tuple[int, int, int]] = []
    counters = [0] * 50
    for _ in range(5_000):
        under.clock.forward(random.choice((0, 1, 500, 5_000)))
        instance = random.randrange(50)
        counters[instance] += 1
        skew_ms = (instance - 25) * SKEW_MS_MAX // 25
        call = counters[instance], instance, under.clock.now_ms() + skew_ms
        assert under.check(call[0], instance=call[1], date_ms=call[2]) is None
        made.append(call)
        old = random.choice(made[-200:])
        assert under.check(old[0], instance=old[1], date_ms=old[2]) is not None


def test_a_clock_that_steps_back_locks_nobody_out() -> None:
    """Clients of the time before the step are forgotten at once, not when it is reached again."""
    replayed = Replays()
    for instance in range(KEY_INSTANCES_MAX):
        assert replayed.check(Signed("k", NOW_MS, f"{instance:016x}", 1, b""), NOW_MS) is None
    back_ms = NOW_MS - 3_600_000
    assert replayed.check(Signed("k", back_ms, "f" * 16, 1, b""), back_ms) is None
