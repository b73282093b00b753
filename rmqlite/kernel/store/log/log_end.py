"""Where the log truly ends: tells the remains of a crash from damage.

Below the synced mark every record must be sound.  Beyond it nothing was promised: the log
ends where no sound record follows, or where a power cut has left a hole between bytes that
did reach the disk.  Without a mark, as in a store of RocketMQ's, a hole is damage.  A tail
that somebody cut off together with the mark is an end, too; the log's opener warns of it.
Everything else is damage: it is reported with file and position, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmqlite.kernel.records import record
from rmqlite.kernel.records.record import BLANK_BYTES, Head
from rmqlite.kernel.store.disk.segments import Segments, is_zeros
from rmqlite.kernel.store.log.checksums import (
    MARK_BYTES,
    SECTOR_BYTES,
    Checksums,
    Mark,
    Point,
    decode_mark,
    mark_position,
)
from rmqlite.kernel.words.errors import StoreDamaged

SCAN_BYTES: Final = 1 << 20
"""Bytes per read while searching for the beginning of a record."""


class LogEnd:
    """Examines a log's files behind the end that recovery has found."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._segment_bytes = segments.segment_bytes
        self._mark_position = mark_position(segments.segment_bytes)

    def mark_of(self, start: int) -> Mark | None:
        """The mark in the file that begins there."""
        return decode_mark(self._segments.read(start + self._mark_position, MARK_BYTES))

    def mark_over(self, position: int) -> Mark | None:
        """The newest mark in the file of a position or in a later one."""
        for start in reversed(self._segments.starts):
            if start + self._segment_bytes <= position:
                return None
            mark = self.mark_of(start)
            if mark is not None:
                return mark
        return None

    def known_points(
        self,
        sums: Checksums,
        start: int,
        first: Point,
        persisted: Point | None,
        trusted_end: int,
    ) -> list[Point]:
        """The chains that one file must have, at ascending positions behind first.

        start: where the file begins.  trusted_end: chains behind it are left out, because a
        power cut may have taken their bytes.
        """
        mark = self.mark_of(start)
        points = [persisted] if persisted else []
        points += [Point(*mark[1:])] if mark and mark.is_sure else []
        limit = min(trusted_end, start + self._segment_bytes)
        points = [each for each in points if first.position < each.position <= limit]
        if points:
            points += sums.points(first.position, max(each.position for each in points))
        return sorted(set(points))

    def check(self, position: int, newest_timestamp_ms: int, persisted_end: int) -> None:
        """Raises StoreDamaged if the log does not end at a position without a sound record.

        newest_timestamp_ms: of the records before.  persisted_end: an end that was on disk
        once; 0 without one.
        """
        mark = self.mark_over(position)
        if mark is not None and position < mark.synced_end:
            expected = f"a record, because the log was on disk up to {mark.synced_end}"
            raise damage_at(self._segments, position, expected)
        follows = self.next_sound(position, newest_timestamp_ms)
        if follows is not None and not (mark is not None and self._has_hole(position, follows)):
            expected = f"a record, because there is one at {follows}"
            raise damage_at(self._segments, position, expected)
        if mark is None and position < persisted_end and not self._is_cut(position):
            raise damage_at(self._segments, position, "a record")

    def next_sound(self, position: int, newest_timestamp_ms: int) -> int | None:
        """Where the first valid record behind a position begins; None if there is none.

        A record that is older than those before the position does not count: RocketMQ leaves
        such records in place when it cuts a tail.
        """
        carried, carried_at = b"", position
        for start, data in self._data_from(position):
            if carried and carried_at + len(carried) == start:
                start, data = carried_at, carried + data
            at = data.find(record.MAGIC_BYTES)
            while at >= 0:
                offset = start + at - 4
                if offset > position and self._has_record(offset, newest_timestamp_ms):
                    return offset
                at = data.find(record.MAGIC_BYTES, at + 1)
            carried, carried_at = data[-3:], start + len(data) - 3
        return None

    def goes_on_at(self, position: int) -> bool:
        """Does a sound record begin there, or the blank that fills the file?"""
        room = self._segment_bytes - position % self._segment_bytes
        is_blank = self._segments.read(position, BLANK_BYTES) == record.encode_blank(room)
        return is_blank or self._has_record(position, 0)

    def has_bytes_from(self, position: int) -> bool:
        """Are there bytes other than zeros and marks at or behind a position?"""
        place = position - position % self._segment_bytes + self._mark_position
        if place < position < place + MARK_BYTES:
            # RocketMQ has written over the mark's beginning: skip the rest of the mark.
            position = place + MARK_BYTES
        return any(not is_zeros(data) for _, data in self._data_from(position))

    def is_torn(self, head: Head) -> bool:
        """Was a record's property string, which no CRC covers, written only in part?"""
        if b"\0" not in head.properties:
            return False
        mark = self.mark_over(head.physical_offset)
        if mark is not None:
            return head.physical_offset >= mark.synced_end
        return head.properties.endswith(b"\0") and not self.has_bytes_from(
            head.physical_offset + head.size
        )

    def _has_hole(self, begin: int, end: int) -> bool:
        """Is there a sector that was never written, or only in part?

        A torn sector ends in what was there before: zeros.  Zeros where a record should begin
        count, too: a disk leaves them when it fails while the log undoes a failed append.  So
        does a file's end without a blank before another file: the write was torn, and the
        later file was synced first.
        """
        if not any(self._segments.read(begin, BLANK_BYTES)):
            return True
        is_behind = begin // self._segment_bytes < end // self._segment_bytes
        if is_behind and not self._ends_in_blank(begin):
            return True
        while begin < end:
            size = SECTOR_BYTES - begin % self._segment_bytes % SECTOR_BYTES
            data = self._segments.read(begin, min(size, end - begin))
            written = self._without_mark(begin, data)
            is_torn = written == data and len(data) == size and data.endswith(b"\0")
            if is_torn or not any(written):
                return True
            begin += max(1, len(data))
        return False

    def _ends_in_blank(self, position: int) -> bool:
        """Does the file of a position end in the blank that fills it?"""
        file_end = position - position % self._segment_bytes + self._segment_bytes
        last = position
        for start, data in self._data_from(position):
            if start >= file_end:
                break
            if any(data[: file_end - start]):
                last = start + len(data[: file_end - start].rstrip(b"\0"))
        begin = last - BLANK_BYTES
        blank = record.encode_blank(file_end - begin)
        return self._segments.read(begin, BLANK_BYTES) == blank

    def _is_cut(self, position: int) -> bool:
        """Are there only zeros behind at most the beginning of a record or a blank?"""
        last = position - 1
        for start, data in self._data_from(position):
            if not is_zeros(data):
                last = start + len(data.rstrip(b"\0")) - 1
        begun = self._segments.read(position, min(BLANK_BYTES, last - position + 1))
        blank = record.encode_blank(self._segment_bytes - position % self._segment_bytes)
        if blank.startswith(begun):
            return True
        if not record.MAGIC_BYTES.startswith(begun[4:]):
            return False
        if len(begun) < BLANK_BYTES:
            return True
        size = int.from_bytes(begun[:4], "big")
        if position + size <= last + 1 or size > self._segment_bytes:
            return False
        data = self._segments.read(position, size)
        head = record.read_head(data)
        # If all lengths add up, the cut took zeros at most: a wrong body is then damage.
        return head is None or record.has_sound_body(head, data)

    def _has_record(self, physical_offset: int, newest_timestamp_ms: int) -> bool:
        start = self._segments.read(physical_offset, BLANK_BYTES)
        size = int.from_bytes(start[:4], "big")
        if not record.RECORD_BYTES_MIN <= size <= self._segment_bytes:
            return False
        data = self._segments.read(physical_offset, size)
        head = record.read_head(data)
        return (
            head is not None
            and head.physical_offset == physical_offset
            and head.store_timestamp_ms >= newest_timestamp_ms
            and record.has_sound_body(head, data)
        )

    def _data_from(self, position: int) -> Iterator[tuple[int, bytes]]:
        """The files' bytes from a position on, with zeros in place of the marks."""
        for start, data in self._segments.data_ranges(position, SCAN_BYTES):
            yield start, self._without_mark(start, data)

    def _without_mark(self, start: int, data: bytes) -> bytes:
        at = start - start % self._segment_bytes + self._mark_position
        begin, end = max(0, at - start), min(len(data), at + MARK_BYTES - start)
        if begin < end and self.mark_of(at - self._mark_position):
            return data[:begin] + bytes(end - begin) + data[end:]
        return data


def damage_at(segments: Segments, position: int, expected: str) -> StoreDamaged:
    """The error for wrong bytes at a position; it shows the bytes found."""
    found = segments.read(position, 16).hex(" ", 4) or "nothing"
    return StoreDamaged(
        str(segments.path_at(position)),
        position % segments.segment_bytes,
        expected,
        f"the bytes {found}",
    )
