"""Records of queue entries without their bodies, many at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from typing import Final

from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.record import Head, read_outline
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.store.log.raw_records import property_strings
from rmqlite.kernel.store.log.repaired_place import is_repaired
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.errors import MessageNotFound

WHOLE_BYTES_MAX: Final = 16 << 10
"""The body of a larger record is not read if only its head is wanted."""


def read_heads(store: MessageStore, entries: Sequence[Entry]) -> Iterator[Head | None]:
    """The records of entries; small neighbours are read together.

    None for an unreadable record and for a repaired place.
    """
    small: list[Entry] = []
    for entry in entries:
        if entry.size <= WHOLE_BYTES_MAX:
            small.append(entry)
            continue
        yield from _small(store, small)
        small = []
        head = read_outline(store.read, entry.physical_offset, entry.size)
        yield None if head is None or is_repaired(head) else head
    yield from _small(store, small)


def read_properties(store: MessageStore, entries: Sequence[Entry]) -> Iterator[bytes | None]:
    """The property strings of entries' records, for half of what read_heads() costs.

    None for an unreadable record and for a repaired place.
    """
    if any(entry.size > WHOLE_BYTES_MAX for entry in entries):
        for head in read_heads(store, entries):
            yield head.properties if head else None
        return
    for entry, properties in zip(entries, property_strings(entries, store.read_each), strict=True):
        if properties is None:
            (head,) = read_heads(store, [entry])
            properties = head.properties if head else None
        yield properties


def _small(store: MessageStore, entries: Sequence[Entry]) -> Iterator[Head | None]:
    for walked in store.read_records(entries, check_bodies=False):
        yield walked.head if walked else None


def outlines(
    store: MessageStore,
    topic: str,
    *keys: str,
    named: Iterable[int] = (),
    below: int | None = None,
) -> Iterator[Head]:
    """The records of a topic that may have one of these keys or message ids, the newest first.

    Their bodies are not read.  named: physical offsets of more records.  below: only records
    before this physical offset.
    """
    found = [store.index.find(topic, key) for key in keys]
    for physical_offset, _ in groupby(merge(*found, sorted(named, reverse=True), reverse=True)):
        if below is None or physical_offset < below:
            head = outline_at(store, physical_offset)
            if head is not None and head.topic == topic:
                yield head


def record_at(store: MessageStore, physical_offset: int) -> Record:
    """The record at an offset that a user has named.

    Raises MessageNotFound, also for bytes of a body that look like a record: whoever sent that
    body has chosen the topic, the group and the properties in it.  Raises StoreDamaged.
    """
    record = store.read_record(physical_offset)
    if not is_entered(store, record.head):
        raise MessageNotFound(physical_offset)
    return record


def outline_at(store: MessageStore, physical_offset: int) -> Head | None:
    """The record that begins there, its body not read; None if there is none.

    A body may contain bytes that look like a record: an offset from a user is for record_at().
    """
    size = int.from_bytes(store.read(physical_offset, 4), "big")
    head = read_outline(store.read, physical_offset, size)
    return None if head is None or is_repaired(head) else head


def is_entered(store: MessageStore, head: Head) -> bool:
    """Has the record's queue an entry for it, at the record's queue offset?"""
    queue = store.queue(head.topic, head.queue_id)
    entry = queue.entry(head.queue_offset) if queue else None
    return entry is not None and entry.physical_offset == head.physical_offset
