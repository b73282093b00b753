"""How values are written on a page."""

from __future__ import annotations

from markupsafe import Markup

from rmqlite.web.site import quoted, short, url
from rmqlite.web.site import visible as shown


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
