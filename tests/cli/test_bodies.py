"""How a body is shown: as what it is, as it is, and never interpreted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.cli.output.bodies import SHOWN_CHARS_MAX, SHOWN_LINES_MAX, shown
from rmqlite.cli.output.terminal import printable
from rmqlite.visible import dump, json_lines

MEGABYTES_4 = 4 << 20


def test_json_is_set_out_and_changed_in_nothing_else() -> None:
    """Numbers no float holds, escapes, the order of keys, a key that is there twice."""
    body = (
        rb'{"n": 12345678901234567890.10e+400, "z": "\u001b]0;\\\"}", "a": [], "o": {},'
        rb' "deep": {"list": [1, {"b": null}]}, "n": -0}'
    )
    kind, lines = shown(body)
    assert kind == "JSON"
    assert lines == [
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
    kind, lines = shown(body, full=True)
    if kind == "JSON":
        assert json.loads("\n".join(lines)) == [value]
    assert all([line.isprintable() for line in lines])


@pytest.mark.parametrize(
    "body", [b'{"a": }', b"[1, 2", b'{"a": NaN}', b'"just a word"', b"17", b"[" * 100_000]
)
def test_what_is_no_json_document_is_text(body: bytes) -> None:
    """Nothing is set out that would only look like JSON, and nothing recurses without end."""
    kind, lines = shown(body)
    assert kind.startswith("text")
    assert lines[0].rstrip("…") == printable(body.decode())[:SHOWN_CHARS_MAX]


def test_a_number_of_thousands_of_digits_stays_as_it_is() -> None:
    """Python would refuse to make a number of it."""
    body = b"[" + b"7" * 6_000 + b"]"
    assert "".join([line.strip() for line in shown(body, full=True)[1]]).encode() == body


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
    assert shown(body)[0] == "hex"


def test_text_may_have_a_few_invisible_characters() -> None:
    """They are shown escaped."""
    kind, lines = shown("a line with a NUL \x00 and \u202eturned\r\nand another\n".encode())
    assert (kind, lines) == (
        "text",
        ["a line with a NUL \\x00 and \\u202eturned", "and another"],
    )


@pytest.mark.parametrize(
    "body",
    [
        b"x" * MEGABYTES_4,
        b"\xff" * MEGABYTES_4,
        b'["' + b"\\n" * (MEGABYTES_4 // 2) + b'"]',
        b"[" + b"1," * (MEGABYTES_4 // 2) + b"1]",
        b"\n" * MEGABYTES_4,
    ],
)
def test_a_long_body_is_cut_and_says_so(body: bytes) -> None:
    """Some screens, unless all of it is asked for."""
    kind, lines = shown(body)
    assert kind.endswith(", the beginning; --full shows all")
    assert len(lines) <= SHOWN_LINES_MAX
    assert sum(map(len, lines)) <= SHOWN_CHARS_MAX + SHOWN_LINES_MAX * 80


def test_all_of_a_long_body_is_shown_when_asked_for() -> None:
    """To the last byte."""
    kind, lines = shown(b"x" * MEGABYTES_4, full=True)
    assert (kind, len(lines), len(lines[0])) == ("text", 1, MEGABYTES_4)


def test_a_short_body_is_not_said_to_be_cut() -> None:
    """Also at the limits."""
    for body in (b"x" * SHOWN_CHARS_MAX, b"\n".join([b"x"] * SHOWN_LINES_MAX)):
        assert shown(body)[0] == "text"
    assert list(json_lines("[]")) == ["[]"]
