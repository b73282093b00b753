"""The rules of what is wrong, which every surface shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.requests.broker import BrokerStatus, LevelStatus
from rmqlite.kernel.words.names import SCHEDULE_GROUP
from rmqlite.views.broker import JOINING_MS, troubles
from rmqlite.views.groups import GroupFigures
from rmqlite.views.levels import LATE_MS
from rmqlite.views.numbers import counts_text
from rmqlite.views.tables import Subject

NOW_MS = 1_700_000_100_000
STATUS = BrokerStatus(
    *("0.6.0", "broker-a", NOW_MS, NOW_MS - 100_000, 0, 4_096, 1_000, 900, 17, 0, 3),
    levels=(LevelStatus(1, "1s", 5, NOW_MS + 500, 0, 0, 0, 0),),
)


def test_a_trouble_names_where_to_look_the_worst_first() -> None:
    """A page makes links of the names."""
    groups = [GroupFigures("a", dead=1), GroupFigures("b", dead=3_527), GroupFigures("c", dead=0)]
    (found,) = troubles(STATUS, groups, ())
    assert found.text == "3,528 open dead letters in 2 groups, most in b"
    assert (found.about, found.names) == (Subject.DEAD_LETTERS, ("b", "a"))


@pytest.mark.parametrize(("up_ms", "count"), [(JOINING_MS - 1, 0), (JOINING_MS, 1)])
def test_a_group_has_time_to_come_back_after_a_restart(up_ms: int, count: int) -> None:
    """Members that have not sent a heartbeat yet are no members, and no trouble."""
    status = replace(STATUS, started_at_ms=NOW_MS - up_ms)
    found = troubles(status, [GroupFigures("a", lag=5, members=0)], ())
    assert [each.text for each in found] == ["nobody reads for a"] * count


@pytest.mark.parametrize(("late_ms", "count"), [(LATE_MS - 1, 0), (LATE_MS, 1)])
def test_a_level_is_late_a_second_after_its_message_is_due(late_ms: int, count: int) -> None:
    """Milliseconds are how delivery works; a second is not."""
    level = replace(STATUS.levels[0], next_due_ms=NOW_MS - late_ms)
    found = troubles(replace(STATUS, levels=(level,)), (), ())
    assert [each.text for each in found] == ["level 1 late by 1.0s"] * count


def test_late_timers_are_told_as_late_levels_are() -> None:
    """A person reads a word, and a link of a page has it, too."""
    (level,) = STATUS.levels
    timers = LevelStatus(TIMERS, "timers", 5, NOW_MS - 2_000, 0, 0, 0, 0)
    (found,) = troubles(replace(STATUS, levels=(level, timers)), (), ())
    assert found.text == "timers late by 2.0s"
    assert (found.about, found.names) == (Subject.LEVELS, ("timer",))
    later = replace(level, next_due_ms=NOW_MS - 1_000)
    (found,) = troubles(replace(STATUS, levels=(later, timers)), (), ())
    assert found.text == "timers and 1 more late by 2.0s"
    assert found.names == ("timer", "1")


def test_a_timer_that_keeps_old_files_is_told() -> None:
    """Its number means nothing to a person."""
    pinned = replace(STATUS, pinned_by_level=TIMERS, pinned_bytes=5 << 20)
    (found,) = troubles(replace(pinned, pinned_deliver_at_ms=NOW_MS), (), ())
    assert found.text.startswith("5.0 MiB of expired log files stay for a timer, due 2023-11-")


@pytest.mark.parametrize(
    ("counted", "dead", "sentences"),
    [
        (0, 2, ["2 undeliverable, see %DLQ%SCHEDULE_CONSUMER"]),
        (5, 2, ["2 undeliverable, see %DLQ%SCHEDULE_CONSUMER"]),
        (5, 0, []),
        (5, None, ["5 undeliverable, see %DLQ%SCHEDULE_CONSUMER"]),
    ],
)
def test_what_the_schedule_could_not_deliver_is_still_known_after_a_restart(
    counted: int, dead: int | None, sentences: list[str]
) -> None:
    """The count begins at 0 then; its dead letters do not, until somebody redrives them."""
    status = replace(STATUS, undeliverable=counted)
    found = troubles(status, [GroupFigures(SCHEDULE_GROUP, dead=dead)], ())
    assert [each.text for each in found] == sentences


def test_counts_say_since_when_they_count() -> None:
    """0 died beside thousands of open letters is right, and says nothing about them."""
    text = "since the start 1m 40s ago: 1,000 sent, 900 delivered, 17 retried, 0 died"
    assert counts_text(STATUS) == text
    assert counts_text(replace(STATUS, fired=2)) == f"{text}, 2 fired"
