"""Which of RocketMQ's timers are pending: found in the log, by a walk that sees all its records.

RocketMQ 5 appends a timer to rmq_sys_wheel_timer, and completes it in one of three ways, none of
which points back to it (timer reference §4-§6):

    delivered   a record in its real topic, with the same TIMER_OUT_MS and UNIQ_KEY
    rolled      the whole timer is appended once more, with TIMER_ROLL_TIMES
    cancelled   a timer of the same TIMER_OUT_MS that names it in TIMER_DEL_UNIQKEY

So the log alone says which timers are pending.  RocketMQ's wheel, its timer log and its check
point are older than the log after a kill: RocketMQ itself delivers twice because of them, and
they are not read here.  A timer that is not pending is completed in our progress; neither it
nor any other byte of the log changes.  The walk that opens a store does this, and a reader when
it is asked for timers of a store that has not been opened here since.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rmqlite.message import TIMER_OUT_MS, UNIQ_KEY
from rmqlite.names import HALF_TOPIC
from rmqlite.property_string import PropertyString
from rmqlite.records.completion import topic_ahead
from rmqlite.records.record import Head
from rmqlite.records.stored import Record
from rmqlite.records.wait_queues import TIMERS, wait_queue_of
from rmqlite.store.disk.files import SIGNATURE, Files
from rmqlite.store.progress import ScheduleProgress

_NAMED: Final = "TIMER_DEL_UNIQKEY"
_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
_REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
"""How the topics of check points begin, which RocketMQ's POP consumers leave as timers."""
NEEDLE: Final = TIMER_OUT_MS.encode()
"""Bytes of every record that says something about a timer."""

logger = logging.getLogger(__name__)


def is_foreign_store(files: Files, root: Path) -> bool:
    """Had RocketMQ the store open last?  It overwrites the lock's file when it starts."""
    return (files.read_all(root / "lock") or SIGNATURE) != SIGNATURE


class TimerAdoption:
    """Sees the records of a walk in the order of the log, and completes what is not pending.

    It has about 300 bytes of memory for each pending timer, until the walk is over.
    """

    def __init__(self, progress: ScheduleProgress) -> None:
        self._progress = progress
        self._pending: dict[int, tuple[int, ...]] = {}
        """Timer -> its queue offsets that may be pending, oldest first: one, or more if its
        producer has sent the message more than once."""
        self._over: set[int] = set()
        """Timers of which a copy may follow that is not pending."""
        self._counts: Counter[str] = Counter()

    def load(self, pending: Iterable[tuple[int, Record | None]]) -> None:
        """Take over what is pending where the walk begins: queue offsets and records."""
        for queue_offset, found in pending:
            if found is not None:
                timer = _timer(topic_ahead(found.properties), found.head, found.properties)
                self._add(timer, queue_offset)

    def see(self, walked: Record) -> None:
        """A record that has its queue entry, and is counted as pending if it is a timer."""
        head = walked.head
        if NEEDLE not in head.properties or walked.properties.get(TIMER_OUT_MS) is None:
            return
        is_copy = walked.properties.get(_ROLL_TIMES) is not None
        if wait_queue_of(head.topic, head.queue_id) == TIMERS:
            self._see_timer(walked, is_copy=is_copy)
            return
        if head.completes:
            # Our own delivery, which points back.
            return
        timer = _timer(head.topic, head, walked.properties)
        is_ended = self._end_oldest(timer, head.topic, "delivered")
        if is_ended and is_copy and timer not in self._pending:
            # After a kill RocketMQ may hold one timer twice, and roll the other one later.
            self._over.add(timer)

    def _see_timer(self, walked: Record, *, is_copy: bool) -> None:
        head, properties = walked.head, walked.properties
        topic = topic_ahead(properties)
        named = properties.get(_NAMED)
        if named is not None:
            # Of two forms: topic+UNIQ_KEY from 5.3.2 to 5.3.3, UNIQ_KEY before and after.
            named = named.removeprefix(f"{topic}+".encode())
            timer = hash((topic, properties.get(TIMER_OUT_MS), named))
            self._over.add(timer)
            while self._end_oldest(timer, topic, "cancelled"):
                pass
            self._end(head.queue_offset, topic, "cancelling")
            return
        timer = _timer(topic, head, properties)
        if topic == HALF_TOPIC or topic.startswith(_REVIVE_PREFIX):
            self._end(head.queue_offset, topic, "of RocketMQ itself")
        elif timer in self._over:
            self._end(head.queue_offset, topic, "copies")
        else:
            if is_copy:
                self._end_oldest(timer, topic, "rolled")
            self._add(timer, head.queue_offset)

    def report(self) -> None:
        """Write to the log how many timers have been found, if RocketMQ has written any."""
        if self._counts:
            pending = sum(self._progress.pending.get(TIMERS, {}).values())
            counts = " ".join([f"{kind}={count}" for kind, count in sorted(self._counts.items())])
            logger.info("timers of RocketMQ are taken over pending=%d %s", pending, counts)

    def _add(self, timer: int, queue_offset: int) -> None:
        self._pending[timer] = (*self._pending.get(timer, ()), queue_offset)

    def _end_oldest(self, timer: int, topic: str, how: str) -> bool:
        """Complete the oldest pending one of a timer; False if there is none."""
        while queue_offsets := self._pending.pop(timer, ()):
            if queue_offsets[1:]:
                self._pending[timer] = queue_offsets[1:]
            if self._end(queue_offsets[0], topic, how):
                return True
        return False

    def _end(self, queue_offset: int, topic: str, how: str) -> bool:
        """Complete a timer; False if it is completed already: our own records point back."""
        is_ended = self._progress.complete_one(TIMERS, queue_offset, topic)
        if is_ended:
            self._counts[how] += 1
        return is_ended


def _timer(topic: str, head: Head, properties: PropertyString) -> int:
    """What a timer, its copies and its delivered message have in common.

    A program that is no RocketMQ client may send a message without UNIQ_KEY.
    """
    key = properties.get(UNIQ_KEY) or (head.born_timestamp_ms, head.body_crc)
    return hash((topic, properties.get(TIMER_OUT_MS), key))
