"""How far groups are in their queues: LAG, the age of what waits, the time of the last progress.

LAG is what QueueProgress.lag says, on every protocol and page: all of them ask here.  A group has
it in the topics that its members read; without a member, in those where it has an offset; and
always in its retry topic.  Of a broadcasting group nobody knows how far it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Final

from rmqlite.features.figures.traffic import Traffic
from rmqlite.features.leases.lease_table import LeaseTable
from rmqlite.features.operating.requests import (
    GroupProgress,
    GroupStatus,
    QueueProgress,
    QueueTimes,
    TakenQueue,
)
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import offset_at, queue_range
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable
from rmqlite.kernel.words.names import retry_topic

_STEP_QUEUES: Final = 100
"""The queues of one step: each one reads two records, 3 ms together."""
_STEP_SEARCHES: Final = 20
"""The queues that one step searches: each search reads about twenty records."""


class Progress:
    """Compares committed offsets with queues."""

    def __init__(self, parts: BrokerParts, traffic: Traffic, leases: LeaseTable) -> None:
        self._store = parts.store
        self._topics = parts.topics
        self._offsets = parts.offsets
        self._membership = parts.membership
        self._groups = parts.groups
        self._clock = parts.clock
        self._counts = parts.counts
        self._traffic = traffic
        self._leases = leases
        self._started_at_ms = parts.clock.now_ms()

    @property
    def in_flight(self) -> int:
        """How many messages are leased."""
        return self._leases.total.leased

    def status(self, group: str) -> Steps[GroupStatus]:
        """Settings, members, and progress in every queue that it has to read, in steps."""
        info = self._groups.existing(group)
        progress = yield from self.of_queues(group)
        members = self._membership.members(group)
        is_broadcasting = self._membership.is_broadcasting(group)
        expired, now_ms = self._counts.expired[group], self._clock.now_ms()
        held_back_at_ms = self._counts.held_back_at_ms.get(group, 0)
        return GroupStatus(
            info, members, progress, is_broadcasting, now_ms, held_back_at_ms, expired
        )

    def of_queues(
        self, group: str, topic: str = "", *, with_unused: bool = False
    ) -> Steps[tuple[QueueProgress, ...]]:
        """A group's progress in one topic, or in every topic that it reads or has read and in its
        retries; in steps.  with_unused: also in empty queues that no member reads.
        """
        read, retries = self._membership.topics(group), retry_topic(group)
        readers, in_flight = self._membership.readers(group), self._leases.leased(group)
        is_broadcasting = self._membership.is_broadcasting(group)
        committed = yield from self._offsets.by_topic(group)
        progress: list[QueueProgress] = []
        for name in [topic] if topic else sorted({*committed, *read, retries}):
            offsets = committed.get(name, {})
            is_left = bool(read) and name not in read and name != retries
            for queue_id in sorted({*range(self._topics.read_queues(name)), *offsets}):
                queue = Queue(name, queue_id)
                is_used = queue in readers or queue_id in offsets or self._has_any(queue)
                if not is_used and not with_unused:
                    continue
                if len(progress) % _STEP_QUEUES == _STEP_QUEUES - 1:
                    yield
                progress.append(
                    self._of_queue(
                        group,
                        queue,
                        offsets.get(queue_id),
                        readers.get(queue, ""),
                        in_flight.get(queue, 0),
                        has_no_lag=is_left or is_broadcasting,
                    )
                )
        return self._limited(group, progress)

    def _limited(self, group: str, progress: Sequence[QueueProgress]) -> tuple[QueueProgress, ...]:
        """A group is not silent in a queue for which its rate limit had no message so far."""
        info = self._groups.get(group)
        if info is None or not info.max_per_second:
            return tuple(progress)
        busy, now_ms = sum([each.lag > 0 for each in progress]), self._clock.now_ms()
        turn_ms = min(1_000 * busy / info.max_per_second, now_ms)
        return tuple(
            [
                replace(each, silent_since_ms=min(int(each.silent_since_ms + turn_ms), now_ms))
                if each.silent_since_ms
                else each
                for each in progress
            ]
        )

    def _of_queue(
        self,
        group: str,
        queue: Queue,
        committed: int | None,
        client_id: str,
        in_flight: int,
        *,
        has_no_lag: bool,
    ) -> QueueProgress:
        stored = self._store.queue(queue.topic, queue.queue_id)
        low, high = (stored.min_offset, stored.max_offset) if stored else (0, 0)
        begin = max(committed or 0, low)
        progressed_at_ms = self._offsets.progressed_at_ms(group, queue)
        oldest_ms = since_ms = 0
        if begin < high and not has_no_lag:
            # A disk that cannot be read hides no other figure.
            with suppress(StoreDamaged, StoreUnavailable):
                oldest_ms = self._stored_ms(queue, begin) or 0
            since_ms = max(oldest_ms, progressed_at_ms or self._started_at_ms)
            client_id = self._leases.holder(group, queue, begin) or client_id
        return QueueProgress(
            queue,
            low,
            high,
            committed,
            client_id,
            in_flight,
            has_no_lag,
            oldest_ms,
            progressed_at_ms,
            since_ms,
        )

    def _has_any(self, queue: Queue) -> bool:
        stored = self._store.queue(queue.topic, queue.queue_id)
        return stored is not None and stored.max_offset > 0

    def of_group(self, group: str, topic: str = "") -> Steps[tuple[GroupProgress, ...]]:
        """A group's progress in one topic, or in all topics in which it has an offset or a LAG."""
        found = []
        every = yield from self.of_queues(group, topic, with_unused=True)
        for name, each in groupby(every, lambda progress: progress.queue.topic):
            queues = [progress for progress in each if not progress.has_no_lag]
            is_used = any([each.committed_offset is not None or each.lag for each in queues])
            if self._topics.get(name) is None or not (is_used or (queues and topic)):
                continue
            taken = []
            for number, progress in enumerate(queues):
                if number % _STEP_QUEUES == _STEP_QUEUES - 1:
                    yield
                taken.append(self._taken(progress))
            per_second = self._traffic.of_group(name, group).minute.per_second
            found.append(GroupProgress(name, per_second, tuple(taken)))
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
        for queue_id in range(max(info.read_queues, info.write_queues)):
            if queue_id % _STEP_SEARCHES == _STEP_SEARCHES - 1:
                yield
            queue = Queue(topic, queue_id)
            stored = self._store.queue(queue.topic, queue.queue_id)
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

    def _taken(self, progress: QueueProgress) -> TakenQueue:
        queue, offset = progress.queue, progress.next_offset
        taken_ms = self._stored_ms(queue, offset - 1) or 0
        return TakenQueue(queue, progress.max_offset, offset, taken_ms)

    def _stored_ms(self, queue: Queue, queue_offset: int) -> int | None:
        stored = self._store.queue(queue.topic, queue.queue_id)
        entry = stored.entry(queue_offset) if stored else None
        return self._store.store_timestamp_ms(entry.physical_offset) if entry else None
