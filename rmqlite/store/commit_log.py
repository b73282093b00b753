"""The commit log: append records, read one, walk them, find the true end.

Records lie one behind the other; none crosses a file's end, where a blank fills what is
left (reference §1.3).  The log is the only truth: queues and progress are made from it.
A tail is torn when nothing valid follows it; anything else is damage and is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.errors import MessageNotFound, MessageTooLarge, StoreDamaged
from rmqlite.message import StoredMessage
from rmqlite.store import record
from rmqlite.store.files import Files
from rmqlite.store.record import BLANK_BYTES, Head, NewRecord
from rmqlite.store.segments import Segments

WALK_BYTES: Final = 1 << 20
"""How much a walk reads at a time."""


class Written(NamedTuple):
    """Where a record went."""

    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp_ms: int


class Walked(NamedTuple):
    """A record met on a walk; buffer is what its head was read from."""

    head: Head
    buffer: bytes


class CommitLog:
    """Written by one thread; reading may happen only there too."""

    def __init__(self, files: Files, folder: Path, segment_bytes: int) -> None:
        self._segments = Segments(files, folder, segment_bytes)
        self.end = self._segments.first_position
        """One past the last record: where the next one begins."""
        self.newest_timestamp_ms = 0
        """Store timestamp of the last record; appends never go below it."""
        self._is_cut_due = False

    @property
    def segment_bytes(self) -> int:
        return self._segments.segment_bytes

    @property
    def min_offset(self) -> int:
        """The physical offset at which the oldest file begins."""
        return self._segments.first_position

    @property
    def segment_starts(self) -> tuple[int, ...]:
        return self._segments.starts

    def append(
        self, records: Sequence[NewRecord], queue_offsets: Sequence[int], now_ms: int
    ) -> list[Written]:
        """Write records at the end, all or none.  Raises StoreUnavailable, MessageTooLarge.

        The bytes are not synced.  After an error nothing of them can be read back.
        """
        if self._is_cut_due:
            # Of a failed batch: records of one size would line up with what it left.
            self.cut(self.end)
        timestamp_ms = max(now_ms, self.newest_timestamp_ms)
        begin = position = self.end
        chunks: list[bytes] = []
        runs: list[tuple[int, list[bytes]]] = [(position, chunks)]
        written = []
        for new, queue_offset in zip(records, queue_offsets, strict=True):
            size, *parts = record.encode(
                new,
                queue_offset=queue_offset,
                physical_offset=position,
                store_timestamp_ms=timestamp_ms,
            )
            room = self.segment_bytes - position % self.segment_bytes
            if size + BLANK_BYTES > room:
                if size + BLANK_BYTES > self.segment_bytes:
                    rule = f"at most {self.segment_bytes - BLANK_BYTES} bytes as one record"
                    raise MessageTooLarge("message", size, rule)
                chunks.append(record.encode_blank(room))
                position += room
                chunks = []
                runs.append((position, chunks))
                # Once in a file: again, at the place that it has now.
                size, *parts = record.encode(
                    new,
                    queue_offset=queue_offset,
                    physical_offset=position,
                    store_timestamp_ms=timestamp_ms,
                )
            chunks += parts
            written.append(Written(queue_offset, position, size, timestamp_ms))
            position += size
        try:
            for start, run in runs:
                self._segments.write(start, b"".join(run))
        except Exception:
            # A later append is shorter: what this one left behind must not be read as records.
            self.cut(begin)
            raise
        self.end = position
        self.newest_timestamp_ms = timestamp_ms
        return written

    def read(self, physical_offset: int, size: int) -> bytes:
        """Bytes of the log, up to its end."""
        if physical_offset < self.min_offset:
            return b""
        return self._segments.read(physical_offset, min(size, self.end - physical_offset))

    def read_raw(self, position: int, size: int) -> bytes:
        """What the files hold at a position, also past the log's end; for who checks them."""
        return self._segments.read(position, size)

    def read_message(self, physical_offset: int, size: int = 4096) -> StoredMessage:
        """The message that begins there; size is a guess.  Raises MessageNotFound."""
        found = self.read_head(physical_offset, size)
        if found is None:
            raise MessageNotFound(physical_offset)
        head, data = found
        self._check_body(head, data, physical_offset)
        return record.to_message(head, data)

    def read_head(self, physical_offset: int, size: int = 4096) -> Walked | None:
        """The record that begins there, or None.  Its own physical offset must say the same."""
        if not self.min_offset <= physical_offset < self.end:
            return None
        data = self.read(physical_offset, size)
        if len(data) >= BLANK_BYTES:
            needed, magic = record.BLANK.unpack_from(data)
            if magic == record.MAGIC and len(data) < needed <= self.segment_bytes:
                data = self.read(physical_offset, needed)
        head = record.read_head(data)
        if head is None or head.physical_offset != physical_offset:
            return None
        return Walked(head, data)

    def walk(self, physical_offset: int, *, to_end: bool = False) -> Iterator[Walked]:
        """Every record from one on, CRC checked.

        Up to `end`; with to_end as far as the bytes are sound: then `end` moves along and is
        the log's true end afterwards.  Raises StoreDamaged where something valid follows
        what is not.
        """
        position, data, base = physical_offset, b"", physical_offset
        while to_end or position < self.end:
            data, base = self._window(position, data, base, to_end=to_end)
            head = record.read_head(data, position - base)
            if head is not None and head.physical_offset == position:
                if record.has_sound_body(head, data) and not (to_end and self._is_torn(head)):
                    position += head.size
                    if to_end:
                        self.end = position
                        self.newest_timestamp_ms = max(
                            self.newest_timestamp_ms, head.store_timestamp_ms
                        )
                    yield Walked(head, data)
                    continue
            elif self._is_blank(data, position - base, position):
                # Not yet the log's end: a blank may be all that a torn batch has written.
                position += self.segment_bytes - position % self.segment_bytes
                continue
            if not to_end:
                raise self.damage(position, "a record")
            self._check_nothing_follows(position)
            return

    def next_sound(self, position: int) -> int | None:
        """Where the first valid record behind a position begins; None if there is none.

        A record older than the log's newest is none: it is what RocketMQ leaves in place
        when it cuts a tail.
        """
        carried, carried_at = b"", position
        for start, data in self._segments.data_ranges(position, WALK_BYTES):
            if carried and carried_at + len(carried) == start:
                start, data = carried_at, carried + data
            at = data.find(record.MAGIC_BYTES)
            while at >= 0:
                offset = start + at - 4
                if offset > position and self._is_sound_record(offset):
                    return offset
                at = data.find(record.MAGIC_BYTES, at + 1)
            carried, carried_at = data[-3:], start + len(data) - 3
        return None

    def has_bytes_from(self, position: int) -> bool:
        """Is anything but zeros there or behind?"""
        return any(any(data) for _, data in self._segments.data_ranges(position, WALK_BYTES))

    def cut(self, physical_offset: int) -> None:
        """Everything from there on reads as zeros; the log ends there.

        Raises StoreUnavailable: the log ends there all the same, the next append cuts first.
        """
        self.end = physical_offset
        self._is_cut_due = True
        self._segments.cut(physical_offset)
        self._is_cut_due = False

    def begin_at(self, physical_offset: int, newest_timestamp_ms: int) -> None:
        """What lies before is known to be sound: a walk may start here."""
        self.end = physical_offset
        self.newest_timestamp_ms = newest_timestamp_ms

    def has_room_for(self, physical_offset: int) -> bool:
        """Do the files reach from the first position to this one?"""
        return self.min_offset <= physical_offset <= self._segments.end_position

    def take_unsynced(self) -> list[Path]:
        return self._segments.take_unsynced()

    def paths_between(self, begin: int, end: int) -> list[Path]:
        """The files that hold the bytes begin <= n < end, or the last one's end."""
        return [
            self._segments.path_at(start)
            for start in self._segments.starts
            if start <= end and start + self.segment_bytes >= begin
        ]

    def drop_before(self, physical_offset: int) -> list[Path]:
        """Remove files that end at or before there; see Segments.drop_before."""
        return self._segments.drop_before(physical_offset)

    def damage(self, physical_offset: int, expected: str) -> StoreDamaged:
        """The error for bytes that are not what they should be, with what they are."""
        path = self._segments.path_at(physical_offset)
        found = self._segments.read(physical_offset, 16).hex(" ", 4) or "nothing"
        return StoreDamaged(
            str(path), physical_offset % self.segment_bytes, expected, f"the bytes {found}"
        )

    def path_at(self, physical_offset: int) -> Path:
        return self._segments.path_at(physical_offset)

    def _window(self, position: int, data: bytes, base: int, *, to_end: bool) -> tuple[bytes, int]:
        """Bytes that hold the whole record at a position, if there is one."""
        left = len(data) - (position - base)
        room = self.segment_bytes - position % self.segment_bytes
        limit = room if to_end else min(room, self.end - position)
        if left < min(BLANK_BYTES, limit):
            data, base = self._segments.read(position, min(WALK_BYTES, limit)), position
            left = len(data)
        if left >= BLANK_BYTES:
            size, magic = record.BLANK.unpack_from(data, position - base)
            if magic == record.MAGIC and left < size <= limit:
                wanted = max(size, min(WALK_BYTES, limit))
                data, base = self._segments.read(position, wanted), position
        return data, base

    def _is_torn(self, head: Head) -> bool:
        """Was the last record's property string, which no CRC covers, written only in part?"""
        end = head.physical_offset + head.size
        return head.properties.endswith(b"\0") and not self.has_bytes_from(end)

    def _is_blank(self, data: bytes, at: int, position: int) -> bool:
        if len(data) - at < BLANK_BYTES:
            return False
        size, magic = record.BLANK.unpack_from(data, at)
        room = self.segment_bytes - position % self.segment_bytes
        return bool(magic == record.BLANK_MAGIC and size == room)

    def _check_nothing_follows(self, position: int) -> None:
        """Raises StoreDamaged if a valid record lies behind a position."""
        offset = self.next_sound(position)
        if offset is not None:
            raise self.damage(position, f"a record, as there is one at {offset}")

    def _is_sound_record(self, physical_offset: int) -> bool:
        start = self._segments.read(physical_offset, BLANK_BYTES)
        size = int.from_bytes(start[:4], "big")
        if not record.RECORD_BYTES_MIN <= size <= self.segment_bytes:
            return False
        data = self._segments.read(physical_offset, size)
        head = record.read_head(data)
        return (
            head is not None
            and head.physical_offset == physical_offset
            and head.store_timestamp_ms >= self.newest_timestamp_ms
            and record.has_sound_body(head, data)
        )

    def _check_body(self, head: Head, data: bytes, physical_offset: int) -> None:
        if not record.has_sound_body(head, data):
            raise self.damage(physical_offset, f"a body with CRC {head.body_crc:#010x}")
