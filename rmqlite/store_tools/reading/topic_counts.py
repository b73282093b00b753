"""Counts messages, pending ones and bytes of each topic in a snapshot.

The log is walked once.  A record counts if it is sound, and lies in its queue or waits for
its topic.  A repaired place does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from rmqlite.kernel.records import record
from rmqlite.kernel.records.completion import topic_ahead
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.records.wait_queues import wait_queue_of
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.store_tools.reading.log_view import windows
from rmqlite.store_tools.reading.snapshot import Snapshot

"""Half messages of transactions, and repaired places."""


class TopicCount(NamedTuple):
    """messages: in the topic's queues.  pending: waiting for the topic.  bytes: of both."""

    messages: int = 0
    pending: int = 0
    bytes: int = 0

    def plus(self, other: TopicCount) -> TopicCount:
        return TopicCount(*map(sum, zip(self, other, strict=True)))


TopicCounts = dict[str, TopicCount]


def total(counts: Iterable[TopicCount]) -> TopicCount:
    """The sum of all counts."""
    added = TopicCount()
    for each in counts:
        added = added.plus(each)
    return added


def count_topics(snapshot: Snapshot) -> TopicCounts:
    """The counts of each topic, by name; takes about 2 µs for each record of the log."""
    queues = {key: _Queue() for key in snapshot.queues}
    pending = defaultdict[str, list[int]](lambda: [0, 0])
    walk = windows(snapshot.log, snapshot.begin, snapshot.end)
    for head in chain.from_iterable(window.heads for _, window in walk):
        key = (head.topic, head.queue_id)
        view, offset = snapshot.queues.get(key), head.queue_offset
        if not record.has_entry(head.sys_flag) or view is None:
            continue
        if not view.min_offset <= offset < view.max_offset:
            continue
        wait_queue = wait_queue_of(*key)
        if not wait_queue:
            queues[key].add(head)
            continue
        waits = snapshot.wait_view(wait_queue)
        if waits is not None and waits.is_pending(offset):
            counts = pending[topic_ahead(PropertyString(head.properties))]
            counts[0] += 1
            counts[1] += head.size
    return _by_topic(queues, pending)


class _Queue:
    """The counts of one queue."""

    __slots__ = ("bytes", "messages", "next")

    def __init__(self) -> None:
        self.messages = self.bytes = self.next = 0

    def add(self, head: Head) -> None:
        if head.queue_offset < self.next:
            # Its topic was deleted and made again.
            self.messages = self.bytes = 0
        self.messages += 1
        self.bytes += head.size
        self.next = head.queue_offset + 1


def _by_topic(queues: dict[QueueKey, _Queue], pending: dict[str, list[int]]) -> TopicCounts:
    found = defaultdict[str, TopicCount](TopicCount)
    for (topic, _), queue in sorted(queues.items()):
        if queue.messages:
            found[topic] = found[topic].plus(TopicCount(queue.messages, 0, queue.bytes))
    for topic, (count, size) in sorted(pending.items()):
        found[topic] = found[topic].plus(TopicCount(0, count, size))
    return dict(sorted(found.items()))
