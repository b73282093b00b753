"""Level strings as RocketMQ reads them, and the history that keeps promises after an edit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel.config.table_shapes import LevelsTable, validated
from rmqlite.kernel.words.errors import DelayUnknown, InvalidValue
from rmqlite.kernel.words.json_tree import WrongValue
from rmqlite.kernel.words.levels import (
    DEFAULT_LEVELS,
    DELAY_MS_MAX,
    LEVELS_MAX,
    LevelHistory,
    parse_delay,
    parse_levels,
)

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def test_the_default_table_is_rocketmqs() -> None:
    """Reference B.1: eighteen levels, one second to two hours."""
    table = parse_levels(DEFAULT_LEVELS)
    minutes = [minute * MINUTE for minute in range(1, 11)]
    seconds = [1 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND]
    assert list(table.delays_ms) == [
        *seconds,
        *minutes,
        20 * MINUTE,
        30 * MINUTE,
        1 * HOUR,
        2 * HOUR,
    ]
    assert table.max_level == 18


@pytest.mark.parametrize(
    ("text", "delays_ms"),
    [
        ("1s", [SECOND]),
        ("1s 5s ", [SECOND, 5 * SECOND]),
        ("1s 5s  ", [SECOND, 5 * SECOND]),
        ("2d 1h 1s", [2 * DAY, HOUR, SECOND]),
        ("5s 5s", [5 * SECOND, 5 * SECOND]),
        ("007s", [7 * SECOND]),
        ("0" * 5_000 + "1s", [SECOND]),
        ("3650d", [DELAY_MS_MAX]),
    ],
)
def test_what_rocketmq_reads_is_read_the_same(text: str, delays_ms: list[int]) -> None:
    """Java's split drops blanks at the end; order and repetition are the operator's choice."""
    assert list(parse_levels(text).delays_ms) == delays_ms


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("1s  5s", "one blank too many after '1s'"),
        (" 1s", "one blank too many at the start"),
        ("", "no levels"),
        (" ", "no levels"),
        ("1S", "lower case"),
        ("5", "a unit"),
        ("s", "a whole number"),
        ("1ms", "a whole number"),
        ("1.5s", "a whole number"),
        ("1s,5s", "a whole number"),
        ("1s\t5s", "a whole number"),
        ("1s\n", "a whole number"),
        ("1w", "a unit"),
        ("0s", "more than zero"),
        ("1s 0m", "level 2 is '0m'"),
        ("-5s", "a whole number"),
        ("+5s", "a whole number"),
        ("\uff11s", "a whole number"),
        ("\u0663s", "a whole number"),
        ("106751991168d", "at most 3650d"),
        ("9223372036854775807d", "at most 3650d"),
        ("9" * 5_000 + "s", "at most 3650d"),
        ("3651d", "at most 3650d"),
        (" ".join(["1s"] * (LEVELS_MAX + 1)), "at most 64 levels"),
    ],
)
def test_what_makes_rocketmq_stop_wrap_or_deliver_at_once_is_refused(
    text: str, because: str
) -> None:
    """Reference §6.7: RocketMQ exits with -3 on some of these and accepts the others wrongly."""
    with pytest.raises(InvalidValue) as raised:
        parse_levels(text)
    assert raised.value.field == "messageDelayLevel"
    assert because in raised.value.rule


def test_a_refusal_names_the_level() -> None:
    """The operator sees which of eighteen tokens is wrong."""
    with pytest.raises(InvalidValue, match="level 3 is '10x'"):
        parse_levels("1s 5s 10x 30s")


@given(st.text(alphabet="0123456789smhdSMHD -+.,\t\u0661\uff11"))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No other exception leaves the parser, and what it reads it reads again the same."""
    try:
        table = parse_levels(text)
    except InvalidValue:
        return
    assert parse_levels(table.text) == table
    assert all(0 < delay_ms <= DELAY_MS_MAX for delay_ms in table.delays_ms)


