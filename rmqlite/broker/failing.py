"""What becomes of a message that a group has failed: one way for each protocol.

A consumer sends a message back, or its lease ends.  Either way retry.py decides, the record of the
retry or dead letter is made here, and whoever asked for it appends it.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqlite.broker.parts import BrokerParts
from rmqlite.broker.retry import Failure, after_failure, failed_record, times_failed
from rmqlite.errors import InvalidValue, Overloaded
from rmqlite.names import retry_topic
from rmqlite.records.record import NewRecord
from rmqlite.records.stored import Record
from rmqlite.records.wait_queues import WAIT_TOPICS
from rmqlite.requests.messages import SendBackRequest


class Failed(NamedTuple):
    """A retry, or a dead letter, and its record; count it once that is appended."""

    group: str
    failure: Failure
    record: NewRecord

    @property
    def topic(self) -> str:
        return self.failure.topic


class Failing:
    """Makes the records of failed messages, and the topics that these go to."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    def record(
        self,
        failed: Record,
        request: SendBackRequest,
        *,
        delay_ms: int | None = None,
        failed_in_place: int = 0,
    ) -> Failed:
        """What becomes of a message that a group failed.

        delay_ms: of a retry, instead of a level; 0 means at once.  failed_in_place: how often the
        group has failed it since its record was written.  Raises GroupUnknown, InvalidName,
        InvalidValue, PermissionMissing, StoreUnavailable.
        """
        parts = self._parts
        info = parts.with_retry_topic(request.group)
        retries = parts.topics.wanted(retry_topic(info.group))
        if failed.head.topic in WAIT_TOPICS:
            rule = "a message that a consumer can have received"
            raise InvalidValue("physical_offset", request.physical_offset, rule)
        now_ms, due_ms = parts.clock.now_ms(), None
        times = times_failed(failed.head, info.group) + failed_in_place
        level = parts.groups.retry_level(info.group, times)
        if delay_ms is not None:
            if self._is_timer(delay_ms):
                due_ms = now_ms + delay_ms if delay_ms > 0 else 0
            else:
                level = parts.store.levels.current.level_from(delay_ms)
        failure = after_failure(
            failed,
            request,
            info,
            level,
            now_ms,
            parts.room,
            due_ms=due_ms,
            failed_in_place=failed_in_place,
        )
        queue_id = 0
        if failure.is_dead:
            parts.topics.ensure(failure.topic, 1)
        else:
            # The topic's queues: the group's may have changed since its retry topic was made.
            queues = min(retries.read_queues, retries.write_queues)
            queue_id = request.physical_offset % max(1, queues)
        table = parts.store.levels.current
        return Failed(info.group, failure, failed_record(failed, failure, queue_id, table))

    def count(self, failed: Failed) -> None:
        counts = self._parts.counts
        counted = counts.dead if failed.failure.is_dead else counts.retried
        counted[failed.group] += 1

    def _is_timer(self, delay_ms: int) -> bool:
        """May a retry wait exactly so long?  If not, it waits at the next longer level."""
        if delay_ms <= 0:
            return True
        try:
            self._parts.timers.check("invisible_ms", delay_ms, delay_ms)
        except (InvalidValue, Overloaded):
            return False
        return True
