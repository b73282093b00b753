"""Removes expired log files, and refuses sends on a full disk (reference §11).

The rules are RocketMQ's, with one exception: a file with an undelivered message, or with an open
half message of a transaction, stays, and so do all later files, however old they are and however
full the disk is.  Sends are refused
before the disk is full, so that there is room to deliver, to retry and to save the progress
of consumers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from rmqlite.broker.waits.wait_queues import WaitQueues
from rmqlite.clock import local_hour
from rmqlite.config import BrokerConfig
from rmqlite.errors import DiskFull, StoreUnavailable
from rmqlite.store.message_store import MessageStore

FILES_A_ROUND_MAX: Final = 10
"""The most log files removed in one round, as in RocketMQ."""
MEASURE_BYTES: Final = 1 << 20
"""Bytes of new log after which the disk is measured again before the next round."""
_HOUR_MS: Final = 3_600_000
_ANY_AGE_MS: Final = 1 << 62


class Pin(NamedTuple):
    """An undelivered message that keeps expired log files, and the bytes of these files."""

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
        oldest_half: Callable[[], int | None],
    ) -> None:
        """oldest_half: the physical offset of the oldest open half message, if there is one."""
        self._config = config
        self._store = store
        self._wait_queues = wait_queues
        self._oldest_half = oldest_half
        self._delivered_until = store.min_offset
        self._noted = (store.end, store.min_offset)
        self._measured_end = store.end
        self.used_ratio = 0.0
        """Used share of the disk at the last measurement, 0 to 1."""
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
        """
        self.measure()
        self._note_delivered()
        config = self._config
        old_before_ms = wall_clock_ms - config.file_reserved_hours * _HOUR_MS
        self._find_pin(old_before_ms)
        removed = 0
        is_due = local_hour(wall_clock_ms) in config.delete_hours or self.is_asked
        self.is_asked = False
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
        """Find the physical offset before which every message is delivered for good.

        A delivery counts when it is on disk: until then a power cut can undo it, and the
        scheduled record is needed again.
        """
        store = self._store
        noted_end, noted_offset = self._noted
        if noted_end > store.durable_end:
            return
        pending, half = self._wait_queues.oldest_pending(), self._oldest_half()
        needed = [store.end] if half is None else [half]
        if pending:
            needed.append(pending[1].physical_offset)
        self._noted = (store.end, min(needed))
        self._delivered_until = noted_offset
        if store.end <= store.durable_end:
            self._delivered_until = self._noted[1]

    def _find_pin(self, old_before_ms: int) -> None:
        self.pin = Pin()
        pending = self._wait_queues.oldest_pending()
        if pending is not None:
            level, entry = pending
            expired = self._store.expired_segments(old_before_ms, self._store.end)
            free = self._store.expired_segments(old_before_ms, entry.physical_offset)
            if expired > free:
                self.pin = Pin(level, entry.tags_code, entry.physical_offset, expired - free)

    def _limit(self, old_before_ms: int) -> int:
        """The physical offset before which whole files may be removed."""
        return self._store.expired_segments(old_before_ms, self._delivered_until)

    def _remove(self, limit: int, count: int) -> int:
        """Remove up to count files that end at or before limit; returns their number."""
        begin, size = self._store.min_offset, self._store.log_file_bytes
        self._store.drop_before(min(limit, begin + count * size))
        return (self._store.min_offset - begin) // size

    def _is_above(self, percent: int) -> bool:
        return self.used_ratio * 100 > percent
