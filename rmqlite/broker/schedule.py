"""Deliver what is due, say when to come back.

A level's queue is in due order except where the table of levels changed: it is a short
list of runs, each sorted by deliver time.  Delivery keeps a cursor per run and takes the
earliest head, so nothing waits behind a longer delay.  A delivered record points back to
the end of the scheduled one, so after a crash the log itself says what was delivered.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rmqlite.broker.histogram import Durations
from rmqlite.broker.lateness import Lateness
from rmqlite.broker.routing import unroute
from rmqlite.clock import Clock, elapsed_s
from rmqlite.names import SCHEDULE_TOPIC
from rmqlite.requests import LevelStatus
from rmqlite.store.commit_log import Walked
from rmqlite.store.consume_queue import ConsumeQueue, Entry
from rmqlite.store.message_store import MessageStore
from rmqlite.store.progress import CompletedOffsets
from rmqlite.store.record import BORN_HOST_V6, STORE_HOST_V6, NewRecord, tags_code

SCAN_ENTRIES: Final = 8192
DELIVER_BYTES_MAX: Final = 4 << 20
"""One slice of a delivery takes at most this much of the log, or one record."""
_HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Run:
    """The queue offsets cursor <= n < end, sorted by deliver time; head_due_ms is cursor's."""

    cursor: int
    end: int
    head_due_ms: int
    last_due_ms: int


class _Level:
    """One schedule queue: its runs, and up to where they were found."""

    def __init__(self, queue: ConsumeQueue, completed: CompletedOffsets) -> None:
        self.queue = queue
        self.completed = completed
        self.lateness = Lateness()
        self.runs: list[_Run] = []
        self._seen = max(completed.below, queue.min_offset)
        while self._seen < queue.max_offset:
            self._notice_all(queue.tags_codes(self._seen, SCAN_ENTRIES))
        for run in list(self.runs):
            self.advance(run, run.cursor)

    @property
    def pending(self) -> int:
        return self.queue.max_offset - self.completed.below - self.completed.count_above

    def notice(self, queue_offset: int, due_ms: int) -> None:
        """The queue's next entry is due then: it extends the last run or begins another."""
        if queue_offset < self._seen:
            # One of the batch with which the level began: the scan has found it already.
            return
        self._seen = queue_offset + 1
        last = self.runs[-1] if self.runs else None
        if last is not None and last.end == queue_offset and due_ms >= last.last_due_ms:
            last.end = queue_offset + 1
            last.last_due_ms = due_ms
        else:
            self.runs.append(_Run(queue_offset, queue_offset + 1, due_ms, due_ms))

    def _notice_all(self, due_ms: list[int]) -> None:
        """notice() for the entries from the last noticed one on; sorted ones at once."""
        first = self._seen
        self.notice(first, due_ms[0])
        run = self.runs[-1]
        # A sixth of the cost for each; a million pending messages are 0.2 s of a start.
        if due_ms == sorted(due_ms):
            self._seen = run.end = first + len(due_ms)
            run.last_due_ms = due_ms[-1]
        else:
            for at in range(1, len(due_ms)):
                self.notice(first + at, due_ms[at])

    def next_run(self) -> _Run | None:
        """The run with the earliest head."""
        if len(self.runs) == 1:
            return self.runs[0]
        return min(self.runs, key=lambda run: run.head_due_ms, default=None)

    def next_due_ms(self) -> int | None:
        run = self.next_run()
        return run.head_due_ms if run else None

    def due_entries(self, run: _Run, now_ms: int, count: int) -> list[Entry]:
        """Entries from the run's cursor on that are due and not later than another run's head."""
        until_ms = min(
            (other.head_due_ms for other in self.runs if other is not run), default=now_ms
        )
        end = self.completed.open_until(run.cursor, min(run.end, run.cursor + count))
        taken: list[Entry] = []
        size = 0
        for entry in self.queue.read(run.cursor, end - run.cursor):
            size += entry.size
            if entry.tags_code > min(now_ms, until_ms) or (taken and size > DELIVER_BYTES_MAX):
                break
            taken.append(entry)
        return taken

    def advance(self, run: _Run, queue_offset: int) -> None:
        """The run goes on at the first open queue offset at or after this one, or ends."""
        # What somebody removed with its files is not waited for.
        self.completed.add(0, self.queue.min_offset)
        run.cursor = self.completed.next_open(queue_offset)
        entry = self.queue.entry(run.cursor) if run.cursor < run.end else None
        if entry is None:
            self.runs.remove(run)
        else:
            run.head_due_ms = entry.tags_code


