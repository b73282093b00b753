"""How a body is shown: as what it is, as it is, and never interpreted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel.words.visible import printable
from rmqlite.views.messages import BodyView, body_view, dump, json_lines

MEGABYTES_4 = 4 << 20
LONG = 1 << 18
"""Dozens of times what is shown."""
CHARS_MAX = 4_000
LINES_MAX = 60


def beginning(body: bytes, form: str = "") -> BodyView:
    return body_view(body, form, chars_max=CHARS_MAX, lines_max=LINES_MAX)


def test_json_is_set_out_and_changed_in_nothing_else() -> None:
    """Numbers no float holds, escapes, the order of keys, a key that is there twice."""
    body = (
        rb'{"n": 12345678901234567890.10e+400, "z": "\u001b]0;\\\"}", "a": [], "o": {},'
        rb' "deep": {"list": [1, {"b": null}]}, "n": -0}'
    )
    shown = beginning(body)
    assert shown.form == "json"
    assert list(shown.lines) == [
        "{",
        '  "n": 12345678901234567890.10e+400,',
        r'  "z": "\u001b]0;\\\"}",',
        '  "a": [],',
        '  "o": {},',
        '  "deep": {',
        '    "list": [',
        "      1,",
        "      {",
        '        "b": null',
        "      }",
        "    ]",
        "  },",
        '  "n": -0',
        "}",
    ]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda of: st.lists(of) | st.dictionaries(st.text(), of),
    )
)
def test_json_set_out_is_the_same_json(value: object) -> None:
    """Whatever its strings have in them; and there is nothing left to interpret."""
    body = json.dumps([value], ensure_ascii=False).encode("utf-8", "surrogatepass")
    shown = body_view(body)
    if shown.form == "json":
        assert json.loads("\n".join(shown.lines)) == [value]
    assert all([line.isprintable() for line in shown.lines])


@pytest.mark.parametrize(
    "body", [b'{"a": }', b"[1, 2", b'{"a": NaN}', b'"just a word"', b"17", b"[" * 100_000]
)
def test_what_is_no_json_document_is_text(body: bytes) -> None:
    """Nothing is set out that would only look like JSON, and nothing recurses without end."""
    shown = beginning(body)
    assert (shown.form, shown.forms) == ("text", ("text", "hex"))
    assert shown.lines[0].rstrip("…") == printable(body.decode())[:CHARS_MAX]


def test_a_number_of_thousands_of_digits_stays_as_it_is() -> None:
    """Python would refuse to make a number of it."""
    body = b"[" + b"7" * 6_000 + b"]"
    assert "".join([line.strip() for line in body_view(body).lines]).encode() == body


def test_bytes_are_dumped_with_offset_and_ascii() -> None:
    """As hexdump -C does, which every operator can read."""
    assert list(dump(b"\x00\x1b[31m plain text")) == [
        "00000000  00 1b 5b 33 31 6d 20 70  6c 61 69 6e 20 74 65 78  |..[31m plain tex|",
        "00000010  74                                                |t|",
    ]


@pytest.mark.parametrize(
    "body", [b"\xff\xfe\x00a", b"\x08\x96\x01\x12\x01x\x00\x00", b"\xed\xa0\x80"]
)
def test_what_is_no_text_is_dumped(body: bytes) -> None:
    """Not UTF-8, lone surrogates, or UTF-8 by chance, as small protobuf messages are."""
    assert beginning(body).form == "hex"


def test_another_form_can_be_chosen() -> None:
    """Bytes can be looked at as text, and JSON as the bytes that came; a form must fit."""
    assert body_view(b"\xff\x00\x1b[2J", "text").lines == (r"\xff\x00\x1b[2J",)
    assert body_view(b'{"a":[1]}', "text").lines == ('{"a":[1]}',)
    assert body_view(b'{"a":[1]}').forms == ("json", "text", "hex")
    assert body_view(b"7", "json").form == "text"


@pytest.mark.parametrize(
    ("body", "heading"),
    [
        (b"", "no body"),
        (b"7", "body, 1 byte, text"),
        (b'{"a":[1]}', "body, 9 bytes, JSON"),
        (b"x" * 5_000, "body, 5,000 bytes, text, the beginning"),
    ],
)
def test_a_heading_has_size_and_form(body: bytes, heading: str) -> None:
    """Somebody may read it for the lines that follow."""
    assert beginning(body).heading() == heading


def test_a_body_that_is_cut_within_a_character_is_text() -> None:
    """A page inflates only the beginning of a body; the cut must not turn the text into hex."""
    for shift in range(4):
        begin = (b"x" * shift + "€".encode() * 100)[:100]
        shown = body_view(begin, is_whole=False)
        assert (shown.form, shown.is_cut) == ("text", True)
        assert "\\x" not in shown.lines[0]
    assert body_view(b"[1, 2", is_whole=False).forms == ("text", "hex")


def test_text_may_have_a_few_invisible_characters() -> None:
    """They are shown escaped."""
    shown = body_view("a line with a NUL \x00 and \u202eturned\r\nand another\n".encode())
    assert shown.form == "text"
    assert shown.lines == ("a line with a NUL \\x00 and \\u202eturned", "and another")


@pytest.mark.parametrize(
    "body",
    [
        b"x" * LONG,
        b"\xff" * LONG,
        b'["' + b"\\n" * (LONG // 2) + b'"]',
        b"[" + b"1," * (LONG // 2) + b"1]",
        b"\n" * LONG,
        b"\x1b]0;x\x07" * (LONG // 6),
    ],
)
def test_a_long_body_is_cut_and_says_so(body: bytes) -> None:
    """Some screens, unless all of it is asked for."""
    for form in ("", "text", "hex"):
        shown = beginning(body, form)
        assert shown.is_cut
        assert len(shown.lines) <= LINES_MAX
        assert sum(map(len, shown.lines)) <= CHARS_MAX + LINES_MAX * 80
        assert all([line.isprintable() for line in shown.lines])


def test_all_of_a_long_body_is_shown_when_asked_for() -> None:
    """To the last byte."""
    shown = body_view(b"x" * MEGABYTES_4)
    assert (shown.form, shown.is_cut, len(shown.lines[0])) == ("text", False, MEGABYTES_4)


def test_a_short_body_is_not_said_to_be_cut() -> None:
    """Also at the limits."""
    for body in (b"x" * CHARS_MAX, b"\n".join([b"x"] * LINES_MAX)):
        assert not beginning(body).is_cut
    assert list(json_lines("[]")) == ["[]"]
