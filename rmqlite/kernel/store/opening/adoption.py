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

from rmqlite.kernel.records.completion import Over, TimerSteps, timer_of, timer_step, timer_topic
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.store.disk.files import SIGNATURE, Files
from rmqlite.kernel.store.progress import ScheduleProgress
from rmqlite.kernel.words.message import TIMER_OUT_MS

NEEDLE: Final = TIMER_OUT_MS.encode()
"""Bytes of every record that says something about a timer."""

logger = logging.getLogger(__name__)


def is_foreign_store(files: Files, root: Path) -> bool:
    """Had RocketMQ the store open last?  It overwrites the lock's file when it starts."""
    return (files.read_all(root / "lock") or SIGNATURE) != SIGNATURE


class TimerAdoption:
    """Sees the records of a walk in the order of the log, and completes what is not pending."""

    def __init__(self, progress: ScheduleProgress) -> None:
        self._progress = progress
        self._steps = TimerSteps(self._end)
        self._topic = ""
        """The destination of the timer whose record is seen."""
        self._counts: Counter[str] = Counter()

    def load(self, pending: Iterable[tuple[int, Record | None]]) -> None:
        """Take over what is pending where the walk begins: queue offsets and records."""
        for queue_offset, found in pending:
            if found is not None:
                self._steps.add(hash(timer_of(found.head, found.properties)), queue_offset)

    def see(self, walked: Record) -> None:
        """A record that has its queue entry, and is counted as pending if it is a timer."""
        head = walked.head
        if NEEDLE not in head.properties:
            return
        properties = walked.properties
        step = timer_step(head, properties)
        if step is not None:
            self._topic = timer_topic(head, properties)
            self._steps.see(step, hash(timer_of(head, properties)), head.queue_offset)

    def report(self) -> None:
        """Write to the log how many timers have been found, if RocketMQ has written any."""
        if self._counts:
            pending = sum(self._progress.pending.get(TIMERS, {}).values())
            counts = " ".join([f"{kind}={count}" for kind, count in sorted(self._counts.items())])
            logger.info("timers of RocketMQ are taken over pending=%d %s", pending, counts)

    def _end(self, queue_offset: int, how: Over) -> bool:
        """Complete a timer; False if it is completed already: our own records point back."""
        is_ended = self._progress.complete_one(TIMERS, queue_offset, self._topic)
        if is_ended:
            self._counts[how.value] += 1
        return is_ended
