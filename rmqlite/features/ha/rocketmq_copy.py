"""A store whose log follows that of a RocketMQ master.

No checksum protects these bytes on their way.  So what is no record is refused before it is
written.  RocketMQ's records do not point back at the timers that they complete: those are found as
an opening finds them (kernel/store/opening/adoption.py), in the records as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rmqlite.features.standby.copied_store import CopiedStore
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records import record
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.opening.adoption import NEEDLE, TimerAdoption
from rmqlite.kernel.store.opening.recovery import PROGRESS_TABLE, open_records
from rmqlite.kernel.store.walk import Redo
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import StoreUnavailable

_SIZE_AND_PLACE: Final = record.layout_of_fields("size", "magic", "physical_offset")


class RocketMQCopy(CopiedStore):
    """The same folder as a master's of ours."""

    is_agreed = True

    def __init__(
        self, config: BrokerConfig, files: Files, clock: Clock, *, is_marked: bool = True
    ) -> None:
        if files.kind(config.store_path / "abort"):
            # What was delivered since the last persist is found in all of the log only.
            files.remove(config.store_path / "config" / PROGRESS_TABLE)
            files.remove(config.store_path / "config" / f"{PROGRESS_TABLE}.bak")
        self._adoption: TimerAdoption | None = None
        self._record_bytes_max = config.max_message_bytes + (64 << 10)
        super().__init__(config, files, clock, is_marked=is_marked)

    def receive(self, physical_offset: int, data: bytes) -> None:
        super().receive(physical_offset, data)
        self._check_rest()

    def delivered(self, level: int, queue_offset: int) -> None:
        """The master has delivered a level up to there."""
        queue = self.queue(*queue_of(level))
        if queue is not None:
            self.progress.of(level).add(0, min(queue_offset, queue.max_offset))

    def _write(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            head = record.read_head(data, at)
            if head is None or not record.has_sound_body(head, data):
                raise self._refusal(self._at + at)
            at += head.size
        super()._write(data)

    def _check_rest(self) -> None:
        """Raises StoreUnavailable if what has come cannot become a record, or a blank."""
        rest = self._rest
        if len(rest) < record.RECORD_BYTES_MIN:
            return
        size, magic, place = _SIZE_AND_PLACE.unpack_from(rest)
        is_placed = magic == record.MAGIC and place == self._at
        if not is_placed or not record.RECORD_BYTES_MIN <= size <= self._record_bytes_max:
            raise self._refusal(self._at)

    def _refusal(self, position: int) -> StoreUnavailable:
        rule = f"maxMessageSize={self._record_bytes_max} with header and properties"
        reason = f"at {position} comes no record that this broker knows, of at most {rule}"
        return StoreUnavailable("copy", str(self._root), reason)

    def _take_plain(self, redo: Redo, data: bytes, at: int, base: int) -> int:
        return at if NEEDLE in data else super()._take_plain(redo, data, at, base)

    def _new_redo(self) -> Redo:
        if self._adoption is None:
            self._adoption = TimerAdoption(self._dispatch.progress)
            timers = self._dispatch.queues.get(queue_of(TIMERS))
            if timers is not None:
                left = self._dispatch.progress.of(TIMERS)
                self._adoption.load(open_records(self._log, timers, left))
        return Redo(self._dispatch, self._log, see=self._adoption.see)


def copied_store(config: BrokerConfig) -> Callable[..., MessageStore]:
    """What opens the store of a standby."""
    return RocketMQCopy if config.ha_master_address else CopiedStore
