"""Deletes topics, and says before what is lost with one.

The queues of a deleted topic are empty from then on, for all readers and after every crash; its
records stay in the log until retention takes them, so a message can still be looked at by its
offset id.  Messages that wait for the topic become dead letters when they are due, with the
reason.  Offsets in the topic are forgotten: they must not skip messages of a new one.
"""

from __future__ import annotations

import logging

from rmqlite.features.operating.progress import Progress
from rmqlite.features.operating.requests import TopicLoss, TopicReader
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import queue_ranges
from rmqlite.kernel.words.names import is_dlq, is_system

log = logging.getLogger(__name__)


class Deleting:
    """Deletes what its tables have."""

    def __init__(self, parts: BrokerParts, progress: Progress) -> None:
        self._parts = parts
        self._progress = progress
        self._store = parts.store
        self._topics = parts.topics
        self._offsets = parts.offsets

    def loss(self, topic: str) -> Steps[TopicLoss]:
        """What is lost with a topic, in steps.

        Raises TopicUnknown; InvalidName for a topic of the broker.
        """
        self._topics.check_deletable(topic)
        info = self._topics.existing(topic)
        waiting = sum([counts[topic] for counts in self._store.progress.pending.values()])
        queues = max(info.read_queues, info.write_queues)
        ranges = yield from queue_ranges(self._store, topic, queues)
        unread: dict[str, int] = {}
        left = {each.queue: each.max_offset - each.min_offset for each in ranges}
        of_nobody = left.copy()
        for group in self._parts.groups_at(topic):
            progress = yield from self._progress.of_queues(group, topic)
            unread[group] = sum([each.lag for each in progress])
            of_nobody |= {
                each.queue: min(each.lag, of_nobody.get(each.queue, 0))
                for each in progress
                if not each.has_no_lag
            }
            yield
        readers = [
            TopicReader(group, lag, self._members(group, topic)) for group, lag in unread.items()
        ]
        return TopicLoss(
            topic, sum(left.values()), sum(of_nobody.values()), waiting, tuple(readers)
        )

    def _members(self, group: str, topic: str) -> int:
        """How many members of a group read a topic now."""
        members = self._parts.membership.members(group)
        return sum([topic in [read.topic for read in each.subscriptions] for each in members])

    def delete_topic(self, topic: str) -> None:
        """Delete a topic; one that does not exist is no error.

        Raises InvalidName for a topic of the broker; Overloaded: nothing has changed;
        StoreUnavailable: nothing has changed, or the topic is empty and still exists.
        """
        self._topics.check_deletable(topic)
        # First, because a topic of this name can be made again right after the other step.
        self._store.deletions.empty(topic, self._store.end)
        if self._topics.get(topic) is not None:
            self._topics.delete(topic)
            log.info("topic deleted topic=%s", topic)
        self._offsets.forget_topic(topic)

    def delete_unused(self) -> Steps[int]:
        """Delete the queues of topics that do not exist, one in each step; how many topics."""
        unused = {
            topic
            for topic, queue_id in self._store.queue_keys()
            if self._is_unused(topic)
            and (queue := self._store.queue(topic, queue_id)) is not None
            and queue.min_offset < queue.max_offset
        }
        for topic in sorted(unused):
            yield
            # It may have been made again meanwhile.
            if self._is_unused(topic):
                self.delete_topic(topic)
        return len(unused)

    def _is_unused(self, topic: str) -> bool:
        return self._topics.get(topic) is None and not is_system(topic)

    def forget_old(self) -> None:
        """Forget a deletion whose records retention has taken.  Raises StoreUnavailable.

        Places in a topic that exists, or in one of dead letters, must never mean another
        message: groups have offsets there, and redrive jobs remember dead letters by their places.
        """
        for topic, deleted in self._store.deletions.topics.topics.items():
            is_gone = deleted.physical_end <= self._store.min_offset
            if is_gone and not is_dlq(topic) and self._topics.get(topic) is None:
                self._store.deletions.forget(topic)
                return
