"""A store's files, mapped for reading by an executor, which changes no byte.

A broker may be at work on the store.  The planned bytes lie before the end that the log had
then, and do not change; only retention may delete whole files, which then are missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqlite.kernel.records.wait_queues import HASH_END
from rmqlite.kernel.store.disk.regular_file import check_regular
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable
from rmqlite.spark.arrow.partitions import StorePlace
from rmqlite.spark.arrow.records import Bytes, Longs, RecordArray, UnsoundRecord

ENTRY: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
ENTRY_BYTES: Final = ENTRY.itemsize
_NOTHING: Final = np.empty(0, np.uint8)
_FOUND_BYTES: Final = 16


class LogGone(Exception):
    """The log file of a physical offset does not exist any more."""

    def __init__(self, physical_offset: int) -> None:
        super().__init__(f"no log file has {physical_offset}")
        self.physical_offset = physical_offset


class StoreFiles:
    """The log and the queues of one store."""

    def __init__(self, place: StorePlace) -> None:
        self.place = place
        self._root = Path(place.root)
        self._log: tuple[int, Bytes] = (-1, _NOTHING)
        self._queues: dict[tuple[str, int, int], Bytes | None] = {}

    def at(self, position: int, size: int) -> tuple[Bytes, int]:
        """The whole file of a position; see records.Source.  Raises LogGone."""
        del size
        start = position - position % self.place.log_file_bytes
        if self._log[0] != start:
            data = mapped(self.log_path(position))
            if data is None:
                raise LogGone(position)
            # Leave out the bytes behind the end: the broker may be writing them.
            self._log = start, data[: max(0, self.place.end - start)]
        return self._log[1], start

    def log_path(self, position: int) -> Path:
        start = position - position % self.place.log_file_bytes
        return self._root / "commitlog" / f"{start:020d}"

    def log_begin(self) -> int:
        """Where the oldest present log file begins."""
        names = [path.name for path in (self._root / "commitlog").glob("[0-9]*")]
        return min((int(name) for name in names if name.isdigit()), default=self.place.end)

    def entries(self, topic: str, queue_id: int, offsets: Longs) -> NDArray[Any]:
        """The entries at these queue offsets; all zeros for an offset without an entry."""
        found = np.zeros(len(offsets), ENTRY)
        in_file = self.place.queue_file_bytes // ENTRY_BYTES
        numbers = offsets // in_file
        for number in np.unique(numbers).tolist():
            data = self._queue_file(topic, queue_id, number)
            if data is None:
                continue
            table = data[: len(data) // ENTRY_BYTES * ENTRY_BYTES].view(f"V{ENTRY_BYTES}")
            rows = np.flatnonzero(numbers == number)
            at = offsets[rows] - number * in_file
            rows, at = rows[at < len(table)], at[at < len(table)]
            found[rows] = table[at].view(ENTRY)
        return found

    def promised_ms(self, topic: str, records: RecordArray, rows: Longs) -> Longs:
        """See waits.Promises: the time in the queue entry that points at the record."""
        head = records.head[rows]
        queue_ids = head["queue_id"].astype(np.int64)
        places = records.places[rows]
        promised = np.zeros(len(rows), np.int64)
        for queue_id in np.unique(queue_ids).tolist():
            at = np.flatnonzero(queue_ids == queue_id)
            offsets = head["queue_offset"][at].astype(np.int64)
            entries = self.entries(topic, queue_id, offsets)
            is_its = (entries["physical_offset"] == places[at]) & (
                entries["size"] == head["size"][at]
            )
            tags_codes = entries["tags_code"].astype(np.int64)
            promised[at] = np.where(is_its & (tags_codes >= HASH_END), tags_codes, 0)
        return promised

    def damage(self, unsound: UnsoundRecord) -> StoreDamaged:
        """The error for a place without a record, with the bytes that are there."""
        position = unsound.physical_offset
        data, base = self.at(position, _FOUND_BYTES)
        found = data[position - base : position - base + _FOUND_BYTES].tobytes()
        text = f"the bytes {found.hex(' ', 4)}" if found else "nothing"
        path = str(self.log_path(position))
        return StoreDamaged(path, position - base, unsound.expected, text)

    def queue_damage(self, topic: str, queue_id: int, queue_offset: int) -> StoreDamaged:
        """The error for a missing entry whose record is missing, too."""
        position = queue_offset * ENTRY_BYTES
        start = position - position % self.place.queue_file_bytes
        path = self._queue_path(topic, queue_id, start)
        expected = f"{topic} queue {queue_id}, queue offset {queue_offset}: an entry"
        return StoreDamaged(str(path), position - start, expected, "none that fits a record")

    def _queue_path(self, topic: str, queue_id: int, start: int) -> Path:
        return self._root / "consumequeue" / topic / str(queue_id) / f"{start:020d}"

    def _queue_file(self, topic: str, queue_id: int, number: int) -> Bytes | None:
        key = (topic, queue_id, number)
        if key not in self._queues:
            start = number * self.place.queue_file_bytes
            self._queues[key] = mapped(self._queue_path(topic, queue_id, start))
        return self._queues[key]


def mapped(path: Path) -> Bytes | None:
    """A file's bytes, which are read from disk only when used; None if there is no file.

    Raises StoreDamaged if it is not a regular file.
    """
    try:
        status = path.lstat()
        check_regular(path, status.st_mode)
        if not status.st_size:
            return _NOTHING
        with pa.memory_map(str(path)) as file:
            return np.frombuffer(file.read_buffer(), np.uint8)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable("read", str(path), error.strerror or str(error)) from error
