"""The files in which RocketMQ 5 keeps the slots of its timers (timer reference §7), written anew.

    timerlog/<position>  units of 52 bytes, one for each timer; those of a slot are linked back
    timerwheel           slots of 32 bytes, one for each second: its first and its last unit
    config/timercheck    the next slot to take, and the next entry of the queue to read

A slot that begins before the next one to take is never read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from rmqlite.kernel.records.record import BLANK_MAGIC
from rmqlite.kernel.records.wait_queues import SLOT_MS
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.segments import Segments, is_numbered

LOG_FILE_BYTES: Final = 104_857_600
"""mappedFileSizeTimerLog, for a store that has no timer log."""
UNIT: Final = Struct(">iqiqiqiiq")
"""Size, previous unit of the slot, magic, time of writing, from there to the slot, physical
offset, size of the record, hash of its real topic, 0."""
SLOT: Final = Struct(">qqqii")
"""Number of the second, first unit, last unit, number of timers, 0."""
CHECK: Final = Struct(">8q4032x")
"""Next slot, end of the timer log, next entry twice, version: state, timestamp, counter; 0."""
_BLANK: Final = Struct(">iqi")
_SLOTS: Final = 2 * 7 * 86_400
_MAGIC: Final = 1
_ROLL: Final = 2
_WRITTEN_BYTES: Final = 1 << 20
_NONE: Final = -1


class Unit(NamedTuple):
    """A timer in the wheel.

    slot_ms: the beginning of its slot.  rolls: when the slot is taken the timer is not delivered,
    but gets another slot.
    """

    slot_ms: int
    physical_offset: int
    size: int
    topic_hash: int
    rolls: bool = False


class Check(NamedTuple):
    """The check point.  next_entry: the first queue offset that has no unit."""

    next_slot_ms: int
    next_entry: int


def write_timer_files(files: Files, root: Path, units: Iterable[Unit], check: Check) -> None:
    """Replace the files by new ones with these units, which are sorted by slot; then sync.

    RocketMQ goes on behind the queue entry of the last unit.
    """
    folder, wheel = root / "timerlog", root / "timerwheel"
    file_bytes = _remove_old(files, root, folder)
    files.create(wheel, _SLOTS * SLOT.size)
    log = _UnitLog(Segments(files, folder, file_bytes))
    for slot_ms, together in groupby(units, attrgetter("slot_ms")):
        first = last = _NONE
        count = 0
        for unit in together:
            last = log.add(unit, last, check.next_slot_ms)
            first = last if first == _NONE else first
            count += 1
        second = slot_ms // SLOT_MS
        files.write(wheel, second % _SLOTS * SLOT.size, SLOT.pack(second, first, last, count, 0))
    log.flush()
    for path in (*log.segments.take_unsynced(), wheel):
        files.sync(path)
    version = (0, check.next_slot_ms, 1)
    data = CHECK.pack(check.next_slot_ms, log.end, *[check.next_entry] * 2, *version, 0)
    # The last one: RocketMQ delivers what the check point says is in the other two files.
    files.replace(root / "config" / "timercheck", data)


def _remove_old(files: Files, root: Path, folder: Path) -> int:
    """Remove what is there; returns the length of the timer log's files."""
    sizes = [files.size(folder / name) for name in files.names(folder) if is_numbered(name)]
    for name in files.names(root):
        # RocketMQ 5.4 and later may keep snapshots of the wheel, timerwheel.<position>.
        if name.partition(".")[0] == "timerwheel":
            files.remove(root / name)
    for name in reversed(files.names(folder)):
        files.remove(folder / name)
    files.make_folder(folder)
    return max(sizes, default=0) or LOG_FILE_BYTES


class _UnitLog:
    """Appends units; end: where the next one begins."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.end = 0
        self._written = 0
        self._buffer = bytearray()

    def add(self, unit: Unit, previous: int, written_ms: int) -> int:
        """Append a unit; returns its position."""
        room = self.segments.segment_bytes - self.end % self.segments.segment_bytes
        if room < UNIT.size + _BLANK.size:
            self._append(_BLANK.pack(room, 0, BLANK_MAGIC).ljust(room, b"\0"))
        position = self.end
        slot_ms, physical_offset, size, topic_hash, rolls = unit
        magic = _MAGIC + _ROLL * rolls
        due = (written_ms, slot_ms - written_ms)
        self._append(
            UNIT.pack(UNIT.size, previous, magic, *due, physical_offset, size, topic_hash, 0)
        )
        return position

    def _append(self, data: bytes) -> None:
        self._buffer += data
        self.end += len(data)
        if len(self._buffer) >= _WRITTEN_BYTES:
            self.flush()

    def flush(self) -> None:
        self.segments.write(self._written, bytes(self._buffer))
        self._written = self.end
        self._buffer.clear()
