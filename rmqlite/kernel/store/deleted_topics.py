"""Topics that were deleted: config/deletedTopics.json.

A deletion leaves the log as it is.  The table says, for each queue of a deleted topic, up to
which queue offset its records are dead: they have no entries any more, and no recovery makes
entries for them again.  If the topic is made again, its queues go on at these offsets, so that
no place in a queue ever means two messages.  RocketMQ ignores the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rmqlite.kernel.config.table_shapes import DeletedTopicsTable
from rmqlite.kernel.records.wait_queues import QueueKey
from rmqlite.kernel.store.tables.logged_tables import LoggedTables, Row

DELETED_TABLE: Final = "deletedTopics.json"


class Deleted(NamedTuple):
    """physical_end: the log's end at the deletion.  ends: the next queue offset, by queue id."""

    physical_end: int
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class DeletedTopics:
    """The deletions whose records the log may still have, by topic."""

    topics: Mapping[str, Deleted] = field(default_factory=dict)

    def is_dead(self, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> bool:
        """Was this record in a queue before its topic was deleted?"""
        deleted = self.topics.get(topic)
        return (
            deleted is not None
            and physical_offset < deleted.physical_end
            # RocketMQ counts from 0 again in a topic that it makes again.
            and queue_offset < deleted.ends.get(queue_id, 0)
        )

    def end_of(self, key: QueueKey) -> int:
        """The queue offset below which the queue's records are dead; 0: none is."""
        deleted = self.topics.get(key[0])
        return deleted.ends.get(key[1], 0) if deleted else 0

    def emptied_after(self, physical_offset: int) -> Iterator[tuple[QueueKey, int]]:
        """The queues that were emptied with the log's end there or later, and their offsets."""
        for topic, deleted in self.topics.items():
            if deleted.physical_end >= physical_offset:
                for queue_id, end in deleted.ends.items():
                    yield (topic, queue_id), end

    def with_records_after(self, physical_offset: int) -> tuple[str, ...]:
        """The topics that may have dead records behind a physical offset, sorted."""
        return tuple(
            sorted(
                [
                    topic
                    for topic, deleted in self.topics.items()
                    if deleted.physical_end > physical_offset
                ]
            )
        )

    def queues(self) -> Iterator[QueueKey]:
        for topic, deleted in self.topics.items():
            for queue_id in deleted.ends:
                yield topic, queue_id

    @property
    def queue_count(self) -> int:
        return sum([len(deleted.ends) for deleted in self.topics.values()])

    def row(self, topic: str) -> Row:
        """A topic's row of the table."""
        deleted = self.topics.get(topic)
        value = [deleted.physical_end, dict(deleted.ends)] if deleted else None
        return ("deletedTopics", topic), value


def load_deleted(tables: LoggedTables) -> DeletedTopics:
    """Raises StoreDamaged for a table that cannot be read."""
    table = tables.load(DELETED_TABLE, DeletedTopicsTable)
    rows = table.deleted_topics if table else {}
    return DeletedTopics({topic: Deleted(*row) for topic, row in rows.items()})
