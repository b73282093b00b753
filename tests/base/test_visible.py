"""What somebody else wrote is made visible: escaped, set out in lines, or byte by byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel.words.visible import did_you_mean, printable
from rmqlite.views.messages import dump, is_json, json_lines


def test_what_a_terminal_would_obey_is_written_out() -> None:
    """Escapes, bells, what turns the direction of a line; letters of any script are letters."""
    assert printable("\x1b[31m\a\u202e\n") == "\\x1b[31m\\x07\\u202e\\n"
    assert printable("Zoë 東京") == "Zoë 東京"


def test_json_is_set_out_and_otherwise_left_alone() -> None:
    """Keys that come twice and the way a number is written may be what went wrong."""
    text = '{"a":1.0,"a":1e999,"b":[],"c":{},"d":[1,{"e":"x, {y}: \\"z\\""}]}'
    assert list(json_lines(text)) == [
        "{",
        '  "a": 1.0,',
        '  "a": 1e999,',
        '  "b": [],',
        '  "c": {},',
        '  "d": [',
        "    1,",
        "    {",
        '      "e": "x, {y}: \\"z\\""',
        "    }",
        "  ]",
        "}",
    ]


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.lists(_JSON, max_size=4) | st.dictionaries(st.text(), _JSON, max_size=4))
def test_setting_out_changes_no_value(value: object) -> None:
    """Whatever the text is, spelled either way."""
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert is_json(text)
        assert json.loads("\n".join(json_lines(text))) == value


def test_bytes_are_dumped_as_everybody_knows_it() -> None:
    """Where, in hex, and what of it is ASCII: as hexdump -C does."""
    assert list(dump(b"hello, <world>\x00\xff!")) == [
        "00000000  68 65 6c 6c 6f 2c 20 3c  77 6f 72 6c 64 3e 00 ff  |hello, <world>..|",
        "00000010  21                                                |!|",
    ]


@pytest.mark.parametrize("known", [("orders", "Orders"), ("Orders", "orders")])
def test_the_word_that_was_nearly_written_is_asked_for(known: tuple[str, str]) -> None:
    """Always the same of two that differ in case only: a set has them in any order."""
    assert did_you_mean("Ordrs", known) == "; did you mean orders?"
    assert did_you_mean("ORDRES", ["bills", "orders"]) == "; did you mean orders?"
    assert did_you_mean("bills", known, " (topics)") == " (topics)"
