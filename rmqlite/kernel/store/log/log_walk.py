"""A walk over the records of a log, in windows: the writer's, a reader's and a repair's.

Bytes that are neither a record nor a blank stop it; the caller decides whether they are damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rmqlite.kernel.records import record
from rmqlite.kernel.records.record import BLANK_BYTES, Head
from rmqlite.kernel.store.disk.segments import Segments

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
    others at a tenth of the cost.  take(data, at, base) gets the bytes of a window first, from a
    position in it that has physical offset base + at; it takes the records that it can, and returns
    where the first other one begins, which the walk yields.
    """

    def __init__(
        self,
        segments: Segments,
        begin: int,
        end: int,
        *,
        needle: bytes = b"",
        check_bodies: bool = False,
        take: Callable[[bytes, int, int], int] | None = None,
    ) -> None:
        self.position = begin
        self.end = end
        self.is_stuck = False
        self.gone_before = 0
        """Files before this physical offset were removed before the walk could read them."""
        self._segments = segments
        self._needle = needle
        self._check_bodies = check_bodies
        self._take = take

    def __iter__(self) -> Iterator[Window]:
        segments = self._segments
        while self.position < self.end:
            room = segments.segment_bytes - self.position % segments.segment_bytes
            limit = min(room, self.end - self.position)
            data = segments.read(self.position, min(WINDOW_BYTES, limit))
            at = 0
            while at < len(data):
                heads, size = self._records(data, at)
                if not size:
                    break
                at += size
                self.position += size
                yield Window(heads, data)
            if not at:
                wanted, magic = record.BLANK.unpack_from(data.ljust(BLANK_BYTES, b"\0"))
                if magic == record.BLANK_MAGIC and wanted == room:
                    self.position += room
                    continue
                if magic == record.MAGIC and len(data) < wanted <= limit:
                    data = segments.read(self.position, wanted)
                    heads, at = self._records(data, 0)
                    if at:
                        self.position += at
                        yield Window(heads, data)
            if at:
                continue
            if not segments.is_there(self.position):
                self.position += room
                self.gone_before = self.position
            else:
                self.is_stuck = True
                return

    def _records(self, data: bytes, begin: int) -> tuple[list[Head], int]:
        """The wanted ones of the whole records that begin there in data, and the length of all."""
        if self._needle:
            return self._with_needle(data, begin)
        heads: list[Head] = []
        base = self.position - begin
        at = self._take(data, begin, base) if self._take else begin
        while (head := record.read_head(data, at)) and head.physical_offset == base + at:
            if self._check_bodies and not record.has_sound_body(head, data):
                break
            heads.append(head)
            at += head.size
            if self._take:
                break
        return heads, at - begin

    def _with_needle(self, data: bytes, begin: int) -> tuple[list[Head], int]:
        heads = []
        at, base = begin, self.position - begin
        hit = data.find(self._needle, at)
        while len(data) - at >= record.RECORD_BYTES_MIN:
            size, magic, place = _SIZE_AND_PLACE.unpack_from(data, at)
            is_whole = record.RECORD_BYTES_MIN <= size <= len(data) - at
            if magic != record.MAGIC or place != base + at or not is_whole:
                break
            if 0 <= hit < at + size:
                head = record.read_head(data, at)
                if head is None:
                    break
                heads.append(head)
                hit = data.find(self._needle, at + size)
            at += size
        return heads, at - begin
