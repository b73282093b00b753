"""Carries pending timers from expired log files to the log's end, so that the files may go.

A timer may wait for years, and must not keep years of log.  So its record is appended once more,
unchanged but for its place; the new record completes the old one (kernel/records/completion.py).
This is done where pending timers take at most a quarter of the bytes that become free.  So a
carried byte frees at least three, and expired files that stay hold less than four times the bytes
of the timers that keep them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqlite.kernel.records.completion import topic_ahead
from rmqlite.kernel.records.drafts import derived
from rmqlite.kernel.records.record import TRANSACTION_TYPE, NewRecord
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of
from rmqlite.kernel.schedule.schedule import Ready, Schedule
from rmqlite.kernel.steps import Steps
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.waits.wait_queue import PendingPlace
from rmqlite.kernel.waits.wait_queues import WaitQueues
from rmqlite.kernel.words.errors import Overloaded
from rmqlite.kernel.words.message import RESCHEDULED_FROM

SHARE: Final = 4
"""Timers are carried where they take at most one SHAREth of the bytes."""
STEP_MAX: Final = 100
"""The most timers carried in one step."""
STEP_BYTES_MAX: Final = 1 << 20
"""The most bytes carried in one step; a single record may be longer."""
COUNTED_ENTRIES: Final = 4_096
"""Queue entries whose bytes are counted in one step, in 2 ms."""
_STAYS: Final = 1 << 62
"""More bytes than any part of the log has."""


class CarriedFiles(NamedTuple):
    """Neighbouring log files that may go once their timers are carried."""

    end: int
    carried_bytes: int


@dataclass(slots=True)
class _Counted:
    """The timers of one log file: their queue offsets, and those that waited when counted."""

    begin: int
    end: int
    waiting: int
    waiting_bytes: int


class Carrying:
    """Finds out where timers may be carried, and carries them."""

    def __init__(self, store: MessageStore, wait_queues: WaitQueues, schedule: Schedule) -> None:
        self._store = store
        self._wait_queues = wait_queues
        self._schedule = schedule
        self._counted: dict[int, _Counted] = {}
        """By the physical offset at which the log file begins."""
        self.carried = 0
        """The number of timers carried since the start."""

    def parts(self, end: int) -> Steps[list[CarriedFiles]]:
        """The parts of the log from its beginning to a file's end, the oldest first, in steps.

        Files behind the last part hold too many pending timers.
        """
        begin, file_bytes = self._store.min_offset, self._store.log_file_bytes
        self._counted = {at: each for at, each in self._counted.items() if at >= begin}
        found: list[CarriedFiles] = []
        size = waiting_bytes = 0
        for start in range(begin, end, file_bytes):
            waiting_bytes += yield from self._waiting_bytes(start)
            size += file_bytes
            if waiting_bytes * SHARE <= size:
                found.append(CarriedFiles(start + file_bytes, waiting_bytes))
                size = waiting_bytes = 0
        return found

    def first_waiting(self, physical_offset: int) -> PendingPlace | None:
        """The first pending timer in the log whose record begins there or later."""
        queue = self._queue
        at = self._completed.next_open(queue.first_with(physical_offset)) if queue else 0
        entry = queue.entry(at) if queue else None
        return PendingPlace(entry.tags_code, TIMERS, at, entry) if entry else None

    def carry(self, until: int, steps_max: int) -> Steps[int]:
        """Carry pending timers before a physical offset, in steps; returns the number of steps.

        Raises StoreUnavailable: then the timers of the last step lie where they did.
        """
        steps = at = 0
        # While too many timers are not in their table no more are added; the next round goes on.
        with suppress(Overloaded):
            while steps < steps_max and (places := self._next(at, until)):
                self._wait_queues.check_room()
                at = places[-1].queue_offset + 1
                self.carried += self._carry(places)
                steps += 1
                yield
        return steps

    # ---- inside

    @property
    def _queue(self) -> ConsumeQueue | None:
        return self._store.queue(*queue_of(TIMERS))

    @property
    def _completed(self) -> CompletedOffsets:
        return self._store.progress.of(TIMERS)

    def _waiting_bytes(self, start: int) -> Steps[int]:
        """The bytes of the pending timers in the log file that begins there, or somewhat more.

        They are counted anew when an eighth of the timers waits no more.
        """
        queue, completed = self._queue, self._completed
        if queue is None:
            return 0
        known = self._counted.get(start)
        if known is None:
            begin, end = map(queue.first_with, (start, start + self._store.log_file_bytes))
            known = self._counted[start] = _Counted(begin, end, _STAYS, 0)
        waiting = known.end - known.begin - completed.count_between(known.begin, known.end)
        if waiting == known.waiting or waiting * 8 > known.waiting * 7:
            return known.waiting_bytes
        at, size = completed.next_open(known.begin), 0
        while at < known.end:
            upto = min(at + COUNTED_ENTRIES, known.end)
            entries = queue.read(at, upto - at)
            size += sum([entries[each - at].size for each in completed.open_between(at, upto)])
            at = completed.next_open(upto)
            yield
        known.waiting, known.waiting_bytes = waiting, size
        return size

    def _next(self, at: int, until: int) -> list[PendingPlace]:
        """The next pending timers from a queue offset on, before a physical offset."""
        queue, completed = self._queue, self._completed
        found: list[PendingPlace] = []
        size = 0
        while queue is not None and len(found) < STEP_MAX:
            at = completed.next_open(at)
            end = completed.open_until(at, at + STEP_MAX - len(found))
            entries = queue.read(at, end - at)
            for entry in entries:
                size += entry.size
                if entry.physical_offset >= until or (found and size > STEP_BYTES_MAX):
                    return found
                found.append(PendingPlace(entry.tags_code, TIMERS, at, entry))
                at += 1
            if not entries:
                break
        return found

    def _carry(self, places: Sequence[PendingPlace]) -> int:
        # A damaged body is carried with its old CRC, as it is delivered.
        entries = [place.entry for place in places]
        records = self._store.read_records(entries, check_bodies=False)
        ready = []
        for place, waited in zip(places, records, strict=True):
            if waited is None:
                # The schedule reports it when it is due; until then its file stays.
                offset = place.entry.physical_offset
                known = self._counted.get(offset - offset % self._store.log_file_bytes)
                if known is not None:
                    known.waiting_bytes = _STAYS
                continue
            topic = topic_ahead(waited.properties)
            ready.append(Ready(place, topic, carried(waited), ""))
        if ready:
            self._schedule.complete(ready)
        return len(ready)


def carried(waited: Record) -> NewRecord:
    """The record of the same timer at another place."""
    properties = waited.properties
    if properties.get(RESCHEDULED_FROM) is not None:
        # With it the new record would complete a message of another wait queue.
        properties = properties.edited({}, frozenset({RESCHEDULED_FROM}))
    record = derived(waited, *queue_of(TIMERS), properties=properties, completes=waited.end)
    # With these bits `completes` would be the beginning of a half message.
    return record._replace(sys_flag=record.sys_flag & ~TRANSACTION_TYPE)
