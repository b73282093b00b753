"""The view on a property string: what it finds, and what an edit leaves alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqlite.kernel.words.message import decode_properties, find_property, property_marker
from rmqlite.kernel.words.property_string import PropertyString

TEXT = st.text("ab1ä€ ", min_size=1, max_size=9)
PARTS = st.lists(st.binary(max_size=6).map(lambda each: each.replace(b"\x02", b"")), max_size=6)
PAIRS = st.sampled_from(
    [b"a\x011", b"a\x01", b"a\x01\xff\x012", b"a", b"\x01a", b"b\x01a\x013", b""]
)


@given(st.one_of(PARTS, st.lists(PAIRS, max_size=8)).map(b"\x02".join))
def test_one_property_is_found_as_all_are_decoded(encoded: bytes) -> None:
    """Of several pairs of a name the last one with a value counts, as in RocketMQ's map."""
    for name in ("a", "b"):
        found = find_property(encoded, property_marker(name))
        assert found == PropertyString(encoded).get(name)
        text = decode_properties(encoded).get(name)
        assert (None if found is None else found.decode("utf-8", "replace")) == text


@pytest.mark.parametrize(
    ("encoded", "found"),
    [
        (b"a\x011\x02a\x012", b"2"),
        (b"a\x011\x02b\x01x\x02a\x012\x02", b"2"),
        (b"a\x011\x02a\x01\x02a\x01", b"1"),
        (b"b\x01x\x02a\x011\x02a\x01", b"1"),
        (b"a\x01", None),
        (b"b\x01x\x02a\x01\x02a\x01", None),
        (b"a\x01\x02" * 10_000, None),
    ],
)
def test_the_last_pair_with_a_value_counts(encoded: bytes, found: bytes | None) -> None:
    """A reader that took another would deliver elsewhere than RocketMQ."""
    assert find_property(encoded, property_marker("a")) == found


@pytest.mark.parametrize(
    ("encoded", "changes", "without", "wanted"),
    [
        (b"", {"a": "1"}, "", b"a\x011"),
        (b"", {}, "a", b""),
        (b"a\x011\x02b\x012", {}, "", b"a\x011\x02b\x012"),
        (b"a\x011\x02b\x012", {"a": "3", "c": "4"}, "", b"b\x012\x02a\x013\x02c\x014"),
        (b"a\x011\x02b\x012", {}, "b", b"a\x011"),
        (b"a\x011", {}, "a", b""),
        (b"a\x011\x02b\x012\x02a\x013", {"a": "4"}, "", b"b\x012\x02a\x014"),
        (b"a\x011\x02b\x012\x02a\x013", {}, "a", b"b\x012"),
        (b"a\x011\x02b\x012\x02a\x013", {"b": "4"}, "", b"a\x011\x02a\x013\x02b\x014"),
        (b"a\x011\x02", {}, "", b"a\x011\x02"),
        (b"a\x011\x02", {"b": "2"}, "", b"a\x011\x02b\x012"),
        (b"a\x01\x02b\x012", {"a": "1"}, "", b"b\x012\x02a\x011"),
        (b"a\x02\x01x\x02\x02", {"a": "1"}, "", b"a\x02\x01x\x02\x02a\x011"),
        (b"a\x01\xff\x01\xfe", {"b": "\u00e4"}, "", b"a\x01\xff\x01\xfe\x02b\x01\xc3\xa4"),
    ],
)
def test_an_edit_changes_what_it_names_and_no_other_byte(
    encoded: bytes, changes: dict[str, str], without: str, wanted: bytes
) -> None:
    """A value that is no UTF-8, a key that is there twice, a part that is no pair: all stay."""
    assert PropertyString(encoded).edited(changes, frozenset(without)).encoded == wanted


@given(
    PARTS,
    st.dictionaries(st.sampled_from("abc"), TEXT),
    st.sets(st.sampled_from("bcd")),
    st.booleans(),
)
def test_after_any_edit_the_rest_is_there_in_its_order(
    parts: list[bytes], changes: dict[str, str], without: set[str], is_parsed: bool
) -> None:
    """And a reader finds exactly the pairs that were set, whether it parses anew or not."""
    encoded = b"\x02".join([*parts, b"b\x01x", b"z\x01z"])
    view = PropertyString(encoded)
    if is_parsed:
        view.get("a")
    edited = view.edited(changes, frozenset(without))
    names = tuple([f"{name}\x01".encode() for name in {*changes, *without}])

    def others(of: bytes) -> list[bytes]:
        return [part for part in of.split(b"\x02") if not part.startswith(names)]

    assert others(edited.encoded) == others(encoded) if names else edited.encoded == encoded
    wanted = {name: view.get(name) for name in "abcdz" if name not in without}
    wanted |= {name: value.encode() for name, value in changes.items()}
    for name in "abcdz":
        assert edited.get(name) == wanted.get(name)
        assert PropertyString(edited.encoded).get(name) == wanted.get(name)


@pytest.mark.parametrize("value", [b"v", b"\xff\xfe", b"caf\xe9", b"a\x01b", "ä".encode()])
def test_a_value_is_copied_byte_by_byte(value: bytes) -> None:
    """Also one that is not UTF-8: an id or a topic that goes from one property to another."""
    found = PropertyString(b"a\x01" + value).get("a")
    assert found is not None
    copied = PropertyString(b"b\x012").edited({"c": found})
    assert copied.encoded == b"b\x012\x02c\x01" + value
    assert copied.get("c") == value


def test_text_is_for_people() -> None:
    """The wire and a terminal take UTF-8 and nothing else."""
    view = PropertyString(b"a\x01caf\xe9")
    assert (view.text("a"), view.text("b")) == ("caf\ufffd", "")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"9" * 18, 10**18 - 1),
        (b"9" * 19, None),
        (b"9" * 20_000, None),
        (b"-1", None),
        (b"1.0", None),
        (b" 1", None),
        ("\u0661".encode(), None),
        (b"", None),
    ],
)
def test_a_number_is_made_of_18_digits_at_most(value: bytes, number: int | None) -> None:
    """As the Arrow decoder reads it; Python itself refuses to convert 4,301 digits."""
    assert PropertyString(b"a\x01" + value).number("a") == number
