"""A read-only view of the log while another process may write it.

A log in use grows at its end and loses files at its front; the bytes between never change.
So a reader fixes an end once, and it skips and notes files that are gone, without an error.
Bytes that are neither a record nor a blank stop a walk; the caller decides whether they are
damage.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from rmqlite.kernel.records import record
from rmqlite.kernel.records.record import BLANK_BYTES, Head
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.store.disk.files import ReadOnlyFiles
from rmqlite.kernel.store.disk.segments import Segments
from rmqlite.kernel.store.log.checksums import Checksums, Point
from rmqlite.kernel.store.log.log_end import LogEnd, damage_at
from rmqlite.kernel.store.log.log_walk import WINDOW_BYTES, LogWalk, Window
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable

HEAD_BYTES: Final = 1024
"""Bytes read first for one record; a longer record is read again."""
_LISTINGS_MAX: Final = 5

_T = TypeVar("_T")


class LiveFiles(ReadOnlyFiles):
    """The real disk while another process may write the store: a removed file reads as empty.

    A file in `lengthened` is shown with that length, which the next opening restores.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lengthened: dict[Path, int] = {}

    def read(self, path: Path, position: int, size: int) -> bytes:
        try:
            return super().read(path, position, size)
        except StoreUnavailable as error:
            _check_gone(error)
            return b""

    def next_data(self, path: Path, position: int) -> int:
        try:
            found = super().next_data(path, position)
            return self.lengthened.get(path, found) if found >= super().size(path) else found
        except StoreUnavailable as error:
            _check_gone(error)
            return position

    def data_end(self, path: Path, position: int) -> int:
        try:
            return super().data_end(path, position)
        except StoreUnavailable as error:
            _check_gone(error)
            return position

    def size(self, path: Path) -> int:
        try:
            return self.lengthened.get(path) or super().size(path)
        except StoreUnavailable as error:
            _check_gone(error)
            return 0

    def modified_ms(self, path: Path) -> int:
        try:
            return super().modified_ms(path)
        except StoreUnavailable as error:
            _check_gone(error)
            return 0

    def allocated_bytes(self, path: Path) -> int:
        """The disk space of a file; less than its size if it has holes."""
        try:
            return self._status(path).st_blocks * 512
        except StoreUnavailable as error:
            _check_gone(error)
            return 0


def _check_gone(error: StoreUnavailable) -> None:
    if not isinstance(error.__cause__, FileNotFoundError):
        raise error


def listed(make: Callable[[], _T]) -> _T:
    """Open a folder's files, again if their writer makes, cuts or removes one meanwhile."""
    for _ in range(_LISTINGS_MAX - 1):
        try:
            return make()
        except StoreDamaged:
            continue
    return make()


class LogView:
    """The files of a log, listed once."""

    def __init__(self, files: LiveFiles, folder: Path, segment_bytes: int) -> None:
        self.segments = listed(lambda: Segments(files, folder, segment_bytes))
        self.segment_bytes = segment_bytes
        self.log_end = LogEnd(self.segments)

    @property
    def begin(self) -> int:
        """The physical offset at which the oldest existing file begins."""
        return self.segments.begin_now()

    @property
    def end_of_files(self) -> int:
        return self.segments.end_position

    def head_at(self, position: int) -> Record | None:
        """The record that begins there, its body not checked; None if there is none."""
        room = self.segment_bytes - position % self.segment_bytes
        data = self.segments.read(position, min(HEAD_BYTES, room))
        if len(data) >= BLANK_BYTES:
            size, magic = record.BLANK.unpack_from(data)
            if magic == record.MAGIC and len(data) < size <= room:
                data = self.segments.read(position, size)
        head = record.read_head(data)
        return Record(head, data) if head and head.physical_offset == position else None

    def sound_at(self, position: int) -> Record | None:
        """The record that begins there, if its body fits its CRC."""
        found = self.head_at(position)
        return found if found and found.has_sound_body() else None

    def timestamp_at(self, position: int) -> int | None:
        """The store timestamp of the record that begins there; None if there is none."""
        found = self.head_at(position)
        return found.head.store_timestamp_ms if found else None

    def is_gone(self, position: int) -> bool:
        """Was the file of a position removed?"""
        return not self.segments.is_there(position)

    def damage(self, position: int, expected: str = "a record") -> StoreDamaged:
        return damage_at(self.segments, position, expected)

    def has_record_before(self, position: int) -> bool:
        """Does a sound record end at a position, or the log begin there?"""
        if position == self.begin:
            return True
        if not self.begin < position <= self.end_of_files:
            return False
        last = self.last_record_before(position)
        return last is not None and last.physical_offset + last.size == position

    def last_record_before(self, end: int) -> Head | None:
        """The last sound record that ends there or before, if it is in the same file."""
        start = (end - 1) - (end - 1) % self.segment_bytes
        upper, step = end, HEAD_BYTES
        while upper > start:
            lower = max(start, upper - step)
            # Three bytes more, so that a magic number on the seam is found.
            data = self.segments.read(lower, min(upper + 3, end) - lower)
            at = data.rfind(record.MAGIC_BYTES)
            while at >= 0:
                found = self.sound_at(lower + at - 4) if lower + at - 4 >= start else None
                if found and lower + at - 4 + found.head.size <= end:
                    return found.head
                at = data.rfind(record.MAGIC_BYTES, 0, at + 3)
            upper, step = lower, min(step * 4, WINDOW_BYTES)
        return None


