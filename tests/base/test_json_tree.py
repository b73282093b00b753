"""JSON of somebody else's: what would break its reader later is refused with its place."""

from __future__ import annotations

import json

import pytest

from rmqlite.kernel.words.json_tree import (
    DEPTH_MAX,
    NESTED_VALUES_MAX,
    WrongValue,
    position_of,
    read_json,
)


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + "1" + closing * depth


@pytest.mark.parametrize(
    "text", ['{"a": [1, -2.5, "x", null, true]}', "[]", "7", '"\\ud83d\\ude00"']
)
def test_json_is_read(text: str) -> None:
    """A pair of surrogates is one character."""
    assert read_json(text) == json.loads(text)


def test_nesting_has_a_limit() -> None:
    """Python's reader stops at some depth of its own, and its writer at another one."""
    assert read_json(nested(DEPTH_MAX))
    for depth in (DEPTH_MAX + 1, 1_000, 100_000):
        for text in (nested(depth), nested(depth, '{"a":', "}")):
            with pytest.raises(WrongValue, match=f"nested at most {DEPTH_MAX} deep") as caught:
                read_json(text)
            assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["[", '{"a":'])
def test_nesting_that_does_not_end_has_the_same_limit(text: str) -> None:
    """It is not valid JSON either, and nobody gets that far."""
    with pytest.raises(WrongValue, match="nested"):
        read_json(text * 100_000)


def test_very_many_lists_are_refused_before_they_are_made() -> None:
    """They would take two hundred times their text's size of memory."""
    with pytest.raises(WrongValue, match=f"at most {NESTED_VALUES_MAX} objects and lists"):
        read_json("[" + "[]," * NESTED_VALUES_MAX + "1]")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("1e999", "inf"),
        ("-1e999", "-inf"),
        ("NaN", "nan"),
        ("Infinity", "inf"),
        (str(2**63), str(2**63)),
        (str(-(2**63) - 1), str(-(2**63) - 1)),
        ("1" + "0" * 4_000, "1" + "0" * 58 + "…"),
        ('"\\ud800"', "'\\ud800'"),
    ],
)
def test_a_value_that_no_table_holds_is_refused_with_its_path(value: str, found: str) -> None:
    """Infinity is no int, half a character has no UTF-8 form, and an offset has 64 bits."""
    with pytest.raises(WrongValue) as caught:
        read_json('{"rows": {"a": [0, ' + value + "]}}")
    assert caught.value.path == ("rows", "a", "1")
    assert caught.value.found == found
    assert "rows.a.1: " in caught.value.rule


def test_half_a_character_in_a_key_is_refused() -> None:
    """Keys are names of topics and groups."""
    with pytest.raises(WrongValue, match="whole characters"):
        read_json('{"\\ud800": 1}')


def test_a_number_of_very_many_digits_is_refused() -> None:
    """Python converts no more than 4,300."""
    with pytest.raises(ValueError, match="digits"):
        read_json("9" * 5_000)


@pytest.mark.parametrize(
    ("path", "begins"),
    [
        ((), "{"),
        (("a",), '[1, {"x'),
        (("a", "0"), "1,"),
        (("a", "1"), '{"x'),
        (("a", "1", "x}"), '"],"'),
        (("b",), "{7:"),
        (("b", "7"), "true"),
        (("b", "8"), "-3"),
        (("b", "8", "deeper"), "-3"),
        (("missing",), "{"),
    ],
)
def test_a_path_leads_to_a_place(path: tuple[str, ...], begins: str) -> None:
    """Through texts that look like structure, and RocketMQ's bare keys."""
    text = ' {"a": [1, {"x}": "],", "y": 2}], "b": {7:true, 8: -3}}'
    assert text[position_of(text, path) :].startswith(begins)
