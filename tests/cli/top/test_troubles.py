"""What is said to be wrong, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqlite.cli.status import Picture
from rmqlite.features.redrive.requests import JobState, RedriveJob, RedriveSpec
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.words.errors import BrokerUnreachable, RmqliteError
from tests.support.broker_answers import HOSTILE, NOW_MS, STATUS, dead, group, seen, status, told


def said(picture: Picture) -> list[tuple[str, str]]:
    return [(each.tone, each.text) for each in picture.troubles()]


def test_a_broker_that_works_has_no_troubles() -> None:
    """Members that read, levels that wait, lag that shrinks: that is what it is for."""
    infos = (GroupInfo("workers"),)
    described = (("workers", group("workers", lag=100, due=5)),)
    assert said(seen(groups=infos, described=described, dead=(dead("workers", 0),))) == []


@pytest.mark.parametrize(
    ("fields", "tone", "words"),
    [
        ({"disk_used_ratio": 0.95, "is_disk_full": True}, "bad", "disk full (95.0%)"),
        ({"pinned_bytes": 2**31, "pinned_by_level": 18}, "warn", "2.0 GiB of expired log files"),
        ({"warnings": ("anyone can read",)}, "warn", "anyone can read"),
        ({"undeliverable": 1_200}, "warn", "1,200 undeliverable, see %DLQ%SCHEDULE"),
        (
            {"levels": (replace(STATUS.levels[0], next_due_ms=NOW_MS - 5_000),)},
            "bad",
            "level 1 late by 5.0s",
        ),
    ],
)
def test_what_a_status_says_of_troubles(fields: dict[str, object], tone: str, words: str) -> None:
    """Each has its own remedy."""
    ((was, sentence),) = said(seen(replace(STATUS, **fields)))  # type: ignore[arg-type]
    assert was == tone
    assert sentence.startswith(words)


def test_a_level_is_not_late_because_an_answer_is_old() -> None:
    """Only what the broker itself said counts."""
    picture = seen(replace(STATUS, levels=(replace(STATUS.levels[0], next_due_ms=NOW_MS + 100),)))
    assert picture.now_ms(60.0) > NOW_MS + 5_000
    assert said(picture) == []


def test_dead_letters_of_now_are_worse_than_those_of_yesterday() -> None:
    """The group that grows most is named."""
    picture = seen(dead=(dead("a", 1), dead("b", 5)))
    assert said(picture) == [("warn", "6 open dead letters in 2 groups, most in b")]
    picture.take(told(6.0, status(5_000, dead=4), dead=(dead("a", 4), dead("b", 5))))
    assert said(picture) == [("bad", "3 dead in the last minute, most in a")]


def test_a_group_that_nobody_reads_for_is_named() -> None:
    """The worst one."""
    names = ("a", "b", "idle")
    infos = tuple([GroupInfo(name) for name in names])
    lags = zip(names, (1, 9, 0), strict=True)
    described = tuple([(name, group(name, lag=lag, members=0)) for name, lag in lags])
    assert said(seen(groups=infos, described=described)) == [
        ("warn", "nobody reads for b and 1 more")
    ]


def test_the_worst_comes_first_and_nothing_hostile_is_said() -> None:
    """A line has room for one or two."""
    job = RedriveJob("j", RedriveSpec(HOSTILE), JobState.RUNNING, 1, note="disk full")
    full = replace(STATUS, is_disk_full=True, undeliverable=1)
    found = said(seen(full, jobs=(job,)))
    assert [tone for tone, _ in found] == ["bad", "warn", "warn"]
    assert all([sentence.isprintable() for _, sentence in found])


def test_what_an_older_broker_does_not_know_is_said_once() -> None:
    """gRPC's own word for it helps nobody."""
    unknown = RmqliteError("UNIMPLEMENTED: unix:x: Method not found!")
    assert said(seen(dead=unknown, jobs=unknown)) == [
        ("warn", "dead letters not known, redrive jobs not known: the broker is too old for this")
    ]


def test_a_part_that_fails_is_said_with_its_age() -> None:
    """The rest is fresh, and looks alike."""
    picture = seen(dead=(dead("a", 0),))
    picture.take(told(13.0, status(12_000), dead=BrokerUnreachable("too slow")))
    assert said(picture) == [("warn", "dead letters 12.0s old: too slow")]


def test_a_broker_that_does_not_answer_is_said_with_the_time_since() -> None:
    """Gone, or just slow."""
    picture = seen()
    assert picture.connection_trouble(2.0, 0.0) is None
    assert picture.connection_trouble(2.5, 1.0) is None
    slow = picture.connection_trouble(4.0, 2.0)
    assert slow is not None
    assert (slow.tone, slow.text) == ("warn", "no answer for 3.0s, still waiting for one")
    picture.take(told(5.0, BrokerUnreachable(f"no answer from the broker: {HOSTILE}")))
    gone = picture.connection_trouble(61.0, 0.0)
    assert gone is not None
    assert gone.text.startswith(r"no answer for 1m 0s (\x1b[31mred")
    assert gone.text.isprintable()
