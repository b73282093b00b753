"""How values are written on a page."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from rmqlite.server.web.text import ago, lines, percent, quoted, rate, short, size, span, until, url
from rmqlite.server.web.text import visible as shown


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [
        (0, "0 ms"),
        (850, "850 ms"),
        (1_000, "1s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (3_723_000, "1h 2m"),
        (86_400_000, "1d"),
        (86_460_000, "1d"),
        (90_000_000, "1d 1h"),
        (-5_000, "-5s"),
    ],
)
def test_a_length_is_said_in_its_two_largest_units(length_ms: int, text: str) -> None:
    """Nobody reads the seconds of a day."""
    assert span(length_ms) == text


def test_a_moment_is_told_from_now() -> None:
    """Readers want to know how long a message still waits, or how late it is."""
    assert (until(0, 5), until(65_000, 0), until(5, 0)) == ("-", "in 1m 5s", "in 5 ms")
    assert (until(10_000, 10_500), until(10_000, 13_000)) == ("now", "3s late")
    assert (ago(0, 5), ago(1_000, 1_500), ago(1_000, 62_000)) == ("-", "just now", "1m 1s ago")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1_023, "1,023 B"), (1_536, "1.5 KiB"), (5 << 50, "5,120.0 TiB")],
)
def test_a_size_is_in_the_largest_unit_of_which_there_is_one(count: int, text: str) -> None:
    """Needless digits hide the important ones."""
    assert size(count) == text


def test_a_share_is_not_whole_before_the_whole_is_there() -> None:
    """100.0% of a redrive that has a letter left would be a lie."""
    assert percent(99_999, 100_000) == "99.9%"
    assert percent(1, 1) == "100.0%"
    assert percent(0.5) == "50.0%"
    assert percent(0, 0) == "-"


def test_a_small_rate_keeps_a_decimal() -> None:
    """A reader must be able to tell 0.4 per second from 0."""
    assert [rate(each) for each in (0, 0.42, 9.96, 12_345.6)] == ["0", "0.4", "10.0", "12,346"]


def test_what_is_put_into_a_template_is_made_visible() -> None:
    """Numbers get commas, booleans become yes or no, control characters become visible."""
    values = [None, True, 1_234_567, "a\x1b[2J\u202e\ud800\n", Markup("<b>")]
    assert [shown(each) for each in values] == [
        "-",
        "yes",
        "1,234,567",
        "a\\x1b[2J\\u202e\\ud800\\n",
        Markup("<b>"),
    ]


def test_a_text_of_lines_keeps_its_lines_and_tabs() -> None:
    """All other invisible characters become visible."""
    assert lines("a\tb\r\nc\rd\n<b>\x00") == Markup("a\tb\nc\\rd\n&lt;b&gt;\\x00")


def test_a_link_says_exactly_what_it_was_given() -> None:
    """An id with a line end in it must not lead to another message."""
    link = url("/message", {"id": "a b&\"'<>\r\n\x00é\ud800", "none": ""}, begin=0, as_="x")
    assert link == ("/message?id=a+b%26%22%27%3C%3E%0D%0A%00%C3%A9%ED%A0%80&amp;begin=0&amp;as_=x")
    assert url("/dead") == "/dead"


def test_an_id_in_a_form_survives_the_browser() -> None:
    """A browser changes line ends and drops characters that it does not know."""
    assert quoted("a\r\nb \x00'\"%") == "a%0D%0Ab%20%00%27%22%25"


def test_a_long_text_is_cut_where_it_says_so() -> None:
    """A table has room for the beginning of a reason."""
    assert short("abcdef", 6) == "abcdef"
    assert short("abcdefg", 6) == "abcde…"
