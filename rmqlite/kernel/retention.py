"""Removes expired log files, and refuses sends on a full disk (reference §11).

The rules are RocketMQ's, with one exception: a file with an undelivered message, or with an open
half message of a transaction, stays, and so do all later files, however old they are and however
full the disk is.  Sends are refused before the disk is full, so that there is room to deliver, to
retry and to save the progress of consumers.

Only timers and rows of tables are carried to the log's end.  A timer may wait for years, and must
not keep years of log.  Its record is appended once more, unchanged but for its place; the new
record completes the old one (kernel/records/completion.py).  This is done where pending timers take
at most a quarter of the bytes that become free.  So a carried byte frees at least three, and
expired files that stay hold less than four times the bytes of the timers that keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.completion import topic_ahead
from rmqlite.kernel.records.drafts import derived
from rmqlite.kernel.records.record import TRANSACTION_TYPE, NewRecord
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of
from rmqlite.kernel.schedule.schedule import Ready, Schedule
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.waits.wait_queue import PendingPlace
from rmqlite.kernel.waits.wait_queues import WaitQueues
from rmqlite.kernel.words.clock import local_hour
from rmqlite.kernel.words.errors import DiskFull, Overloaded, StoreUnavailable
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

FILES_A_ROUND_MAX: Final = 10
"""The most log files removed in one round, as in RocketMQ."""
MEASURE_BYTES: Final = 1 << 20
"""Bytes of new log after which the disk is measured again before the next round."""
CARRY_STEPS_A_ROUND_MAX: Final = 500
"""Timers are carried in so many steps, in a second or two; the next round goes on."""
_HOUR_MS: Final = 3_600_000
_ANY_AGE_MS: Final = 1 << 62


class Pin(NamedTuple):
    """What keeps expired log files, and the bytes of these files.

    level: the wait queue of an undelivered message, or 0: then it is an open half message.
    """

    level: int = 0
    deliver_at_ms: int = 0
    physical_offset: int = 0
    kept_bytes: int = 0


class Retention:
    """Measures the disk and removes files at the caller's time; it never waits."""

    def __init__(self, parts: BrokerParts, schedule: Schedule) -> None:
        store = parts.store
        self._config = parts.config
        self._store = store
        self._wait_queues = parts.wait_queues
        self._carrying = Carrying(store, parts.wait_queues, schedule)
        self._expired = 0
        """Files before this physical offset have expired, as the last round has found."""
        self._carry_end = self._carry_files = 0
        self._held_from = 0
        """Pending timers from here on keep their files."""
        self.oldest_half: Callable[[], int | None] = lambda: None
        """The physical offset of the oldest open half message, if there is one."""
        self.kept_from: Callable[[], int] = lambda: 1 << 63
        """Files from this physical offset on stay until the disk is past its forced level."""
        self.on_clean: list[Callable[[], None]] = []
        """Called after each round that removes expired files.  Raises StoreUnavailable."""
        self._delivered_until = store.min_offset
        self._noted = (store.end, store.min_offset)
        self._measured_end = store.end
        self.used_ratio = 0.0
        """Used share of the disk at the last measurement, 0 to 1."""
        self.disk_bytes = 0
        self.is_disk_full = False
        """Sends are refused while this is True."""
        self.sends_refused = 0
        """Refused calls since the start."""
        self.is_asked = False
        """An administrator has asked for the next round to remove old files in any hour."""
        self.pin = Pin()
        """The pin of the last round; all 0 if no expired file stays."""

    def measure(self) -> None:
        """Measure the disk.  Raises StoreUnavailable: then the last measurement stays."""
        self._measured_end = self._store.end
        self.used_ratio = self._store.used_ratio()
        self.disk_bytes = self._store.disk_bytes()[0]
        percent = self.used_ratio * 100
        # Two thresholds: with a single one, every removed file would let a few sends in.
        if percent >= self._config.disk_warning_ratio:
            self.is_disk_full = True
        elif percent < self._config.disk_clean_forcibly_ratio:
            self.is_disk_full = False

    def check_room(self, *, is_send: bool = True) -> None:
        """Raises DiskFull while sends are refused; is_send: count the refusal."""
        if self._store.end - self._measured_end >= MEASURE_BYTES:
            # A small disk may be full before the next round.
            with suppress(StoreUnavailable):
                self.measure()
        if self.is_disk_full:
            self.sends_refused += is_send
            config = self._config
            raise DiskFull(
                self.used_ratio, config.disk_warning_ratio, config.disk_clean_forcibly_ratio
            )

    def clean(self, wall_clock_ms: int) -> int:
        """One round: remove files; returns the number of removed log files.

        Old files are removed in the hours of deleteWhen, or if the disk is fuller than
        diskMaxUsedSpaceRatio; above diskSpaceCleanForciblyRatio younger ones, too, the oldest
        first, until it is less full.  Raises StoreUnavailable, perhaps after some removals.
        The caller does carry() next.
        """
        self.measure()
        config = self._config
        old_before_ms = wall_clock_ms - config.file_reserved_hours * _HOUR_MS
        self._expired = self._carry_end = self._store.expired_segments(old_before_ms)
        is_forced = config.clean_forcibly and self._is_above(config.disk_clean_forcibly_ratio)
        self._carry_tables(is_forced=is_forced)
        self._note_delivered()
        self._find_pin()
        removed = self._carry_files = 0
        is_due = local_hour(wall_clock_ms) in config.delete_hours or self.is_asked
        self.is_asked = False
        if is_due or self._is_above(config.disk_max_used_ratio):
            self._carry_files = FILES_A_ROUND_MAX
            limit = min(self._expired, self.kept_from())
            removed = self._remove(limit, FILES_A_ROUND_MAX)
            self.measure()
        if not config.clean_forcibly or not self._is_above(config.disk_clean_forcibly_ratio):
            return removed
        self._carry_end, self._carry_files = self._store.expired_segments(_ANY_AGE_MS), 1
        while removed < FILES_A_ROUND_MAX and self._is_above(config.disk_clean_forcibly_ratio):
            if not self._remove(self._carry_end, 1):
                break
            removed += 1
            self.measure()
        return removed

    def carry(self) -> Steps[int]:
        """Carry timers from files that the next rounds may remove, in steps; returns their number.

        Part of a round, after clean().  Raises StoreUnavailable: then the timers of the last step
        lie where they did.
        """
        store, before, left = self._store, self._carrying.carried, CARRY_STEPS_A_ROUND_MAX
        parts = yield from self._carrying.parts(self._carry_end)
        self._held_from = parts[-1].end if parts else store.min_offset
        self._find_pin()
        end_max = store.min_offset + self._carry_files * store.log_file_bytes
        for part in parts if self._carry_files else ():
            is_next = part is parts[0] or part.end <= end_max
            # Its timers need room before its files make room.
            has_room = part.carried_bytes <= store.disk_bytes()[1] // 2
            if not is_next or not has_room or not left or part.end > self._oldest_other():
                break
            left -= yield from self._carrying.carry(part.end, left)
        return self._carrying.carried - before

    def _note_delivered(self) -> None:
        """Find the physical offset before which every message is delivered for good.

        A delivery counts when it is on disk: until then a power cut can undo it, and the
        scheduled record is needed again.
        """
        store = self._store
        noted_end, noted_offset = self._noted
        if noted_end > store.durable_end:
            return
        pending = self._wait_queues.oldest_pending()
        needed = min(self._oldest_other(), store.tables.carried_end)
        if pending:
            needed = min(needed, pending[1].physical_offset)
        self._noted = (store.end, needed)
        self._delivered_until = noted_offset
        if store.end <= store.durable_end:
            self._delivered_until = self._noted[1]

    def _carry_tables(self, *, is_forced: bool) -> None:
        """Append rows of tables again whose records this round or the next may remove."""
        store = self._store
        limit = store.expired_segments(_ANY_AGE_MS) if is_forced else self._expired
        limit = min(limit, store.min_offset + FILES_A_ROUND_MAX * store.log_file_bytes)
        store.carry_tables(limit)

    def _oldest_other(self) -> int:
        """Where the oldest record lies that is needed and no timer; the log's end if none is."""
        pending, half = self._wait_queues.oldest_pending(but=TIMERS), self.oldest_half()
        needed = self._store.end if half is None else half
        return min(needed, pending[1].physical_offset) if pending else needed

    def _find_pin(self) -> None:
        pins = []
        timer, half = self._carrying.first_waiting(self._held_from), self.oldest_half()
        pending = self._wait_queues.oldest_pending(but=TIMERS)
        if pending is not None:
            pins.append(Pin(pending[0], pending[1].tags_code, pending[1].physical_offset))
        if timer is not None:
            pins.append(Pin(TIMERS, timer.due_ms, timer.entry.physical_offset))
        if half is not None:
            pins.append(Pin(physical_offset=half))
        self.pin = Pin()
        if pins:
            oldest = min(pins, key=lambda each: each.physical_offset)
            size = self._store.log_file_bytes
            kept = self._expired - oldest.physical_offset // size * size
            if kept > 0:
                self.pin = oldest._replace(kept_bytes=kept)

    def _remove(self, limit: int, count: int) -> int:
        """Remove up to count files that end at or before limit; returns their number.

        Those behind an undelivered message stay.
        """
        begin, size = self._store.min_offset, self._store.log_file_bytes
        limit = min(limit, self._delivered_until)
        self._store.drop_before(min(limit, begin + count * size))
        return (self._store.min_offset - begin) // size

    def _is_above(self, percent: int) -> bool:
        return self.used_ratio * 100 > percent


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
