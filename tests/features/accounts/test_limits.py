"""AccountLimits of accounts and connections: a second's worth at once, then at their rate."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.accounts.gate.limits import (
    KEEPING_FACTOR,
    LIMITS,
    PROTOCOLS,
    AccountLimits,
    Buckets,
    limits_of,
)
from rmqlite.kernel.config.config import KEYS, BrokerConfig
from rmqlite.kernel.service.access import CountedRequest
from rmqlite.kernel.words.errors import Overloaded
from tests.support.clock import SetTime

ONE = CountedRequest(1, 0)


@pytest.fixture
def now() -> SetTime:
    return SetTime()


def limits(now: SetTime, **settings: Any) -> AccountLimits:
    return AccountLimits(BrokerConfig().model_copy(update=settings), now)


def test_a_bucket_gives_a_second_of_requests_at_once_and_then_fills_up() -> None:
    """It never holds more, however long nobody asks."""
    buckets = Buckets(4, 4, 10)
    assert [buckets.take("a", 1, 0) for _ in range(5)] == [True] * 4 + [False]
    assert buckets.take("b", 1, 0)
    assert [buckets.take("a", 1, 0.25), buckets.take("a", 1, 0.25)] == [True, False]
    assert [buckets.take("a", 1, 1_000) for _ in range(5)] == [True] * 4 + [False]


def test_more_than_a_full_bucket_passes_once_and_is_made_up_for() -> None:
    """Otherwise a message longer than the limit could never be sent."""
    buckets = Buckets(100, 100, 10)
    assert buckets.take("a", 1_000, 0)
    assert not buckets.take("a", 1, 9)
    assert buckets.left("a", 9) == 0
    assert buckets.take("a", 1, 9.25)
    assert not buckets.take("a", 1_000, 9.5)


def test_the_names_of_buckets_are_limited() -> None:
    """The one that was used least recently is forgotten."""
    buckets = Buckets(1, 1, 3)
    for name in "abcabd":
        buckets.take(name, 1, 0)
    assert len(buckets) == 3
    assert [buckets.left(name, 0) for name in "abcd"] == [0, 0, 1, 0]


@pytest.mark.parametrize("name", LIMITS)
def test_only_a_limit_that_is_set_makes_work(name: str) -> None:
    """Without one there is no object that would be asked."""
    assert limits_of(BrokerConfig()) is None
    assert limits_of(BrokerConfig().model_copy(update={name: 1})) is not None


def test_requests_and_bytes_of_an_account_are_counted_together(now: SetTime) -> None:
    """On whatever connection; the error names the key and its value."""
    limited = limits(now, account_requests_per_s_max=2, account_bytes_per_s_max=100)
    limited.of_account("a", CountedRequest(1, 60))
    with pytest.raises(Overloaded, match="at its limit maxAccountBytesPerSecond=100"):
        limited.of_account("a", CountedRequest(1, 60))
    with pytest.raises(Overloaded, match="at its limit maxAccountRequestsPerSecond=2"):
        limited.of_account("a", ONE)
    limited.of_account("b", CountedRequest(1, 60))
    for _ in range(10):
        limited.of_account("", CountedRequest(1, 60))
        limited.of_connection("10.0.0.1:7", CountedRequest(1, 60))
    now.s += 1
    limited.of_account("a", CountedRequest(1, 60))


def test_a_connection_has_limits_of_its_own(now: SetTime) -> None:
    """Also where there are no accounts."""
    limited = limits(now, connection_requests_per_s_max=1, connection_bytes_per_s_max=100)
    limited.of_connection("10.0.0.1:7", CountedRequest(1, 60))
    with pytest.raises(Overloaded) as refused:
        limited.of_connection("10.0.0.1:7", CountedRequest(0, 60))
    assert refused.value.field == KEYS["connection_bytes_per_s_max"]
    limited.of_connection("10.0.0.1:8", ONE)


def test_what_keeps_a_consumer_in_its_group_is_counted_apart(now: SetTime) -> None:
    """Pulls that are too many do not cost its place; and it, too, has an end."""
    limited = limits(now, account_requests_per_s_max=2)
    for _ in range(2):
        limited.of_account("a", ONE)
    for _ in range(2 * KEEPING_FACTOR):
        limited.of_account("a", CountedRequest(1, 0, keeps_member=True))
    for request in (ONE, CountedRequest(1, 0, keeps_member=True)):
        with pytest.raises(Overloaded):
            limited.of_account("a", request)


def test_a_connection_belongs_to_the_account_of_its_last_request(now: SetTime) -> None:
    """One that changes its account, or ends, makes room."""
    limited = limits(now, account_connections_max=2)
    for connection in (1, 2, 1, 2):
        limited.own(connection, "a")
    with pytest.raises(Overloaded, match="maxAccountConnections=2"):
        limited.own(3, "a")
    limited.own(3, "b")
    limited.own(4, "")
    limited.own(2, "b")
    limited.own(3, "a")
    limited.ended(1)
    limited.ended(1)
    limited.own(1, "a")
    for connection in (1, 2, 3, 4):
        limited.ended(connection)
    assert not limited._owners
    assert not limited._connections._counts


def test_a_pull_beyond_the_limit_does_not_wait(now: SetTime) -> None:
    """Who has no account has no limit but that of all."""
    limited = limits(now, account_parked_polls_max=1)
    with (
        limited.parked("a"),
        limited.parked("b"),
        limited.parked(""),
        limited.parked(""),
        pytest.raises(Overloaded, match="maxAccountParkedPolls=1"),
        limited.parked("a"),
    ):
        raise AssertionError
    with limited.parked("a"):
        pass
    assert limited._parked._counts == {}


def test_callers_are_forgotten_beyond_the_most_connections(now: SetTime) -> None:
    """Of both protocols: so many can call at the same time."""
    limited = limits(now, connection_requests_per_s_max=1, connections_max=10)
    for port in range(1_000):
        limited.of_connection(f"10.0.0.1:{port}", ONE)
    rate, _ = limited._of_connection
    assert len(rate._buckets) == PROTOCOLS * 10
