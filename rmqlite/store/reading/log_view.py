"""A read-only view of the log while another process may write it.

A log in use grows at its end and loses files at its front; the bytes between never change.
So a reader fixes an end once, and it skips and notes files that are gone, without an error.
Bytes that are neither a record nor a blank stop a walk; the caller decides whether they are
damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from rmqlite.errors import StoreDamaged, StoreUnavailable
from rmqlite.records import record
from rmqlite.records.record import BLANK_BYTES, Head
from rmqlite.records.stored import Record
from rmqlite.store.disk.files import ReadOnlyFiles
from rmqlite.store.disk.segments import Segments
from rmqlite.store.log.log_end import LogEnd, damage_at

WINDOW_BYTES: Final = 1 << 20
"""Bytes per read of a walk."""
HEAD_BYTES: Final = 1024
"""Bytes read first for one record; a longer record is read again."""
_LISTINGS_MAX: Final = 5
_SIZE_AND_PLACE: Final = record.layout_of_fields("size", "magic", "physical_offset")

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
        except StoreUnavailable as error:
            _check_gone(error)
            return position
        return self.lengthened.get(path, found) if found >= super().size(path) else found

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


class Window(NamedTuple):
    """Successive records; the positions in their heads are those of data."""

    heads: list[Head]
    data: bytes


class LogView:
    """The files of a log, listed once."""

    def __init__(self, files: LiveFiles, folder: Path, segment_bytes: int) -> None:
        self.segments = listed(lambda: Segments(files, folder, segment_bytes))
        self.segment_bytes = segment_bytes
        self.log_end = LogEnd(self.segments)
        self._first = 0

    @property
    def begin(self) -> int:
        """The physical offset at which the oldest existing file begins."""
        starts = self.segments.starts
        while self._first < len(starts) - 1:
            if self.segments.is_there(starts[self._first]):
                break
            self._first += 1
        return starts[self._first] if starts else 0

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
        walk = LogWalk(log, position, end, needle=needle, check_bodies=True)
        for window in walk:
            yield walk.position, window
        position = log.log_end.next_sound(walk.position, 0) if walk.is_stuck else None


class LogWalk:
    """The records between two positions, a window at a time; `position` moves along.

    The walk ends at `end`, or at bytes that are neither a record nor a blank: then is_stuck
    is True.  With a needle it yields only records that contain these bytes; it skips the
    others at a tenth of the cost.
    """

    def __init__(
        self,
        log: LogView,
        begin: int,
        end: int,
        *,
        needle: bytes = b"",
        check_bodies: bool = False,
    ) -> None:
        self.position = begin
        self.end = end
        self.is_stuck = False
        self.gone_before = 0
        """Files before this physical offset were removed before the walk could read them."""
        self._log = log
        self._needle = needle
        self._check_bodies = check_bodies

    def __iter__(self) -> Iterator[Window]:
        log = self._log
        while self.position < self.end:
            room = log.segment_bytes - self.position % log.segment_bytes
            limit = min(room, self.end - self.position)
            data = log.segments.read(self.position, min(WINDOW_BYTES, limit))
            heads, size = self._records(data)
            if not size:
                wanted, magic = record.BLANK.unpack_from(data.ljust(BLANK_BYTES, b"\0"))
                if magic == record.BLANK_MAGIC and wanted == room:
                    self.position += room
                    continue
                if magic == record.MAGIC and len(data) < wanted <= limit:
                    data = log.segments.read(self.position, wanted)
                    heads, size = self._records(data)
            if size:
                self.position += size
                yield Window(heads, data)
            elif log.is_gone(self.position):
                self.position += room
                self.gone_before = self.position
            else:
                self.is_stuck = True
                return

    def _records(self, data: bytes) -> tuple[list[Head], int]:
        """The wanted ones of the whole records at the beginning of data, and the length of all."""
        if self._needle:
            return self._with_needle(data)
        heads = []
        at, position = 0, self.position
        while (head := record.read_head(data, at)) and head.physical_offset == position + at:
            if self._check_bodies and not record.has_sound_body(head, data):
                break
            heads.append(head)
            at += head.size
        return heads, at

    def _with_needle(self, data: bytes) -> tuple[list[Head], int]:
        heads = []
        at, position = 0, self.position
        hit = data.find(self._needle)
        while len(data) - at >= record.RECORD_BYTES_MIN:
            size, magic, place = _SIZE_AND_PLACE.unpack_from(data, at)
            is_whole = record.RECORD_BYTES_MIN <= size <= len(data) - at
            if magic != record.MAGIC or place != position + at or not is_whole:
                break
            if 0 <= hit < at + size:
                head = record.read_head(data, at)
                if head is None:
                    break
                heads.append(head)
                hit = data.find(self._needle, at + size)
            at += size
        return heads, at
