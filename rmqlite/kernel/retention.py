"""Removes expired log files, and refuses sends on a full disk (reference §11).

The rules are RocketMQ's, with one exception: a file with an undelivered message, or with an open
half message of a transaction, stays, and so do all later files, however old they are and however
full the disk is.  Only timers (schedule/carrying.py) and rows of tables are carried to the log's
end.  Sends are refused before the disk is full, so that there is room to deliver, to retry and to
save the progress of consumers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.schedule.carrying import Carrying
from rmqlite.kernel.schedule.schedule import Schedule
from rmqlite.kernel.steps import Steps
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.waits.wait_queues import WaitQueues
from rmqlite.kernel.words.clock import local_hour
from rmqlite.kernel.words.errors import DiskFull, StoreUnavailable

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

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        wait_queues: WaitQueues,
        schedule: Schedule,
    ) -> None:
        self._config = config
        self._store = store
        self._wait_queues = wait_queues
        self._carrying = Carrying(store, wait_queues, schedule)
        self._expired = 0
        """Files before this physical offset have expired, as the last round has found."""
        self._carry_end = self._carry_files = 0
        self._held_from = 0
        """Pending timers from here on keep their files."""
        self.oldest_half: Callable[[], int | None] = lambda: None
        """The physical offset of the oldest open half message, if there is one."""
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
            removed = self._remove(self._expired, FILES_A_ROUND_MAX)
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
