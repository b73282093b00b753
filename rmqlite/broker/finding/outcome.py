"""How the wait of a scheduled record ended: what completed it is found by its message id."""

from __future__ import annotations

from collections.abc import Iterator

from rmqlite.names import CANCELLED_TOPIC, SCHEDULE_TOPIC
from rmqlite.store.completion import UNDELIVERABLE_TOPIC, Completion, completion_of
from rmqlite.store.log.repaired_place import is_repaired
from rmqlite.store.message_store import MessageStore
from rmqlite.store.record import Head, read_outline


def how_it_ended(store: MessageStore, end: int, message_id: str, topic: str) -> Completion:
    """What became of a scheduled record that does not wait any more.

    end: the physical offset at which it ends.  topic: where it was going.  Without another
    trace it was delivered: RocketMQ leaves none, and retention may have taken ours.
    """
    # The delivery last: of a topic's messages with the same id there may be many.
    for place in (CANCELLED_TOPIC, UNDELIVERABLE_TOPIC, SCHEDULE_TOPIC, topic):
        for head in outlines(store, place, message_id):
            if head.completes == end:
                return completion_of(head.topic, head.properties)
            if head.physical_offset < end:
                break
    return Completion.DELIVERED


def outlines(store: MessageStore, topic: str, key: str, below: int | None = None) -> Iterator[Head]:
    """The records of a topic that may have this key or message id, the newest first.

    Their bodies are not read.  below: only records before this physical offset.
    """
    for physical_offset in store.index.find(topic, key):
        if below is None or physical_offset < below:
            head = outline_at(store, physical_offset)
            if head is not None and head.topic == topic:
                yield head


def outline_at(store: MessageStore, physical_offset: int) -> Head | None:
    """The record that begins there, its body not read; None if there is none.

    A body may hold what looks like a record: of an offset that somebody gives only the
    queue's entry says whether one begins there, see is_entered().
    """
    size = int.from_bytes(store.read(physical_offset, 4), "big")
    head = read_outline(store.read, physical_offset, size)
    return None if head is None or is_repaired(head) else head


def is_entered(store: MessageStore, head: Head) -> bool:
    """Does its queue know the record, at the queue offset that it has?"""
    queue = store.queue(head.topic, head.queue_id)
    entry = queue.entry(head.queue_offset) if queue else None
    return entry is not None and entry.physical_offset == head.physical_offset
