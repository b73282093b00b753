"""Retry policies: what a text means, by every table of levels, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import DEFAULT_LEVELS, LevelTable, parse_delay, parse_levels
from rmqlite.kernel.words.retry_policy import ROCKETMQS, STEPS_MAX, RetryPolicy
from tests.support.policies import EXPONENTIALS, LENGTHS, POLICIES, TABLES, parsed

DEFAULT = parse_levels(DEFAULT_LEVELS)
FAILED_BEFORE = st.one_of(st.integers(0, 20), st.integers(-(2**31), 2**31 - 1))


def waits_ms(policy: RetryPolicy, failed_before: int) -> int:
    """The length of a policy by lengths."""
    delay_ms = policy.delay_ms(failed_before)
    assert delay_ms is not None
    return delay_ms


def names(text: str, count: int, table: LevelTable = DEFAULT) -> str:
    """What the first retries wait, as the table spells it."""
    policy = RetryPolicy.parse(text)
    return " ".join([table.name(policy.level(n, table)) for n in range(count)])


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("", "10s 30s 1m 2m 3m 4m"),
        ("  ", "10s 30s 1m 2m 3m 4m"),
        ("3 5 7", "10s 1m 3m 3m 3m 3m"),
        ("18 1", "2h 1s 1s 1s 1s 1s"),
        ("3, 5,7", "10s 1m 3m 3m 3m 3m"),
        ("64", "2h 2h 2h 2h 2h 2h"),
        ("10s 1m 10m", "10s 1m 10m 10m 10m 10m"),
        ("90s", "2m 2m 2m 2m 2m 2m"),
        ("3d", "2h 2h 2h 2h 2h 2h"),
        ("1h 1s", "1h 1s 1s 1s 1s 1s"),
        ("exponential(10s, 2, 1h)", "10s 30s 1m 2m 3m 6m"),
        ("exponential(1s,10,20m)", "1s 10s 2m 20m 20m 20m"),
        (" exponential ( 1m , 1.5 , 5m ) ", "1m 2m 3m 4m 5m 5m"),
        ("exponential(1h, 2, 1h)", "1h 1h 1h 1h 1h 1h"),
    ],
)
def test_a_policy_says_at_which_levels_retries_wait(text: str, waits: str) -> None:
    """The last step repeats; a length between two levels takes the longer one."""
    assert names(text, 6) == waits


def test_rocketmqs_levels_end_at_the_last_one() -> None:
    """Three plus the failures so far, reference §7.1; sixteen retries reach two hours."""
    assert names("", 17).split() == [*DEFAULT_LEVELS.split()[2:], "2h"]
    assert ROCKETMQS.level(5, parse_levels("1s 5s")) == 2


def test_lengths_follow_the_table_and_numbers_do_not() -> None:
    """After a change of messageDelayLevel a minute is still a minute, level 5 is another one."""
    other = parse_levels("1m 2m 10s 1h 30s")
    assert names("1m 10m", 2, other) == "1m 1h"
    assert names("5 4", 2, other) == "30s 1h"
    assert names("exponential(10s, 6, 1h)", 4, other) == "10s 1m 1h 1h"


def test_equally_long_levels_take_the_first() -> None:
    """So that the same policy always means the same level."""
    assert RetryPolicy.parse("1m").level(0, parse_levels("2m 1m 60s")) == 2
    assert RetryPolicy.parse("1h").level(0, parse_levels("2m 1m 120s")) == 1


def test_a_slow_growth_still_reaches_its_longest() -> None:
    """However many steps that takes, and no power grows too large on the way."""
    policy = RetryPolicy.parse("exponential(1s, 1.0001, 3650d)")
    longest_ms = parse_delay("3650d")
    assert waits_ms(policy, 195_000) < longest_ms
    for failed_before in (196_000, 10**6, 2**31 - 1):
        assert policy.delay_ms(failed_before) == longest_ms
    assert RetryPolicy.parse("exponential(1s, 1000, 3650d)").delay_ms(2**31) == longest_ms


def test_a_growth_is_as_exact_as_it_is_written() -> None:
    """Ten per cent more than ten seconds are eleven, in whole milliseconds."""
    policy = RetryPolicy.parse("exponential(10s, 1.1, 1h)")
    assert [policy.delay_ms(n) for n in range(5)] == [10_000, 11_000, 12_100, 13_310, 14_641]


@given(EXPONENTIALS, FAILED_BEFORE)
def test_a_growth_never_shrinks_nor_leaves_its_ends(text: str, failed_before: int) -> None:
    """One more failure waits as long or longer."""
    policy = parsed(text)
    assert policy.growth
    waits = [waits_ms(policy, failed_before + n) for n in range(3)]
    ends = [policy.growth.first_ms, *waits, policy.growth.longest_ms]
    assert ends == sorted(ends)


@given(POLICIES, TABLES, FAILED_BEFORE)
def test_a_level_is_always_one_of_the_table(text: str, table: LevelTable, failed: int) -> None:
    """Level 0 would be delivered at once, one above the last has no queue."""
    assert 1 <= parsed(text).level(failed, table) <= table.max_level


@given(LENGTHS.map(parse_delay), TABLES)
def test_a_length_is_never_cut_short(delay_ms: int, table: LevelTable) -> None:
    """Unless it is longer than every level; and no shorter level would have done."""
    level_ms = table.delay_ms(table.level_from(delay_ms))
    enough = [ms for ms in table.delays_ms if ms >= delay_ms]
    assert level_ms == (min(enough) if enough else max(table.delays_ms))


@given(POLICIES)
def test_what_is_kept_means_the_same_again(text: str) -> None:
    """The text goes to disk and is read at the next start."""
    policy = parsed(text)
    assert RetryPolicy.parse(policy.text) == policy


@given(st.text(alphabet="0123456789smhdxe .,()\u0663\x1b\nponential", max_size=60))
def test_any_text_is_a_policy_or_refused(text: str) -> None:
    """No other exception leaves the parser."""
    for each in (text, f"exponential({text})", f"exponential({text}, {text}"):
        try:
            policy = RetryPolicy.parse(each)
        except InvalidValue:
            continue
        assert policy.level(0, DEFAULT)


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("0", "'0' is none"),
        ("3 65", "'65' is none"),
        ("9" * 900, "is none"),
        ("3 5m", "not both"),
        ("-3", "levels such as 3 5 7, lengths"),
        ("\u0663", "a whole number and a unit"),
        ("fast", "which are exact, or nothing"),
        ("3 fast", "levels such as 3 5 7, lengths"),
        ("0s", "'0s' must be more than zero"),
        ("1.5h", "'1.5h' must be a whole number and a unit"),
        ("10S", "lower case"),
        ("4000d", "at most 3650d"),
        (" ".join(["1s"] * (STEPS_MAX + 1)), "at most 64 steps"),
        (" ".join(["3"] * (STEPS_MAX + 1)), "at most 64 steps"),
        ("3 " * 501, "at most 1000 characters"),
        ("exponential", "exponential(first, factor, longest)"),
        ("exponential()", "exponential(first, factor, longest)"),
        ("exponential(10s, 2)", "exponential(first, factor, longest)"),
        ("exponential(10s, 2, 1h, 1d)", "exponential(first, factor, longest)"),
        ("exponential(10s, 2, 1h) 3", "exponential(first, factor, longest)"),
        ("Exponential(10s, 2, 1h)", "levels such as 3 5 7, lengths"),
        ("exponential(10s, 1, 1h)", "the factor is above 1"),
        ("exponential(10s, 0.5, 1h)", "the factor is above 1"),
        ("exponential(10s, 1001, 1h)", "at most 1000"),
        ("exponential(10s, 1e2, 1h)", "the factor is above 1"),
        ("exponential(10s, nan, 1h)", "the factor is above 1"),
        ("exponential(10s, \u0662, 1h)", "the factor is above 1"),
        ("exponential(10s, 2, 1s)", "not below the first"),
        ("exponential(10, 2, 1h)", "'10' must be a whole number and a unit"),
    ],
)
def test_what_is_no_policy_is_refused_with_the_rule(text: str, because: str) -> None:
    """Field, value and rule, so that the next try is right."""
    with pytest.raises(InvalidValue) as raised:
        RetryPolicy.parse(text)
    assert raised.value.field == "retry_policy"
    assert because in raised.value.rule
