"""How the overview reads: header, verdict, rates."""

from __future__ import annotations

from dataclasses import replace

from rmqlite.cli.status import Picture
from rmqlite.cli.top import app, overview_screen
from rmqlite.kernel.words.errors import BrokerUnreachable
from tests.support.broker_answers import HOSTILE, STATUS, dead, seen, status, told
from tests.support.drawn import text_of


def said(
    picture: Picture, *, is_paused: bool = False, width: int = 80, lines: int = 1
) -> list[str]:
    shown = app.verdict(picture, 3.0, 0.0, is_paused=is_paused, width=width, lines=lines)
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
    line = text_of(app.header(picture, "host:1", 3.0, 120))
    assert line.startswith(r"rmqlite top  \x1b[31mred\x1b[0m")
    assert "up 1m 42s  host:1  disk 42%" in line
    assert line.isprintable()
    assert text_of(app.header(Picture(), "host:1", 3.0, 80)) == "rmqlite top  host:1"


def test_rates_stand_over_their_charts() -> None:
    """Four of them, on any width."""
    picture = seen()
    picture.take(told(3.0, status(2_000, sent=3_000)))
    lines = [text_of(line) for line in overview_screen.rate_lines(picture, 80, 3)]
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


def test_a_chart_shows_peaks_and_gaps() -> None:
    """The highest is full, a little is more than nothing, and no answer is a gap."""
    assert overview_screen.chart([0.0, 0.01, None, 50.0, 100.0], 6, 1) == [" ▁▂ ▄█"]
    assert overview_screen.chart([1.0, 2.0, 3.0], 2, 1) == ["▅█"]
    assert overview_screen.chart([], 3, 2) == ["   ", "   "]
    assert overview_screen.chart([0.0, 25.0, 75.0, 100.0], 4, 2) == ["  ▄█", "▁▄██"]
