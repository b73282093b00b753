"""The one table of a record's header, and what other forms make of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rmqlite.kernel.compiled
from rmqlite.kernel.records import record
from rmqlite.kernel.records.queue_entry import ENTRY_BYTES

HEADER = Path(rmqlite.kernel.compiled.__file__).parent / "records.h"


def c_numbers() -> dict[str, int]:
    """The numbers that enums of records.h name."""
    pairs = re.findall(r"\b([A-Z0-9_]+) = (0x[0-9A-F]+|\d+)\b", HEADER.read_text())
    return {name: int(number, 0) for name, number in pairs}


def test_c_has_the_same_places() -> None:
    """A field that lies elsewhere in C would write records that Python cannot read."""
    numbers = c_numbers()
    places = {name: at for name, at in numbers.items() if name.endswith("_AT")}
    assert places == {f"{name.upper()}_AT": record.offset_of(name) for name in record.FIELDS}
    assert numbers["HEAD_BYTES"] == record.HEAD.size
    assert numbers["HEAD_BYTES"] + numbers["LENGTHS_BYTES"] == record.OVERHEAD_BYTES
    assert numbers["MAGIC"] == record.MAGIC & 0xFFFFFFFF
    assert numbers["V6_FLAGS"] == record.BORN_HOST_V6 | record.STORE_HOST_V6
    assert numbers["ENTRY_BYTES"] == ENTRY_BYTES


def test_the_layout_is_rocketmqs() -> None:
    """Reference §1.1; a change here makes stores that RocketMQ cannot read."""
    assert record.HEAD.format == ">iiiiiqqiq8sq8siqi"
    assert record.layout_of(bytes(20), bytes(20)).format == ">iiiiiqqiq20sq20siqi"


def test_a_part_of_the_header_is_read_at_its_place() -> None:
    """Each field is read alone as it is read with all others."""
    values = [
        n if code != "8s" else bytes([n] * 8) for n, code in enumerate(record.FIELDS.values())
    ]
    head = record.HEAD.pack(*values)
    for name, value in zip(record.FIELDS, values, strict=True):
        assert record.layout_of_fields(name).unpack_from(head) == (value,)
    ends = record.layout_of_fields("size", "body_size")
    assert ends.unpack_from(head) == (values[0], values[-1])


@pytest.mark.parametrize(
    ("transaction", "entry", "indexed"),
    [
        (0, True, True),
        (record.PREPARED, False, True),
        (record.COMMITTED, True, True),
        (record.ROLLBACK, False, False),
    ],
)
def test_what_has_an_entry_and_what_is_indexed(
    transaction: int, entry: bool, indexed: bool
) -> None:
    """As RocketMQ dispatches, whatever the other flags are."""
    for others in (0, 0x01, 0x10, 0x20, 0xF1):
        assert record.has_entry(transaction | others) == entry
        assert record.is_indexed(transaction | others) == indexed
