"""Checks the records that complete scheduled ones: which one, only once, not too early.

A delivery may not be early; a record that was fired, cancelled or rescheduled may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rmqlite.property_string import PropertyString
from rmqlite.records.completion import (
    completion_of,
    is_completing,
    topic_ahead,
    wait_queue_left,
    waited_for,
)
from rmqlite.records.record import Head
from rmqlite.records.wait_queues import queue_of, wait_queue_name
from rmqlite.store.checking.finding import Finding
from rmqlite.store.checking.queues import QueueCheck, QueueChecks
from rmqlite.store.commit_log import CommitLog
from rmqlite.store.dispatch import QueueKey
from rmqlite.store.progress import ScheduleProgress

POINTER: Final = "wrong-delivery"
EARLY: Final = "delivered-early"
AGAIN: Final = "delivered-again"


class Moment(NamedTuple):
    """The state of a walk at one point.

    queues: first and next queue offset.  completed: by level, ranges of queue offsets.
    pending: by level and topic, the number of waiting messages.
    """

    queues: dict[QueueKey, tuple[int, int]]
    completed: dict[int, list[tuple[int, int]]]
    pending: dict[int, dict[str, int]]


class DeliveryCheck:
    """Receives every record that completes a scheduled one, in the order of the log."""

    def __init__(self, log: CommitLog, queues: QueueChecks, log_begin: Callable[[], int]) -> None:
        """log_begin: the log's minimum now."""
        self.completed = ScheduleProgress()
        """The records completed so far in the log, and the pending ones by topic."""
        self._log = log
        self._queues = queues
        self._log_begin = log_begin
        self._guess: dict[int, int] = {}

    def scheduled(self, level: int, encoded: bytes) -> None:
        """Count a scheduled record."""
        self.completed.scheduled(level, topic_ahead(PropertyString(encoded)))

    def check_head(self, head: Head) -> Iterator[Finding]:
        """check() by the header of a record."""
        yield from self.check(
            head.physical_offset,
            head.topic,
            head.completes,
            head.properties,
            head.store_timestamp_ms,
            head.sys_flag,
        )

    def check(
        self,
        physical_offset: int,
        topic: str,
        completes: int,
        encoded: bytes,
        stored_ms: int,
        sys_flag: int = 0,
    ) -> Iterator[Finding]:
        """Check a record that points back to a scheduled one; encoded: its property string."""
        properties = PropertyString(encoded)
        if not is_completing(topic, sys_flag, properties):
            return
        level = wait_queue_left(topic, properties)
        key = queue_of(level)
        scheduled = self._queues.get(key)
        if completes <= self._log.min_offset or self._queues.is_unreadable(key):
            return
        if scheduled is not None and not scheduled.is_settled:
            return
        queue_offset = self._completed_by(level, completes, scheduled)
        entry = scheduled.entry(queue_offset) if scheduled and queue_offset is not None else None
        if queue_offset is None or entry is None:
            # No finding if retention has just removed the scheduled record.
            if completes > self._log_begin():
                said = f"completes {completes}, where no record of {wait_queue_name(level)} ends"
                yield self._at(physical_offset, POINTER, said)
            return
        if stored_ms < entry.tags_code and not completion_of(topic, properties).may_be_early:
            said = f"delivered {entry.tags_code - stored_ms} ms early"
            yield self._at(physical_offset, EARLY, said)
        completed = self.completed.of(level)
        if completed.next_open(queue_offset) != queue_offset:
            said = f"completes queue offset {queue_offset} of {wait_queue_name(level)} again"
            yield self._at(physical_offset, AGAIN, said)
        else:
            topics = {waited_for(topic, properties): 1}
            self.completed.complete(level, queue_offset, queue_offset + 1, topics)
        self._guess[level] = queue_offset + 1

    def _completed_by(self, level: int, completes: int, scheduled: QueueCheck | None) -> int | None:
        """The queue offset of the scheduled record that ends at `completes`."""
        if scheduled is None:
            return None
        # It nearly always follows the record that was completed last.
        guess = self._guess.get(level, 0)
        entry = scheduled.entry(guess)
        if entry is not None and entry.physical_offset + entry.size == completes:
            return guess
        return scheduled.ending_at(completes, guess)

    def _at(self, physical_offset: int, what: str, said: str) -> Finding:
        position = physical_offset % self._log.segment_bytes
        return Finding(self._log.path_at(physical_offset), position, what, said)
