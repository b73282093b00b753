"""The dead letters that are hidden: config/deadLetterMarkers.json.

A purge of all dead letters, or of the older ones, moves a queue's marker: every dead letter before
it is hidden.  A purge by a filter hides single dead letters behind the marker.  The log is never
rewritten: the dead letters stay until retention removes them, a consumer of the %DLQ% topic still
gets them, and a restore shows them again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from rmqlite.features.dead_letters.table_shapes import TABLE, PurgeMarkersTable
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.tables.logged_tables import Row
from rmqlite.kernel.words.names import dlq_topic, group_of, is_dlq

_NONE: Final = CompletedOffsets()

log = logging.getLogger(__name__)


class PurgeMarkers:
    """The queue offsets of hidden dead letters, by group and queue id."""

    def __init__(self, store: MessageStore) -> None:
        """Raises StoreDamaged for a table that cannot be read."""
        self._store = store
        self.version = 0
        """Rises with every change."""
        self._hidden: dict[QueueKey, CompletedOffsets] = {}
        table = store.tables.load(TABLE, PurgeMarkersTable) or PurgeMarkersTable()
        for topic, markers in table.offset_table.items():
            for queue_id, marker in markers.items():
                self._load((topic, queue_id), CompletedOffsets([(0, marker)]))
        for topic, letters in table.letter_table.items():
            for queue_id, tree in letters.items():
                self._load((topic, queue_id), CompletedOffsets.from_json(tree))

    def hidden(self, group: str, queue_id: int) -> CompletedOffsets:
        """The hidden dead letters of a queue; the caller must not change them."""
        return self._hidden.get((dlq_topic(group), queue_id), _NONE)

    def begin(self, group: str, queue_id: int) -> int:
        """The queue offset of the first dead letter that is or will be shown."""
        queue = self._store.queue(dlq_topic(group), queue_id)
        return max(self.hidden(group, queue_id).below, queue.min_offset if queue else 0)

    def hide(self, group: str, letters: Mapping[int, CompletedOffsets]) -> None:
        """Hide these dead letters of a group, by queue id, beside those that are hidden."""
        self.set(group, {n: self.hidden(group, n).union(each) for n, each in letters.items()})

    def set(self, group: str, letters: Mapping[int, CompletedOffsets]) -> None:
        """Hide these dead letters of a group, by queue id, and no others.

        Raises StoreUnavailable: nothing has changed.
        """
        topic = dlq_topic(group)
        rows: list[Row] = []
        # In the shape of RocketMQ's tables of offsets: topic -> queue id -> offset.
        for queue_id, hidden in letters.items():
            single = hidden.to_json() if hidden.count_above else None
            rows.append((("offsetTable", topic, str(queue_id)), hidden.below))
            rows.append((("letterTable", topic, str(queue_id)), single))
        self._store.change_table(TABLE, rows)
        self._hidden |= {(topic, queue_id): each for queue_id, each in letters.items()}
        self.version += 1

    def _load(self, key: QueueKey, hidden: CompletedOffsets) -> None:
        queue = self._store.queue(*key)
        end = queue.max_offset if queue else 0
        last = hidden.ranges()[-1:]
        if last and last[0][1] > end:
            # The marker is from a longer log: dead letters that come now were never purged.
            log.warning(
                "purge marker beyond its queue topic=%s queue=%d marker=%d end=%d",
                *key,
                last[0][1],
                end,
            )
            hidden = CompletedOffsets(
                [(start, min(until, end)) for start, until in hidden.ranges() if start < end]
            )
        self._hidden[key] = hidden.union(self._hidden.get(key, _NONE))


def dead_letter_queues(store: MessageStore) -> dict[str, dict[int, ConsumeQueue]]:
    """Every group's queues of dead letters by their ids; groups sorted by name."""
    found: dict[str, dict[int, ConsumeQueue]] = {}
    for topic, queue_id in sorted(store.queue_keys()):
        group = group_of(topic) if is_dlq(topic) else ""
        queue = store.queue(topic, queue_id)
        if group and queue is not None:
            found.setdefault(group, {})[queue_id] = queue
    return found
