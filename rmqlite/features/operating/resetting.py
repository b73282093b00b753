"""Lets a group go on from another place: at a time, at an end of its queues, or at one offset.

The places become the group's committed offsets, as if it had consumed up to there.  Members hold
their own places and commit them, so a reset is refused while the group has any.
"""

from __future__ import annotations

import logging

from rmqlite.features.operating.progress import Progress
from rmqlite.features.operating.requests import OffsetReset, QueueReset
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.pulling import queue_range
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.tables.topics import check_queue
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import check_not_long_ago
from rmqlite.kernel.words.names import retry_topic

log = logging.getLogger(__name__)


class Resetting:
    """Resets the offsets of one broker's groups."""

    def __init__(self, parts: BrokerParts, progress: Progress) -> None:
        self._parts = parts
        self._progress = progress

    def preview(self, request: OffsetReset) -> Steps[tuple[QueueReset, ...]]:
        """Where each queue would go on, in steps.

        Raises GroupUnknown, TopicUnknown, QueueUnknown, InvalidValue.
        """
        self._parts.groups.existing(request.group)
        wanted = yield from self._wanted(request)
        committed = self._parts.offsets.of(request.group)
        resets = []
        for queue, after in sorted(wanted.items()):
            yield
            known = queue_range(self._parts.store, queue)
            # A time before the first message, or a retention meanwhile.
            after = max(after, known.min_offset)
            before = committed.get(queue)
            resets.append(QueueReset(queue, known.min_offset, known.max_offset, before, after))
        return tuple(resets)

    def reset(self, request: OffsetReset) -> Steps[tuple[QueueReset, ...]]:
        """Commit the places of preview().  Raises its errors, GroupInUse, Overloaded."""
        self._parts.membership.check_unused(request.group, force=request.force)
        resets = yield from self.preview(request)
        # Members may have come meanwhile, and a topic may be gone.
        self._parts.membership.check_unused(request.group, force=request.force)
        offsets = {each.queue: each.after for each in resets}
        for queue in offsets:
            topic = self._parts.topics.existing(queue.topic)
            check_queue(topic, queue.queue_id, topic.read_queues)
        self._parts.offsets.check(request.group, offsets)
        self._parts.offsets.commit(request.group, offsets, is_reset=True)
        log.info(
            "offsets reset group=%s topic=%s queues=%d again=%d skipped=%d",
            request.group,
            request.topic or "",
            len(resets),
            sum([each.again for each in resets]),
            sum([each.skipped for each in resets]),
        )
        return resets

    def _wanted(self, request: OffsetReset) -> Steps[dict[Queue, int]]:
        if request.queue_id is not None or request.queue_offset is not None:
            return self._one(request)
        check_not_long_ago("timestamp_ms", request.timestamp_ms)
        wanted: dict[Queue, int] = {}
        for topic in [request.topic] if request.topic is not None else self._topics(request.group):
            read_queues = self._parts.topics.existing(topic).read_queues
            found = yield from self._progress.offsets_at(
                request.group, topic, request.timestamp_ms, may_advance=True
            )
            wanted |= {queue: at for queue, at in found.items() if queue.queue_id < read_queues}
        return wanted

    def _one(self, request: OffsetReset) -> dict[Queue, int]:
        """The queue and the offset that a request names."""
        at = request.queue_offset
        for field, value in (("queue_id", request.queue_id), ("queue_offset", at)):
            if value is None:
                raise InvalidValue(field, "", "given, because the other one is")
        for field, given in (
            ("topic", request.topic is None),
            ("timestamp_ms", request.timestamp_ms),
        ):
            if given:
                raise InvalidValue(field, given, "the topic of the queue, without a time")
        assert request.queue_id is not None
        assert at is not None
        assert request.topic is not None
        topic = self._parts.topics.existing(request.topic)
        check_queue(topic, request.queue_id, topic.read_queues)
        queue = Queue(request.topic, request.queue_id)
        known = queue_range(self._parts.store, queue)
        if not known.min_offset <= at <= known.max_offset:
            rule = f"{known.min_offset} to {known.max_offset}, what {queue.topic} queue"
            raise InvalidValue("queue_offset", at, f"{rule} {queue.queue_id} holds")
        return {queue: at}

    def _topics(self, group: str) -> list[str]:
        """The topics that a group reads or has read, without its retries."""
        read = {queue.topic for queue in self._parts.offsets.of(group)}
        for member in self._parts.membership.members(group):
            read |= {each.topic for each in member.subscriptions}
        existing = [topic for topic in read if self._parts.topics.get(topic)]
        return sorted({*existing} - {retry_topic(group)})
