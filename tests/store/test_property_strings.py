"""The fast way to a record's properties gives what its head gives, or leaves it to that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.record import NewRecord, read_head
from rmqlite.kernel.store.log.raw_records import property_strings
from rmqlite.kernel.words.message import pack_host
from tests.support.brokers import BrokerUnderTest
from tests.support.golden import INDEX, unpack_golden
from tests.support.stores import new_record


def test_every_record_that_rocketmq_wrote_has_the_same_properties(tmp_path: Path) -> None:
    """Of any topic, transactions included."""
    root = unpack_golden(tmp_path)
    broker = BrokerUnderTest(root / "clean", **INDEX)
    count = 0
    for topic, queue_id in broker.store.queue_keys():
        queue = broker.store.queue(topic, queue_id)
        assert queue is not None
        entries = queue.read(queue.min_offset, 1 << 30)
        heads = broker.store.read_records(entries, check_bodies=False)
        strings = property_strings(entries, broker.store.read_each)
        for walked, properties in zip(heads, strings, strict=True):
            assert walked is not None
            assert properties == walked.head.properties
            count += 1
    assert count > 2_000
    broker.store.release()


RECORDS = [
    new_record("body", properties={"a": "1"}),
    new_record("", properties={}),
    new_record(bytes(5_000), "t" * 127, properties={"a": "x" * 32_000}),
    new_record("half", sys_flag=0x04, properties={"a": "2"}),
]
V6 = pack_host("[::1]:80")
ODD = [
    new_record("born", born_host=V6),
    new_record("stored", store_host=V6),
    new_record("lost", sys_flag=0x0C, reconsume_times=-1),
]


def laid_out(record: NewRecord, physical_offset: int = 100) -> tuple[Entry, bytes]:
    """A record at a place, and its entry."""
    data = encode(record, queue_offset=3, physical_offset=physical_offset, store_timestamp_ms=5)
    return Entry(physical_offset, len(data), 0), data


def properties_in(entry: Entry, data: bytes, base: int = 100) -> bytes | None:
    def read_each(spans: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        for at, size in spans:
            yield data[at - base : at - base + size]

    (found,) = property_strings([entry], read_each)
    return found


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_as_nearly_all_are(record: NewRecord) -> None:
    """With any body, topic and properties."""
    assert properties_in(*laid_out(record)) == record.properties.encoded


@pytest.mark.parametrize("record", ODD)
def test_longer_heads_and_repaired_places_are_left_to_others(record: NewRecord) -> None:
    """Rare, and dearer to tell apart than to read."""
    assert properties_in(*laid_out(record)) is None


def test_no_broken_record_has_properties() -> None:
    """Cut anywhere, and with any one byte of its head or tail changed: as its head says."""
    entry, data = laid_out(new_record("body", properties={"a": "1", "TAGS": "b"}))
    for size in range(len(data)):
        assert properties_in(entry, data[:size]) is None
    assert properties_in(entry._replace(physical_offset=101), b"x" + data) is None
    assert properties_in(entry._replace(size=entry.size - 1), data) is None
    for at in range(len(data)):
        for value in (0, 0x7F, 0xFF, data[at] ^ 1):
            broken = data[:at] + bytes([value]) + data[at + 1 :]
            head = read_head(broken)
            found = properties_in(entry, broken)
            if found is not None and head is not None:
                assert found == head.properties