class Schedule:
    """All levels of a store, those that only older tables had included."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._levels: dict[int, _Level] = {}
        self.delivered = 0
        self.undeliverable = 0
        self.appends = Durations()
        for topic, queue_id in store.queue_keys():
            if topic == SCHEDULE_TOPIC:
                self._level(queue_id + 1)

    def levels(self) -> list[int]:
        """Every level that has or had messages, and every one of the current table."""
        return sorted({*self._levels, *range(1, self._store.levels.current.max_level + 1)})

    def next_due_ms(self, level: int) -> int | None:
        """When the level's earliest message is due; None when none waits."""
        known = self._levels.get(level)
        return known.next_due_ms() if known else None

    def notice(self, level: int, queue_offset: int, due_ms: int) -> bool:
        """A message was scheduled; True when it is the level's earliest."""
        known = self._levels.get(level)
        if known is None:
            self._level(level)
            return True
        earliest_ms = known.next_due_ms()
        known.notice(queue_offset, due_ms)
        return earliest_ms is None or due_ms < earliest_ms

    def deliver(
        self, level: int, count_max: int, appended: Callable[[str, int], None]
    ) -> int | None:
        """Deliver up to count_max messages that are due; when the next one is, or None.

        appended is told each topic and queue id.  Raises StoreUnavailable: nothing of the
        failed slice is delivered, and the next call begins with it.
        """
        known = self._levels.get(level)
        run = known.next_run() if known else None
        if known is None or run is None:
            return None
        now_ms = self._clock.now_ms()
        if run.head_due_ms > now_ms:
            return run.head_due_ms
        entries = known.due_entries(run, now_ms, count_max)
        if entries:
            self._append(known, level, run.cursor, entries, appended)
        known.advance(run, run.cursor + len(entries))
        return known.next_due_ms()

    def status(self) -> list[LevelStatus]:
        """What waits in every level, and how late each delivered."""
        return [self._status(level) for level in self.levels()]

    def lateness(self, level: int) -> Lateness:
        """How late a level delivered since the broker started."""
        known = self._levels.get(level)
        return known.lateness if known else Lateness()

    def oldest_pending(self) -> tuple[int, Entry] | None:
        """Level and entry of the scheduled record that lies first in the log, of those that
        are still to be delivered."""
        pending = []
        for level, known in self._levels.items():
            entry = known.queue.entry(known.completed.below)
            if entry is not None:
                pending.append((level, entry))
        return min(pending, key=lambda each: each[1].physical_offset, default=None)

    def _append(
        self,
        known: _Level,
        level: int,
        queue_offset: int,
        entries: Sequence[Entry],
        appended: Callable[[str, int], None],
    ) -> None:
        restored = []
        due_ms = []
        # A body keeps its CRC, and who pulls it looks at it: a damaged one is no reason to stop.
        records = self._store.read_records(entries, check_bodies=False)
        for entry, walked in zip(entries, records, strict=True):
            record = _restored(walked)
            if record is None:
                self.undeliverable += 1
                log.error(
                    "scheduled record cannot be delivered level=%d physical_offset=%d",
                    level,
                    entry.physical_offset,
                )
                continue
            restored.append(record)
            due_ms.append(entry.tags_code)
        # Append before the cursor moves: a crash in between is found again in the log.
        began_s = elapsed_s()
        written = self._store.append(restored)
        self.appends.add(elapsed_s() - began_s)
        known.completed.add(queue_offset, queue_offset + len(entries))
        self.delivered += len(restored)
        for due, count in Counter(due_ms).items():
            known.lateness.add(written[0].store_timestamp_ms - due, count)
        for topic, queue_id in {(record.topic, record.queue_id) for record in restored}:
            appended(topic, queue_id)

    def _level(self, level: int) -> _Level:
        known = self._levels.get(level)
        if known is None:
            queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
            assert queue is not None, "a level is made when its queue has its first message"
            known = _Level(queue, self._store.progress.level(level))
            self._levels[level] = known
        return known

    def _status(self, level: int) -> LevelStatus:
        table = self._store.levels.current
        delay = table.name(level) if level <= table.max_level else ""
        known = self._levels.get(level)
        if known is None:
            return LevelStatus(level, delay, 0, 0, 0, 0, 0, 0)
        late = known.lateness
        return LevelStatus(
            level,
            delay,
            known.pending,
            known.next_due_ms() or 0,
            late.count,
            late.quantile_ms(0.5),
            late.quantile_ms(0.99),
            late.max_ms,
        )


def _restored(walked: Walked | None) -> NewRecord | None:
    """A scheduled record as it goes to its destination: only header, topic, queue change."""
    if walked is None:
        return None
    head, data = walked
    destination = unroute(head.properties)
    if destination is None or destination[0] == SCHEDULE_TOPIC:
        return None
    topic, queue_id = destination
    return NewRecord(
        topic,
        queue_id,
        head.properties,
        data[head.body_position : head.body_end],
        head.body_crc,
        head.flag,
        head.sys_flag & ~_HOST_BITS,
        head.born_timestamp_ms,
        head.born_host,
        head.store_host,
        head.reconsume_times,
        head.physical_offset + head.size,
        tags_code(head.properties),
    )
