"""Which log files may go, and when the disk is too full for sends (reference §11).

RocketMQ's rules but for one: a file that holds a message which is still to be delivered
stays, however old it is and however full the disk, and with it all that was stored later.
Sends are refused before the disk is full, so that there is room left to deliver, to retry
and to tell how far consumers are.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from rmqlite.broker.schedule.schedule import Schedule
from rmqlite.clock import local_hour
from rmqlite.config import BrokerConfig
from rmqlite.errors import DiskFull, StoreUnavailable
from rmqlite.store.message_store import MessageStore

FILES_A_ROUND_MAX: Final = 10
"""So many log files go at most in one round, as in RocketMQ."""
MEASURE_BYTES: Final = 1 << 20
"""After so much new log the disk is measured again, whatever the time."""
_HOUR_MS: Final = 3_600_000
_ANY_AGE_MS: Final = 1 << 62


class Pin(NamedTuple):
    """An undelivered message that keeps log files beyond their time, and how many bytes."""

    level: int = 0
    deliver_at_ms: int = 0
    physical_offset: int = 0
    kept_bytes: int = 0


class Retention:
    """Told the time, it measures, decides and removes; nothing here waits."""

    def __init__(self, config: BrokerConfig, store: MessageStore, schedule: Schedule) -> None:
        self._config = config
        self._store = store
        self._schedule = schedule
        self._delivered_until = store.min_offset
        self._noted = (store.end, store.min_offset)
        self._measured_end = store.end
        self.used_ratio = 0.0
        """Used share of the disk when it was last measured, 0 to 1."""
        self.is_disk_full = False
        """Are sends refused?"""
        self.sends_refused = 0
        """Calls, since the start."""
        self.pin = Pin()
        """What the last round found; all 0 when nothing stays beyond its time."""

    def measure(self) -> None:
        """Look how full the disk is.  Raises StoreUnavailable: what was known stays."""
        self._measured_end = self._store.end
        self.used_ratio = self._store.used_ratio()
        percent = self.used_ratio * 100
        # Two thresholds: at a single one, every file that goes would let a few sends in.
        if percent >= self._config.disk_warning_ratio:
            self.is_disk_full = True
        elif percent < self._config.disk_clean_forcibly_ratio:
            self.is_disk_full = False

    def check_room(self, *, is_send: bool = True) -> None:
        """Raises DiskFull while sends are refused; is_send: count it as one of them."""
        if self._store.end - self._measured_end >= MEASURE_BYTES:
            # A small disk is full before the next second.
            with suppress(StoreUnavailable):
                self.measure()
        if self.is_disk_full:
            self.sends_refused += is_send
            config = self._config
            raise DiskFull(
                self.used_ratio, config.disk_warning_ratio, config.disk_clean_forcibly_ratio
            )

    def clean(self, wall_clock_ms: int) -> int:
        """One round: remove what may go now; how many log files went.

        Old files in the hours of deleteWhen, or when the disk is fuller than
        diskMaxUsedSpaceRatio; then, above diskSpaceCleanForciblyRatio, also younger ones,
        oldest first, until it is not.  Raises StoreUnavailable; what went is gone.
        """
        self.measure()
        self._note_delivered()
        config = self._config
        old_before_ms = wall_clock_ms - config.file_reserved_hours * _HOUR_MS
        self._find_pin(old_before_ms)
        removed = 0
        is_due = local_hour(wall_clock_ms) in config.delete_hours
        if is_due or self._is_above(config.disk_max_used_ratio):
            removed = self._remove(self._limit(old_before_ms), FILES_A_ROUND_MAX)
            self.measure()
        limit = self._limit(_ANY_AGE_MS) if config.clean_forcibly else 0
        while removed < FILES_A_ROUND_MAX and self._is_above(config.disk_clean_forcibly_ratio):
            if not self._remove(limit, 1):
                break
            removed += 1
            self.measure()
        return removed

    def _note_delivered(self) -> None:
        """Find up to where everything was delivered for good.

        A delivery counts when it is on disk: until then a power cut can take it back, and
        then the scheduled record must still be there.
        """
        store = self._store
        noted_end, noted_offset = self._noted
        if noted_end > store.durable_end:
            return
        pending = self._schedule.oldest_pending()
        self._noted = (store.end, pending[1].physical_offset if pending else store.end)
        self._delivered_until = noted_offset
        if store.end <= store.durable_end:
            self._delivered_until = self._noted[1]

    def _find_pin(self, old_before_ms: int) -> None:
        self.pin = Pin()
        pending = self._schedule.oldest_pending()
        if pending is not None:
            level, entry = pending
            expired = self._store.expired_segments(old_before_ms, self._store.end)
            free = self._store.expired_segments(old_before_ms, entry.physical_offset)
            if expired > free:
                self.pin = Pin(level, entry.tags_code, entry.physical_offset, expired - free)

    def _limit(self, old_before_ms: int) -> int:
        """Up to which physical offset whole files may go."""
        return self._store.expired_segments(old_before_ms, self._delivered_until)

    def _remove(self, limit: int, count: int) -> int:
        """Remove up to so many files that end at or before a physical offset; how many went."""
        begin, size = self._store.min_offset, self._store.log_file_bytes
        self._store.drop_before(min(limit, begin + count * size))
        return (self._store.min_offset - begin) // size

    def _is_above(self, percent: int) -> bool:
        return self.used_ratio * 100 > percent
