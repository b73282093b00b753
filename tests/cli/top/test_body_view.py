"""A body in its three forms, whatever it is made of."""

from __future__ import annotations

import pytest

from rmqlite.cli.top.screens.body_view import (
    FORMS,
    SHOWN_BYTES_MAX,
    SHOWN_LINES_MAX,
    body_lines,
    next_form,
)


def test_json_is_set_out_and_the_rest_is_as_it_is() -> None:
    """A number alone is no document."""
    assert body_lines(b'{"a":[1]}', "set out") == [
        "body, 9 bytes, JSON",
        *("{", '  "a": [', "    1", "  ]", "}"),
    ]
    assert body_lines(b'{"a":[1]}', "as text") == ["body, 9 bytes, as text", '{"a":[1]}']
    assert body_lines(b"7", "set out") == ["body, 1 byte, text", "7"]


def test_bytes_that_are_no_text_are_set_out_in_hex() -> None:
    """And as text they can still be looked at."""
    shown = body_lines(b"\xff\x00\x1b[2J", "set out")
    assert shown[0] == "body, 6 bytes, hex"
    assert shown[1].startswith("00000000  ff 00 1b 5b 32 4a")
    assert body_lines(b"\xff\x00\x1b[2J", "as text")[1] == r"\xff\x00\x1b[2J"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "body",
    [b"", b"[" * 300_000, b"\x1b]0;x\x07" * 100_000, b"a\n" * 400_000, b'{"n": ' + b"9" * 9_000],
    ids=["empty", "deep", "escapes", "lines", "no end"],
)
def test_a_body_of_any_kind_is_shown_in_bounds(body: bytes, form: str) -> None:
    """Nobody waits for four megabytes, and no terminal sees what they say."""
    shown = body_lines(body, form)
    assert len(shown) <= SHOWN_LINES_MAX + 1
    assert sum(map(len, shown)) <= 8 * SHOWN_BYTES_MAX
    assert all([line.isprintable() for line in shown])
    assert shown[0].endswith(", the beginning") == (len(body) > 9_010)


def test_the_forms_come_round() -> None:
    """One key is enough."""
    forms = [FORMS[0]]
    for _ in FORMS:
        forms.append(next_form(forms[-1]))
    assert forms == [*FORMS, FORMS[0]]
