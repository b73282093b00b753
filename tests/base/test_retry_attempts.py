"""The ladder of a retry policy says what a broker would do, attempt by attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel.words.levels import DEFAULT_LEVELS, LevelTable, parse_levels
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.views.levels import ONE_BY_ONE_MAX, Attempt, attempts_of
from tests.support.policies import POLICIES, TABLES, parsed

DEFAULT = parse_levels(DEFAULT_LEVELS)


def of(text: str, retries: int) -> tuple[Attempt, ...]:
    return attempts_of(RetryPolicy.parse(text), DEFAULT, retries)


def test_rocketmqs_own_ladder_lasts_4_h_45_m_40_s() -> None:
    """Sixteen retries, 17140 s (reference §7.1)."""
    rungs = of("", 16)
    assert [rung.level for rung in rungs] == list(range(3, 19))
    assert (rungs[0].first_attempt, rungs[-1].last_attempt) == (2, 17)
    assert rungs[-1].since_first_failure_ms == 17_140_000


def test_a_rung_tells_what_was_asked_for_and_what_that_becomes() -> None:
    """Forty seconds wait a minute: there is no level between half a minute and one."""
    rungs = of("exponential(10s, 2, 1h)", 3)
    assert rungs[2] == Attempt(4, 4, 5, 60_000, 40_000, 100_000)


def test_attempts_that_wait_alike_share_a_rung() -> None:
    """A group may retry a million times; nobody wants to read that."""
    assert of("10s", 1_000_000) == (Attempt(2, 1_000_001, 3, 10_000, 10_000, 10_000_000_000),)
    assert [r.first_attempt for r in of("3 3 5", 9)] == [2, 4]
    assert of("5", 0) == of("", 0) == ()


@pytest.mark.parametrize("retries", [100, 2**31 - 1])
def test_a_slow_growth_has_few_rungs(retries: int) -> None:
    """One for each of the first attempts, then one for each level."""
    rungs = of("exponential(1s, 1.001, 1h)", retries)
    assert len(rungs) <= ONE_BY_ONE_MAX + DEFAULT.max_level + 1
    assert rungs[-1].last_attempt == retries + 1
    assert rungs[-1].asked_ms is None


@given(POLICIES, TABLES, st.integers(0, 100))
def test_a_ladder_is_what_the_policy_says_failure_by_failure(
    text: str, table: LevelTable, retries: int
) -> None:
    """Every attempt is on exactly one rung, at its level and time."""
    policy = parsed(text)
    rungs = attempts_of(policy, table, retries)
    attempts = [
        (n, rung) for rung in rungs for n in range(rung.first_attempt, rung.last_attempt + 1)
    ]
    assert [n for n, _ in attempts] == list(range(2, retries + 2))
    since_ms = 0
    for number, rung in attempts:
        assert rung.level == policy.level(number - 2, table)
        assert rung.asked_ms in (None, policy.delay_ms(number - 2))
        since_ms += table.delay_ms(rung.level)
        assert number < rung.last_attempt or rung.since_first_failure_ms == since_ms
