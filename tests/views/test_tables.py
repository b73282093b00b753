"""The tables of levels, groups and redrives, which every screen and page draws."""

from __future__ import annotations

from dataclasses import replace

from rmqlite.features.redrive.requests import JobState, RedriveJob, RedriveSpec
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.requests.broker import LevelStatus
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.views.groups import groups_table, members_table
from rmqlite.views.jobs import redrives_table
from rmqlite.views.levels import levels_table
from rmqlite.views.tables import Subject
from tests.support.broker_answers import HOSTILE, NOW_MS, STATUS, dead, group, seen, told, waiting


def test_a_level_counts_down_and_only_the_broker_says_that_it_is_late() -> None:
    """An answer that is a minute old is no late level."""
    levels = (
        LevelStatus(1, "1s", 5, NOW_MS + 30_000, 1, 0, 0, 0),
        LevelStatus(2, "5s", 5, NOW_MS + 500, 1, 0, 0, 0),
        LevelStatus(3, "10s", 5, NOW_MS - 1_500, 1, 0, 250, 0),
        LevelStatus(4, "", 0, 0, 1, 0, 0, 0),
        LevelStatus(5, "1m", 0, 0, 0, 0, 0, 0),
        LevelStatus(TIMERS, "timers", 5, NOW_MS + 63_072_010_000, 1, 0, 0, 0),
    )
    answer = replace(STATUS, levels=levels)
    later = levels_table(answer, NOW_MS + 10_000)
    rows = later.rows
    assert [(each.cells[1].text, each.cells[3].text) for each in rows] == [
        ("1s", "in 20.0s"),
        ("5s", "now"),
        ("10s", "1.5s late"),
        ("(old)", "-"),
        ("any", "in 730d 0h"),
    ]
    assert rows[-1].cells[0].text == "timer"
    assert later.title.endswith("1 unused")
    assert len(levels_table(answer, all_levels=True).rows) == 6
    assert levels_table(None).empty == "no level has had a message since the broker started"


def test_groups_are_sorted_by_what_is_worst() -> None:
    """What dies now, then what nobody reads, then what has died, then lag."""
    infos = tuple([GroupInfo(name) for name in "abcde"])
    described = (
        ("a", group("a", lag=1_000)),
        ("b", group("b", lag=5, members=0)),
        ("c", group("c")),
        ("d", group("d")),
    )
    picture = seen(groups=infos, described=described, dead=(dead("c", 9),), pending=())
    picture.take(told(6.0, dead=(dead("c", 9), dead("d", 1))))

    def order(sort: str) -> str:
        table = groups_table(picture.groups(), sort=sort)
        return "".join([each.key for each in table.rows])

    assert order("worst") == "dbcae"
    assert order("lag")[:2] == "ab"
    assert order("dead")[:2] == "cd"
    assert order("name") == "abcde"


def test_a_group_that_is_not_known_yet_shows_no_zeros() -> None:
    """A dash is no lag, but none that is known."""
    picture = seen(groups=(GroupInfo("new"),), pending=(waiting("new", 4),))
    shown = groups_table(picture.groups())
    assert [part.text for part in shown.rows[0].cells] == ["new", "-", "-", "4", "-"]
    assert groups_table(picture.groups(), wanted="x").empty == "no group matches"


def test_a_cell_leads_to_what_it_is_about() -> None:
    """A page makes links of it; a command and a full screen do not."""
    picture = seen(groups=(GroupInfo("a"),), dead=(dead("a", 2),), pending=())
    cells = groups_table(picture.groups()).rows[0].cells
    leads = [(cell.about, cell.names) for cell in cells if cell.about]
    assert leads[0] == (Subject.GROUPS, ("a",))
    assert (Subject.DEAD_LETTERS, ("a",)) in leads
    assert leads[-1] == (Subject.REASONS, ("a", f"timeout {HOSTILE}"))
    assert all([cell.text.isprintable() for cell in cells])


def test_members_are_listed_with_what_they_read() -> None:
    """Who is there, and when it was last heard of."""
    (row,) = members_table(group("workers").members, NOW_MS).rows
    assert [part.text for part in row.cells] == ["10.0.0.1@77", "orders A || B", "5.0s ago"]
    assert members_table((), NOW_MS).empty == "no members"


def test_a_redrive_shows_its_progress_and_why_it_stands() -> None:
    """As a share that is never whole too early, and with the note."""
    spec = RedriveSpec("workers")
    paused = RedriveJob("a", spec, JobState.PAUSED, 0, note="the disk is full")
    ended = RedriveJob("b", spec, JobState.DONE, 4, 4, 3, 0, 1)
    shown = redrives_table((paused, ended))
    assert shown.title == "redrives: 1 running"
    cells = [{c.name: p for c, p in zip(shown.columns, r.cells, strict=True)} for r in shown.rows]
    assert [each["STATE"].text for each in cells] == ["paused", "done"]
    assert [each["PROGRESS"].share for each in cells] == [0.0, 1.0]
    assert [each["NOTE"].text for each in cells] == ["the disk is full", "-"]
    assert cells[1]["REFUSED"].tone == "bad"
