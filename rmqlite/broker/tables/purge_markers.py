"""Markers up to which a group's dead letters are hidden: config/deadLetterMarkers.json.

A purge moves a marker, a queue offset; the front answers when it is on disk.  The log
is never rewritten: the letters stay until retention removes them, a consumer of the %DLQ%
topic still gets them, and a restore shows them again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from rmqlite.names import dlq_topic, group_of, is_dlq
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.message_store import MessageStore
from rmqlite.store.tables.table_changes import put_all
from rmqlite.store.tables.tables import Snapshot
from rmqlite.table_shapes import PurgeMarkersTable

TABLE: Final = "deadLetterMarkers.json"

log = logging.getLogger(__name__)


class PurgeMarkers:
    """The first queue offset that is shown, by group and queue id."""

    def __init__(self, store: MessageStore) -> None:
        """Raises StoreDamaged for a table that cannot be read."""
        self._store = store
        self._markers: dict[str, dict[int, int]] = {}
        table = store.load_table(TABLE, PurgeMarkersTable) or PurgeMarkersTable()
        for topic, by_queue in table.offset_table.items():
            for queue_id, marker in by_queue.items():
                self._load(topic, queue_id, marker)

    def begin(self, group: str, queue_id: int) -> int:
        """The queue offset of the first letter that is or will be shown."""
        marker = self._markers.get(dlq_topic(group), {}).get(queue_id, 0)
        queue = self._store.queue(dlq_topic(group), queue_id)
        return max(marker, queue.min_offset) if queue else marker

    def move(self, group: str, markers: Mapping[int, int]) -> None:
        """Move a group's markers, by queue id; written with the next sync."""
        of_topic = self._markers.setdefault(dlq_topic(group), {})
        before = put_all(of_topic, markers)
        self._store.table_changes.add(TABLE, self._snapshot, partial(put_all, of_topic, before))

    def _snapshot(self) -> Snapshot:
        """In the shape of RocketMQ's tables of offsets: topic -> queue id -> offset."""
        markers = {topic: dict(each) for topic, each in sorted(self._markers.items()) if each}
        return lambda: {"offsetTable": markers}

    def _load(self, topic: str, queue_id: int, marker: int) -> None:
        queue = self._store.queue(topic, queue_id)
        end = queue.max_offset if queue else 0
        if marker > end:
            # The marker is from a longer log: letters that come now were never purged.
            log.warning(
                "purge marker beyond its queue topic=%s queue=%d marker=%d end=%d",
                topic,
                queue_id,
                marker,
                end,
            )
        self._markers.setdefault(topic, {})[queue_id] = max(0, min(marker, end))


def dead_letter_queues(store: MessageStore) -> dict[str, dict[int, ConsumeQueue]]:
    """Every group's queues of dead letters by their ids; groups sorted by name."""
    found: dict[str, dict[int, ConsumeQueue]] = {}
    for topic, queue_id in sorted(store.queue_keys()):
        group = group_of(topic) if is_dlq(topic) else ""
        queue = store.queue(topic, queue_id)
        if group and queue is not None:
            found.setdefault(group, {})[queue_id] = queue
    return found
