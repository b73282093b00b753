"""The commit log: append records, read one, walk them, find the true end.

Records lie one behind the other; none crosses a file's end, where a blank fills what is
left (reference §1.3); we leave room in it for the synced mark.  The log is the only truth:
queues and progress are made from it, and its bytes are summed up as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.errors import MessageNotFound, MessageTooLarge, StoreDamaged, StoreUnavailable
from rmqlite.store import record
from rmqlite.store.files import Files
from rmqlite.store.log.checksums import (
    MARK_BYTES,
    Checksums,
    Mark,
    Point,
    encode_mark,
    is_broken_mark,
    mark_position,
    record_bytes_max,
)
from rmqlite.store.log.log_end import LogEnd, damage_at
from rmqlite.store.record import BLANK_BYTES, Head, NewRecord
from rmqlite.store.segments import Segments

WALK_BYTES: Final = 1 << 20
"""How much a walk reads at a time."""
CHECKSUMS: Final = "checksums"
"""The folder of the checksums, beside the log's."""


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
        self._files = files
        self._segments = Segments(files, folder, segment_bytes)
        self.sums = Checksums(files, folder.with_name(CHECKSUMS), self._segments)
        self.log_end = LogEnd(self._segments)
        self._mark_position = mark_position(segment_bytes)
        self._blank_bytes_min = segment_bytes - record_bytes_max(segment_bytes)
        self._marked = -1
        self._closed: list[Point] = []
        """The ends of full files, until they are on disk and their marks can say so."""
        self._remarked: set[int] = set()
        """Where full files begin whose last mark no persist has covered."""
        self.end = self._segments.first_position
        """One past the last record: where the next one begins."""
        self.persisted_end = 0
        """An end that the log had when it was last persisted; it can have grown since."""
        self.synced_end = 0
        """Up to where everything is known to be on disk."""
        self.marked_end = 0
        """Full files that end before have their last mark; a persist makes it durable."""
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
        """Write records at the end, all or none.

        Raises StoreUnavailable, MessageTooLarge, and FlushFailed, which is final.  The bytes
        are not synced.  After an error nothing of them can be read back.
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
            if size + self._blank_bytes_min > room:
                if size + self._blank_bytes_min > self.segment_bytes:
                    most = self.segment_bytes - self._blank_bytes_min
                    rule = f"at most {most} bytes as a record in log files of {self.segment_bytes}"
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
            point = self._write(runs)
        except Exception:
            # A later append is shorter: what this one left behind must not be read as records.
            self.cut(begin)
            raise
        self.sums.last = point
        self.end = position
        self.newest_timestamp_ms = timestamp_ms
        return written

    def _write(self, runs: Sequence[tuple[int, Sequence[bytes]]]) -> Point:
        """Write each run where it begins; the last end and the chain there."""
        point = self.sums.last
        for start, chunks in runs:
            if start % self.segment_bytes == 0:
                if point.position // self.segment_bytes == self._marked // self.segment_bytes:
                    self._write_mark(point)
                    self._closed.append(point)
                point = Point(start, 0)
            self._mark_file(point)
            data = b"".join(chunks)
            self._segments.write(start, data)
            point = self.sums.extended(point, data)
        return point

    def _mark_file(self, point: Point) -> None:
        """Before a file's first record its mark is on disk: what lies beyond is not promised."""
        start = point.position - point.position % self.segment_bytes
        if start == self._marked or point.position - start + BLANK_BYTES > self._mark_position:
            return
        self._segments.ensure(start)
        self._write_mark(point)
        self._files.sync(self._segments.path_at(start))
        self._marked = start

    def _write_mark(self, point: Point, synced_end: int | None = None) -> None:
        start = point.position - point.position % self.segment_bytes
        mark = encode_mark(Mark(self.synced_end if synced_end is None else synced_end, *point))
        self._segments.write(start + self._mark_position, mark)

    def mark_synced(self, point: Point) -> None:
        """Everything up to a former `point` is on disk: the next sync says so there."""
        self.synced_end = max(self.synced_end, point.position)
        with suppress(StoreUnavailable):
            # A mark whose write fails may be torn: it is written by the next call.
            while self._closed and self._closed[0].position <= self.synced_end:
                closed = self._closed[0]
                if closed.position >= self.min_offset:
                    self._remarked.add(closed.position - closed.position % self.segment_bytes)
                    self._write_mark(closed, closed.position)
                del self._closed[0]
        self.marked_end = min([self.synced_end, *(each.position for each in self._closed)])
        start = point.position - point.position % self.segment_bytes
        if start == self._marked and point.position > start:
            # The mark only helps to judge a crash; its page is there since the file began.
            with suppress(StoreUnavailable):
                self._write_mark(point)

    @property
    def point(self) -> Point:
        """The log's end, and the chain there."""
        return self.sums.last

    def read(self, physical_offset: int, size: int) -> bytes:
        """Bytes of the log, up to its end."""
        if physical_offset < self.min_offset:
            return b""
        return self._segments.read(physical_offset, min(size, self.end - physical_offset))

    def read_raw(self, position: int, size: int) -> bytes:
        """What the files hold at a position, also past the log's end; for who checks them."""
        return self._segments.read(position, size)

    def read_record(self, physical_offset: int, size: int = 4096) -> Walked:
        """The record that begins there; size is a guess.  Raises MessageNotFound, StoreDamaged."""
        found = self.read_head(physical_offset, size)
        if found is None:
            raise MessageNotFound(physical_offset)
        self._check_body(*found, physical_offset)
        return found

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
                if record.has_sound_body(head, data) and not (
                    to_end and self.log_end.is_torn(head)
                ):
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
            self.log_end.check(position, self.newest_timestamp_ms, self.persisted_end)
            return

    def next_sound(self, position: int) -> int | None:
        """Where the first valid record behind a position begins; None if there is none."""
        return self.log_end.next_sound(position, self.newest_timestamp_ms)

    def has_bytes_from(self, position: int) -> bool:
        """Is anything but zeros and a mark there or behind?"""
        return self.log_end.has_bytes_from(position)

    def cut(self, physical_offset: int) -> None:
        """Everything from there on reads as zeros; the log ends there.

        Raises StoreUnavailable: the log ends there all the same, the next append cuts first.
        """
        self.end = physical_offset
        self._is_cut_due = True
        self._marked = -1
        start = physical_offset - physical_offset % self.segment_bytes
        place = start + self._mark_position
        # A mark stays: without it a power cut, now, would leave holes that nothing excuses.
        is_marked = (
            physical_offset + BLANK_BYTES <= place and self.log_end.mark_of(start) is not None
        )
        self._segments.cut(physical_offset, place if is_marked else None)
        self._is_cut_due = False
        self._closed = [each for each in self._closed if each.position < start]
        if is_marked and start in self._segments.starts:
            self._marked = start
            if self.sums.last.position == physical_offset:
                self._write_mark(self.sums.last)

    def cut_back(self, before: Point) -> None:
        """Undo the last append: the log ends again where `point` was.  Raises as cut() does."""
        self.sums.last = before
        self.cut(before.position)

    def begin_at(self, physical_offset: int, newest_timestamp_ms: int) -> None:
        """What lies before is known to be sound: a walk may start here."""
        self.end = physical_offset
        self.newest_timestamp_ms = newest_timestamp_ms

    def sum_up(self) -> None:
        """Continue the checksums at the end that a walk has found."""
        self.sums.begin_at(self.sums.known_before(self.end), self.end)

    def remove_broken_marks(self, begin: int) -> None:
        """Of the files from there on: torn by a disk that writes less than a sector at a time."""
        for start in self._segments.starts:
            place = start + self._mark_position
            if start + self.segment_bytes > begin and is_broken_mark(
                self._segments.read(place, MARK_BYTES)
            ):
                end = start
                for head, _ in self.walk(start):
                    if head.physical_offset >= place:
                        break
                    end = head.physical_offset + head.size
                # Where RocketMQ has filled the file, these are a record's bytes.
                if end + BLANK_BYTES <= place:
                    self._segments.write(place, bytes(MARK_BYTES))

    def write_again(self, begin: int) -> None:
        """Write what lies between there and the end once more, as it is.

        After an fsync that failed, the system takes pages for clean that are not on disk.
        """
        while begin < self.end:
            room = self.segment_bytes - begin % self.segment_bytes
            data = self._segments.read(begin, min(WALK_BYTES, room, self.end - begin))
            self._segments.write(begin, data)
            begin += len(data)

    def has_room_for(self, physical_offset: int) -> bool:
        """Do the files reach from the first position to this one?"""
        return self.min_offset <= physical_offset <= self._segments.end_position

    def take_unsynced(self) -> list[Path]:
        return self._segments.take_unsynced()

    def take_unsynced_sums(self) -> list[Path]:
        """The files of checksums, and those with a last mark, that no persist has covered."""
        paths = [self.path_at(start) for start in self.segment_starts if start in self._remarked]
        self._remarked.clear()
        return paths + self.sums.take_unsynced()

    def paths_between(self, begin: int, end: int) -> list[Path]:
        """The files that hold the bytes begin <= n < end, or the last one's end."""
        return [
            self._segments.path_at(start)
            for start in self._segments.starts
            if start <= end and start + self.segment_bytes >= begin
        ]

    def drop_before(self, physical_offset: int) -> list[Path]:
        """Remove files that end at or before there; see Segments.drop_before."""
        starts = self._segments.starts
        gone = self._segments.drop_before(physical_offset)
        for start in starts[: len(gone)]:
            self.sums.drop(start)
        return gone

    def damage(self, physical_offset: int, expected: str) -> StoreDamaged:
        """The error for bytes that are not what they should be, with what they are."""
        return damage_at(self._segments, physical_offset, expected)

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

    def _is_blank(self, data: bytes, at: int, position: int) -> bool:
        if len(data) - at < BLANK_BYTES:
            return False
        size, magic = record.BLANK.unpack_from(data, at)
        room = self.segment_bytes - position % self.segment_bytes
        return bool(magic == record.BLANK_MAGIC and size == room)

    def _check_body(self, head: Head, data: bytes, physical_offset: int) -> None:
        if not record.has_sound_body(head, data):
            raise self.damage(physical_offset, f"a body with CRC {head.body_crc:#010x}")