def windows(
    log: LogView, begin: int, end: int, *, needle: bytes = b""
) -> Iterator[tuple[int, Window]]:
    """The sound records between two positions, also behind damage, and how far the walk is.

    With a needle only those that contain these bytes, and their bodies are not checked.
    """
    position: int | None = begin
    while position is not None and position < end:
        walk = LogWalk(log.segments, position, end, needle=needle, check_bodies=True)
        for window in walk:
            yield walk.position, window
        position = log.log_end.next_sound(walk.position, 0) if walk.is_stuck else None


class _File:
    """The points of one file, and a flag for each stretch between them that was compared."""

    def __init__(self, points: list[Point]) -> None:
        self.points = points
        self.ends = [point.position for point in points]
        self.is_compared = bytearray(len(points))


class ChainView:
    """Compares a log with its checksums, stretch by stretch."""

    def __init__(self, log: LogView, sums: Checksums, persisted: Point | None) -> None:
        """persisted: end and chain of the last persist."""
        self._log = log
        self._sums = sums
        self._persisted = persisted
        mark = log.log_end.mark_over(log.begin)
        self._trusted_end = max(
            persisted.position if persisted else 0, mark.synced_end if mark else 0
        )
        self._files: dict[int, _File] = {}

    def damage_in(self, begin: int, end: int) -> StoreDamaged | None:
        """The error for the first changed stretch with bytes begin <= n < end; None if none.

        The bytes lie in one file.  Each stretch is reported once.
        """
        start = begin - begin % self._log.segment_bytes
        file = self._files.get(start)
        if file is None:
            file = self._files[start] = _File(self._points(start))
        first = max(1, bisect_right(file.ends, begin))
        last = min(len(file.ends) - 1, bisect_left(file.ends, end))
        for number in range(first, last + 1):
            if file.is_compared[number]:
                continue
            file.is_compared[number] = 1
            before, known = file.points[number - 1], file.points[number]
            chain = self._sums.chain_at(before, known.position)
            if chain == known.chain or self._log.is_gone(start):
                continue
            if not self._has_broken_record(before.position, known.position):
                upto = known.position - start
                return StoreDamaged(
                    str(self._log.segments.path_at(start)),
                    before.position - start,
                    f"the checksum {known.chain:#010x} of all bytes before {upto}",
                    f"{chain:#010x}: a header or properties have changed since they were written",
                )
        return None

    def _has_broken_record(self, begin: int, end: int) -> bool:
        """Is there a broken record, which the reader itself will report?"""
        start = begin - begin % self._log.segment_bytes
        file_end = start + self._log.segment_bytes
        position: int | None = start
        while position is not None and position < end:
            walk = LogWalk(self._log.segments, position, file_end, check_bodies=True)
            if any(walk.position >= end for _ in walk) or not walk.is_stuck:
                return False
            position = self._log.log_end.next_sound(walk.position, 0)
            if walk.position < end and (position is None or position > begin):
                return True
        return False

    def _points(self, start: int) -> list[Point]:
        """The points of the file that begins at start, ascending; the first is its beginning."""
        first = Point(start, 0)
        persisted, trusted_end = self._persisted, self._trusted_end
        log_end = self._log.log_end
        known = log_end.known_points(self._sums, start, first, persisted, trusted_end)
        return [first, *known]
