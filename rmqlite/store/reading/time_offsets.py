"""The first queue offset of every queue that was stored at or after a time.

Store timestamps never go back in the log, so the entries in a queue's files are searched by
halves; later records are walked once for all queues.
"""

from __future__ import annotations

from rmqlite.store.consume_queue import first_stored_at
from rmqlite.store.dispatch import QueueKey
from rmqlite.store.reading.log_view import LogWalk
from rmqlite.store.reading.snapshot import Snapshot


def offsets_at(snapshot: Snapshot, timestamp_ms: int) -> dict[QueueKey, int]:
    """The first such offset of each queue; its end if there is none."""
    found = {}
    for key, queue in snapshot.queues.items():
        filed = range(queue.min_offset, max(queue.min_offset, queue.filed))
        timestamp_of = snapshot.log.timestamp_at
        found[key] = first_stored_at(filed, queue.entry, timestamp_of, timestamp_ms)
    walk = LogWalk(snapshot.log, snapshot.known_end, snapshot.end)
    for window in walk:
        for head in window.heads:
            if head.store_timestamp_ms >= timestamp_ms:
                return found
            key = (head.topic, head.queue_id)
            if key in found and head.queue_offset >= found[key]:
                found[key] = head.queue_offset + 1
    return found
