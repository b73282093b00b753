"""The wait of one scheduled record: its wait queue, its due time, and whether it still waits.

The due time is in the record's queue entry.  It was computed when the record was stored, and a
later change of the delay levels does not change it.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.records.wait_queues import wait_queue_of, when_due_ms
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.message import StoredMessage, encode_properties


class Wait(NamedTuple):
    """The wait of a record; entry is None if its queue does not have the record (any more)."""

    wait_queue: int
    due_ms: int
    is_pending: bool
    entry: Entry | None


def wait_of(store: MessageStore, stored: Head | StoredMessage) -> Wait | None:
    """The wait of a record; None for a record that is not scheduled."""
    topic, queue_id, offset = stored.topic, stored.queue_id, stored.queue_offset
    wait_queue = wait_queue_of(topic, queue_id)
    if not wait_queue:
        return None
    queue = store.queue(topic, queue_id)
    entry = queue.entry(offset) if queue else None
    if entry is None or entry.physical_offset != stored.physical_offset:
        encoded = (
            stored.properties if isinstance(stored, Head) else encode_properties(stored.properties)
        )
        due_ms = when_due_ms(store.levels, topic, queue_id, stored.store_timestamp_ms, encoded)
        return Wait(wait_queue, due_ms, False, None)
    is_pending = store.progress.of(wait_queue).next_open(offset) == offset
    return Wait(wait_queue, entry.tags_code, is_pending, entry)
