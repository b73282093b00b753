"""How the overview reads: verdict, rates, levels, groups, redrives."""

from __future__ import annotations

from dataclasses import replace

from rmqlite.cli.top import overview
from rmqlite.cli.top.grid import Table, lines_of, text_of
from rmqlite.cli.top.picture import Picture
from rmqlite.errors import BrokerUnreachable
from rmqlite.records.wait_queues import TIMERS
from rmqlite.requests.figures import LevelStatus
from rmqlite.requests.groups import GroupInfo
from rmqlite.requests.redrive import JobState, RedriveJob, RedriveSpec
from tests.cli.top.answers import HOSTILE, NOW_MS, STATUS, dead, group, seen, status, told, waiting


def texts(table: Table, width: int = 80) -> list[str]:
    return [text_of(line) for line in lines_of(table, width)]


def said(
    picture: Picture, *, is_paused: bool = False, width: int = 80, lines: int = 1
) -> list[str]:
    shown = overview.verdict(picture, 3.0, 0.0, is_paused=is_paused, width=width, lines=lines)
    return [text_of(line) for line in shown]


def test_a_well_broker_is_said_to_be_well() -> None:
    """And before the first answer nothing is claimed."""
    assert said(Picture()) == ["… asking"]
    assert said(seen()) == ["● well"]
    (line,) = said(seen(), is_paused=True)
    assert (line.split("  ")[0], line[-16:], len(line)) == ("● well", "PAUSED, 2.0s old", 80)


def test_troubles_share_a_line_or_have_their_own() -> None:
    """All are said where there is room; on a line the first one stays whole."""
    picture = seen(replace(STATUS, is_disk_full=True, undeliverable=3), dead=(dead("a", 2),))
    (line,) = said(picture)
    assert line.startswith("✖ disk full (42.0%): sends are refused until there is room again  ▲")
    assert len(line) <= 80
    lines = said(picture, lines=9)
    assert [each[0] for each in lines] == ["✖", "▲", "▲"]
    assert lines[1] == "▲ 2 open dead letters in a"
    assert len(said(picture, lines=2)) == 2


def test_a_paused_view_of_a_lost_broker_says_both() -> None:
    """The end of the line is kept."""
    picture = seen()
    picture.take(told(2.0, BrokerUnreachable("x: Connection refused")))
    (line,) = said(picture, is_paused=True)
    assert line.startswith("✖ no answer for 2.0s (Connection refused), this is how")
    assert line.endswith("PAUSED, 2.0s old")


def test_the_header_names_the_broker_and_its_time() -> None:
    """Also one with a name that somebody meant badly."""
    picture = seen(replace(STATUS, broker_name=HOSTILE))
    line = text_of(overview.header(picture, "host:1", 3.0, 120))
    assert line.startswith(r"rmqlite top  \x1b[31mred\x1b[0m")
    assert "up 1m 42s  host:1  disk 42%" in line
    assert line.isprintable()
    assert text_of(overview.header(Picture(), "host:1", 3.0, 80)) == "rmqlite top  host:1"


def test_rates_stand_over_their_charts() -> None:
    """Four of them, on any width."""
    picture = seen()
    picture.take(told(3.0, status(2_000, sent=3_000)))
    lines = [text_of(line) for line in overview.rate_lines(picture, 80, 3)]
    assert lines[0].split() == [
        "SENT/S",
        "1,000",
        "DELIVERED/S",
        "0",
        "RETRIED/S",
        "0",
        "DEAD/S",
        "0",
    ]
    assert len(lines) == 4
    assert lines[3].split() == ["█", "▁", "▁", "▁"]


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
    picture = seen(replace(STATUS, levels=levels))
    rows = overview.levels_table(picture, 11.0, all_levels=False).rows
    assert [(each.cells[1].text, each.cells[3].text) for each in rows] == [
        ("1s", "in 20.0s"),
        ("5s", "in <1s"),
        ("10s", "late 1.5s"),
        ("(old)", "-"),
        ("any", "in 730d 0h"),
    ]
    assert rows[-1].cells[0].text == "timer"
    assert overview.levels_table(picture, 11.0, all_levels=False).title.endswith("1 unused")
    assert len(overview.levels_table(picture, 11.0, all_levels=True).rows) == 6


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
        table = overview.groups_table(picture, sort=sort, wanted="")
        return "".join([each.key for each in table.rows])

    assert order("worst") == "dbcae"
    assert order("lag")[:2] == "ab"
    assert order("dead")[:2] == "cd"
    assert order("name") == "abcde"


def test_a_group_that_is_not_known_yet_shows_no_zeros() -> None:
    """A dash is no lag, but none that is known."""
    picture = seen(groups=(GroupInfo("new"),), pending=(waiting("new", 4),))
    line = texts(overview.groups_table(picture, sort="name", wanted=""))[2]
    assert line.split() == ["new", "-", "-", "4", "-", "-"]
    assert texts(overview.groups_table(picture, sort="name", wanted="x"))[1] == "no group matches"


def test_a_redrive_stays_a_minute_after_its_end() -> None:
    """Long enough to see how it ended."""
    spec = RedriveSpec("workers")
    running = RedriveJob("a", spec, JobState.PAUSED, 0, note="the disk is full")
    ended = RedriveJob("b", spec, JobState.DONE, 4, 4, 3, 0, 1, ended_at_ms=NOW_MS - 59_000)
    old = replace(ended, job_id="c", ended_at_ms=NOW_MS - 61_000)
    lines = texts(overview.jobs_table(seen(jobs=(running, ended, old))), 120)
    assert lines[0].startswith("─ redrives: 1 running ─")
    assert lines[2].split()[:4] == ["workers", "paused", "░" * 12, "0%"]
    assert lines[2].endswith("the disk is full")
    assert lines[3].split()[:4] == ["workers", "done", "█" * 12, "100%"]
    assert len(lines) == 4
