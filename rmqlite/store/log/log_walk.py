"""A walk over the records of a log, in windows: the writer's, a reader's and a repair's.

Bytes that are neither a record nor a blank stop it; the caller decides whether they are damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rmqlite.records import record
from rmqlite.records.record import BLANK_BYTES, Head
from rmqlite.store.disk.segments import Segments

WINDOW_BYTES: Final = 1 << 20
"""Bytes per read of a walk."""
_SIZE_AND_PLACE: Final = record.layout_of_fields("size", "magic", "physical_offset")


class Window(NamedTuple):
    """Successive records; the positions in their heads are those of data."""

    heads: list[Head]
    data: bytes


class LogWalk:
    """The records between two positions, a window at a time; `position` moves along.

    The walk ends at `end`, or at bytes that are neither a record nor a blank: then is_stuck
    is True.  With a needle it yields only records that contain these bytes; it skips the
    others at a tenth of the cost.
    """

    def __init__(
        self,
        segments: Segments,
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
        self._segments = segments
        self._needle = needle
        self._check_bodies = check_bodies

    def __iter__(self) -> Iterator[Window]:
        segments = self._segments
        while self.position < self.end:
            room = segments.segment_bytes - self.position % segments.segment_bytes
            limit = min(room, self.end - self.position)
            data = segments.read(self.position, min(WINDOW_BYTES, limit))
            heads, size = self._records(data)
            if not size:
                wanted, magic = record.BLANK.unpack_from(data.ljust(BLANK_BYTES, b"\0"))
                if magic == record.BLANK_MAGIC and wanted == room:
                    self.position += room
                    continue
                if magic == record.MAGIC and len(data) < wanted <= limit:
                    data = segments.read(self.position, wanted)
                    heads, size = self._records(data)
            if size:
                self.position += size
                yield Window(heads, data)
            elif not segments.is_there(self.position):
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
