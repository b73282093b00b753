"""The first queue offset of every queue that was stored at or after a time.

Store timestamps never go back in the log, so the entries in a queue's files are searched by
halves; later records are walked once for all queues.
"""

from __future__ import annotations

from rmqlite.store.dispatch import QueueKey
from rmqlite.store.reading.log_view import LogWalk
from rmqlite.store.reading.queue_view import QueueView
from rmqlite.store.reading.snapshot import Snapshot


def offsets_at(snapshot: Snapshot, timestamp_ms: int) -> dict[QueueKey, int]:
    """The first such offset of each queue; its end if there is none."""
    found = {
        key: _first_filed(snapshot, queue, timestamp_ms) for key, queue in snapshot.queues.items()
    }
    walk = LogWalk(snapshot.log, snapshot.known_end, snapshot.end)
    for window in walk:
        for head in window.heads:
            if head.store_timestamp_ms >= timestamp_ms:
                return found
            key = (head.topic, head.queue_id)
            if key in found and head.queue_offset >= found[key]:
                found[key] = head.queue_offset + 1
    return found


def _first_filed(snapshot: Snapshot, queue: QueueView, timestamp_ms: int) -> int:
    low = queue.min_offset
    high = max(low, queue.filed)
    while low < high:
        middle = (low + high) // 2
        entry = queue.entry(middle)
        stored_ms = snapshot.log.timestamp_at(entry.physical_offset) if entry else None
        if stored_ms is None or stored_ms < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low