def test_a_level_above_the_last_one_means_the_last_one() -> None:
    """Reference §6.2: clamped when put, not refused."""
    table = parse_levels("1s 5s 10s")
    assert [table.clamp(level) for level in (0, 1, 3, 4, 2**31 - 1)] == [0, 1, 3, 3, 3]
    assert table.delay_ms(99) == 10 * SECOND
    assert table.name(99) == "10s"
    assert table.name(1) == "1s"


def test_a_delay_is_the_level_that_is_exactly_that_long() -> None:
    """A minute is a minute, however it is spelled; the first of two equal levels is taken."""
    table = parse_levels("1s 1m 60s")
    assert table.level_lasting("60s") == 2
    assert table.level_lasting("1m") == 2


def test_a_delay_that_no_level_lasts_is_refused_with_the_levels() -> None:
    """Rounding to another delay would be a surprise; the sender is told what there is."""
    with pytest.raises(DelayUnknown, match="1s 5s") as raised:
        parse_levels("1s 5s").level_lasting("4s")
    assert raised.value.value == "4s"
    with pytest.raises(InvalidValue):
        parse_levels("1s 5s").level_lasting("soon")


def test_parse_delay_gives_milliseconds() -> None:
    """The one unit of every duration in the project."""
    assert [parse_delay(text) for text in ("1s", "1m", "1h", "1d")] == [SECOND, MINUTE, HOUR, DAY]


def test_a_queued_message_keeps_its_deliver_time_after_an_edit() -> None:
    """Promise P5: its delay is the one its level had when it was stored."""
    history = LevelHistory.starting_with(parse_levels("1s 10m")).changed_to(
        parse_levels("1s 5s"), 1_000_000
    )
    assert history.delay_ms(2, 999_999) == 10 * MINUTE
    assert history.delay_ms(2, 1_000_000) == 5 * SECOND


def test_a_message_of_a_level_that_was_removed_keeps_its_deliver_time() -> None:
    """A shorter table does not strand what older levels hold."""
    history = LevelHistory.starting_with(parse_levels("1s 5s 2h")).changed_to(
        parse_levels("1s"), 5_000
    )
    assert history.delay_ms(3, 4_999) == 2 * HOUR
    assert history.current.max_level == 1


def test_the_first_table_holds_for_everything_older() -> None:
    """A store that another broker began has records older than its first table."""
    first, second = parse_levels("1s"), parse_levels("2s")
    history = LevelHistory(((5_000, first), (9_000, second)), second)
    assert history.delay_ms(1, 100) == SECOND


def test_the_same_delays_are_no_edit() -> None:
    """60s for 1m changes nothing, so the history does not grow at every start."""
    history = LevelHistory.starting_with(parse_levels("1m 1s"))
    assert history.changed_to(parse_levels("60s 1s"), 7) is history


def read_back(history: LevelHistory) -> LevelHistory:
    return validated(LevelsTable, json.loads(json.dumps(history.to_json()))).history()


def test_a_history_is_read_back_as_it_was_written() -> None:
    """config/delayLevels.json is all that a restart knows of older tables."""
    history = LevelHistory.starting_with(parse_levels(DEFAULT_LEVELS))
    for at_ms, text in [(1_000, "1s 5s"), (2_000, "10m"), (2_000, "2d 1s")]:
        history = history.changed_to(parse_levels(text), at_ms)
    assert read_back(history) == history


def test_an_edit_before_the_newest_table_still_comes_last() -> None:
    """Else the list, sorted when it is read back, would end with the table before the edit."""
    history = LevelHistory.starting_with(parse_levels("1s")).changed_to(parse_levels("2s"), 9_000)
    edited = history.changed_to(parse_levels("3s"), 8_000)
    assert edited.in_force_from_ms == 9_000
    assert read_back(edited).current == parse_levels("3s")


@pytest.mark.parametrize(
    "tree",
    [
        {"tables": []},
        {"tables": [{"inForceFrom": 0, "messageDelayLevel": "1S"}]},
        {"tables": [{"inForceFrom": 0}]},
        {},
        {"tables": [7]},
    ],
)
def test_a_history_of_another_shape_is_refused(tree: dict[str, object]) -> None:
    """It is never read as an empty history: deliver times would change silently."""
    with pytest.raises(WrongValue):
        validated(LevelsTable, tree)
