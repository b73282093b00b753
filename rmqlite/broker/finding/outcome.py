"""Finds records by their keys and ids, and the record that completed a scheduled one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby

from rmqlite.broker.finding.matching import wanted_ids
from rmqlite.errors import MessageNotFound
from rmqlite.names import CANCELLED_TOPIC
from rmqlite.property_string import PropertyString
from rmqlite.records.completion import UNDELIVERABLE_TOPIC, Completion, completion_of
from rmqlite.records.record import Head, read_outline
from rmqlite.records.stored import Record
from rmqlite.records.wait_queues import WAIT_TOPICS
from rmqlite.store.log.repaired_place import is_repaired
from rmqlite.store.message_store import MessageStore


def how_it_ended(store: MessageStore, end: int, message_id: str, topic: str) -> Completion:
    """How the wait of a scheduled record ended; for one that waits no more.

    end: the physical offset at which it ends.  topic: its destination.  Without any trace it
    counts as delivered: RocketMQ leaves none, and retention may have removed ours.
    """
    # The destination comes last: it may have many messages with the same id.
    for place in (CANCELLED_TOPIC, UNDELIVERABLE_TOPIC, *WAIT_TOPICS, topic):
        for head in outlines(store, place, message_id):
            if head.completes == end:
                return completion_of(head.topic, PropertyString(head.properties))
            if head.physical_offset < end:
                break
    return Completion.DELIVERED


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


def named_offsets(store: MessageStore, ids: tuple[str, ...]) -> set[int]:
    """The physical offsets of the records that offset message ids and places among ids name."""
    wanted = wanted_ids(ids)
    found = set()
    for physical_offset in {int.from_bytes(each[-8:], "big") for each in wanted.offset_ids}:
        head = outline_at(store, physical_offset) if physical_offset < store.end else None
        if head is not None and is_entered(store, head):
            found.add(physical_offset)
    for place in wanted.places:
        queue = store.queue(place.topic, place.queue_id)
        entry = queue.entry(place.queue_offset) if queue else None
        if entry is not None:
            found.add(entry.physical_offset)
    return found


def outline_at(store: MessageStore, physical_offset: int) -> Head | None:
    """The record that begins there, its body not read; None if there is none.

    A body may contain bytes that look like a record: an offset from a user is for record_at().
    """
    size = int.from_bytes(store.read(physical_offset, 4), "big")
    head = read_outline(store.read, physical_offset, size)
    return None if head is None or is_repaired(head) else head


def record_at(store: MessageStore, physical_offset: int) -> Record:
    """The record at an offset that a user has named.

    Raises MessageNotFound, also for bytes of a body that look like a record: whoever sent that
    body has chosen the topic, the group and the properties in it.  Raises StoreDamaged.
    """
    record = store.read_record(physical_offset)
    if not is_entered(store, record.head):
        raise MessageNotFound(physical_offset)
    return record


def is_entered(store: MessageStore, head: Head) -> bool:
    """Has the record's queue an entry for it, at the record's queue offset?"""
    queue = store.queue(head.topic, head.queue_id)
    entry = queue.entry(head.queue_offset) if queue else None
    return entry is not None and entry.physical_offset == head.physical_offset
