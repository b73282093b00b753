"""How far groups are, topic by topic, in steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from rmqlite.broker.figures.traffic import Traffic
from rmqlite.broker.pulling import offset_at, queue_range
from rmqlite.broker.steps import Steps
from rmqlite.broker.tables.membership import Membership
from rmqlite.broker.tables.offsets import ConsumerOffsets
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.requests.figures import QueueTimes, Taken, TakenQueue
from rmqlite.requests.topics import Queue, TopicInfo
from rmqlite.store.message_store import MessageStore

_STEP_QUEUES: Final = 100
"""The queues of one step: each one reads two records, 3 ms together."""
_STEP_SEARCHES: Final = 20
"""The queues that one step searches: each search reads about twenty records."""


class Progress:
    """Compares committed offsets with queues."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        membership: Membership,
        traffic: Traffic,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._membership = membership
        self._traffic = traffic

    def readers_of(self, topic: str) -> tuple[str, ...]:
        """See readers_of()."""
        return readers_of(topic, self._offsets, self._membership)

    def of_group(self, group: str, topic: str = "") -> Steps[tuple[Taken, ...]]:
        """A group's progress in one topic, or in all topics of which it has an offset."""
        found = []
        done = 0
        topics = {topic} if topic else (yield from self._offsets.by_topic(group)).keys()
        for info in self._read_topics(group, topics):
            queues = []
            for queue_id in range(info.read_queues):
                done += 1
                if done % _STEP_QUEUES == 0:
                    yield
                queues.append(self._taken(group, Queue(info.topic, queue_id)))
            per_second = self._traffic.of_group(info.topic, group).minute.per_second
            found.append(Taken(info.topic, per_second, tuple(queues)))
        return tuple(found)

    def offsets_at(
        self, group: str, topic: str, timestamp_ms: int | None, *, may_advance: bool
    ) -> Steps[dict[Queue, int]]:
        """Per queue, the first offset stored at or after a time; None: the queue's end.

        may_advance: False if a group must not be moved past messages that it has not taken.
        Raises TopicUnknown.
        """
        info = self._topics.existing(topic)
        committed = self._offsets.of(group)
        found = {}
        for queue_id in range(info.write_queues):
            if queue_id % _STEP_SEARCHES == _STEP_SEARCHES - 1:
                yield
            queue = Queue(topic, queue_id)
            stored = self._store.queue(*_key(queue))
            offset = 0
            if stored is not None:
                offset = stored.max_offset
                if timestamp_ms is not None:
                    offset = offset_at(self._store, stored, timestamp_ms)
            if not may_advance:
                offset = min(offset, committed.get(queue, offset))
            found[queue] = offset
        return found

    def times(self, group: str, topic: str) -> Steps[tuple[QueueTimes, ...]]:
        """When the messages of a topic were stored that a group has taken, and will take next.

        Raises TopicUnknown.
        """
        info = self._topics.existing(topic)
        committed = self._offsets.of(group)
        found = []
        for queue_id in range(info.write_queues):
            if queue_id % _STEP_QUEUES == _STEP_QUEUES - 1:
                yield
            queue = Queue(topic, queue_id)
            offset = committed.get(queue, 0)
            known = queue_range(self._store, queue)
            first_ms = self._stored_ms(queue, known.min_offset)
            last_ms = known.newest_timestamp_ms or None
            taken_ms = self._stored_ms(queue, offset - 1) if offset else first_ms
            found.append(
                QueueTimes(queue, first_ms, last_ms, taken_ms, self._stored_ms(queue, offset))
            )
        return tuple(found)

    def _read_topics(self, group: str, topics: Collection[str]) -> Iterator[TopicInfo]:
        """The existing ones of these topics, without those that no member reads any more."""
        members = self._membership.members(group)
        read = {each.topic for member in members for each in member.subscriptions}
        for name in sorted(topics):
            info = self._topics.get(name)
            if info is not None and (not members or name in read):
                yield info

    def _taken(self, group: str, queue: Queue) -> TakenQueue:
        offset = self._offsets.of(group).get(queue, 0)
        stored = self._store.queue(*_key(queue))
        end = stored.max_offset if stored else 0
        return TakenQueue(queue, end, offset, self._stored_ms(queue, offset - 1) or 0)

    def _stored_ms(self, queue: Queue, queue_offset: int) -> int | None:
        stored = self._store.queue(*_key(queue))
        entry = stored.entry(queue_offset) if stored else None
        return self._store.store_timestamp_ms(entry.physical_offset) if entry else None


def _key(queue: Queue) -> tuple[str, int]:
    return queue.topic, queue.queue_id


def readers_of(topic: str, offsets: ConsumerOffsets, membership: Membership) -> tuple[str, ...]:
    """The groups that have committed an offset in a topic, or have a member that reads it."""
    return tuple(sorted(offsets.groups_of(topic) | membership.groups_of(topic)))
