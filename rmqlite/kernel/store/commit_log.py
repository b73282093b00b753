"""The commit log: append records, read one, walk them, find the true end.

Records lie one behind the other; none crosses a file's end: a blank fills the rest of the
file (reference §1.3), with room for the synced mark.  The log is the only truth: queues and
progress are made from it, and its bytes are added to a checksum as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from rmqlite.kernel.records import record
from rmqlite.kernel.records.packed import Chunk, PackedRun
from rmqlite.kernel.records.record import BLANK_BYTES
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import Descriptor, error_of, flush_failed
from rmqlite.kernel.store.disk.segments import Segments
from rmqlite.kernel.store.log.checksums import (
    MARK_BYTES,
    Checksums,
    Mark,
    Point,
    encode_mark,
    is_broken_mark,
    mark_position,
    record_bytes_max,
)
from rmqlite.kernel.store.log.log_end import LogEnd, damage_at
from rmqlite.kernel.store.log.log_walk import WINDOW_BYTES, LogWalk
from rmqlite.kernel.words.errors import (
    FlushFailed,
    MessageNotFound,
    MessageTooLarge,
    StoreDamaged,
    StoreUnavailable,
)

CHECKSUMS: Final = "checksums"
"""The folder of the checksums, beside the log's."""


@dataclass(frozen=True, slots=True)
class SyncJob:
    """Makes everything up to log_end durable; runs in any thread."""

    files: Files
    paths: tuple[Path, ...]
    point: Point
    failure: FlushFailed | None = None
    """An earlier sync failed: the job raises this, because no later sync can be trusted."""

    @property
    def log_end(self) -> int:
        return self.point.position

    def descriptor(self) -> Descriptor | None:
        """The one file to sync, if that is all there is to do; otherwise run() does it."""
        if self.failure is not None or len(self.paths) != 1:
            return None
        return self.files.descriptor(self.paths[0])

    def failed(self, number: int) -> FlushFailed:
        """What run() would have raised; number: the errno of an fdatasync of descriptor()."""
        return flush_failed(self.paths[0], error_of(number))

    def run(self) -> None:
        """Raises FlushFailed; the store must not be written to any more then."""
        if self.failure is not None:
            raise self.failure
        for path in self.paths:
            self.files.sync(path)


class CommitLog:
    """The log; one thread writes and reads it."""

    def __init__(self, files: Files, folder: Path, segment_bytes: int) -> None:
        self._files = files
        self._segments = Segments(files, folder, segment_bytes)
        self.sums = Checksums(files, folder.with_name(CHECKSUMS), self._segments)
        self.log_end = LogEnd(self._segments)
        self._mark_position = mark_position(segment_bytes)
        self._record_bytes_max = record_bytes_max(segment_bytes)
        self._marked = -1
        self._closed: list[Point] = []
        """The ends of full files that are not on disk yet; their last marks follow the sync."""
        self._remarked: set[int] = set()
        """The starts of full files whose last mark is not synced yet; the next persist syncs it."""
        self.end = self._segments.first_position
        """One past the last record; the next one begins there."""
        self.persisted_end = 0
        """The log's end at the last persist."""
        self.synced_end = 0
        """The physical offset up to which the log is on disk."""
        self.marked_end = 0
        """Full files that end before this offset have their last mark; a persist syncs it."""
        self.newest_timestamp_ms = 0
        """Store timestamp of the last record; appends never go below it."""
        self._is_cut_due = False

    @property
    def segments(self) -> Segments:
        return self._segments

    @property
    def segment_bytes(self) -> int:
        return self._segments.segment_bytes

    @property
    def min_offset(self) -> int:
        """The physical offset at which the oldest file begins."""
        return self._segments.first_position

    def begin_now(self) -> int:
        """min_offset, if another process removes files; see Segments.begin_now."""
        return self._segments.begin_now()

    @property
    def segment_starts(self) -> tuple[int, ...]:
        return self._segments.starts

    def timestamp_ms(self, now_ms: int) -> int:
        """The store timestamp of records that are appended now: none is older than the last."""
        return max(now_ms, self.newest_timestamp_ms)

    def append(self, run: PackedRun) -> None:
        """Write records at the end, all or none; their time is one of timestamp_ms().

        The bytes are not synced.  Raises StoreUnavailable, MessageTooLarge, and FlushFailed,
        which is final; after an error none of the records can be read back.
        """
        if self._is_cut_due:
            # A failed batch left bytes; new records of the same size could line up with them.
            self.cut(self.end)
        position = self.end
        runs: list[tuple[int, list[Chunk]]] = []
        # Where the last record of this file must end: a blank and the mark follow.
        room_until = position - position % self.segment_bytes + self._record_bytes_max
        while True:
            chunks, end = run.encode(position, room_until)
            runs.append((position, chunks))
            if run.is_over:
                break
            room = self.segment_bytes - end % self.segment_bytes
            if room == self.segment_bytes and not chunks:
                self._refuse(run)
            # The next one has its place in the next file.
            chunks.append(record.encode_blank(room))
            position = end + room
            room_until += self.segment_bytes
        self.write_runs(runs)
        self.newest_timestamp_ms = run.stored_ms

    def write_runs(self, runs: Sequence[tuple[int, Sequence[Chunk]]]) -> None:
        """Write whole records at the end, all or none: where each run begins, and its bytes.

        Each but the last ends in the blank that fills a file.  Raises what append() does.
        """
        begin = self.end
        try:
            point = self._write(runs)
        except Exception:
            # A later append may be shorter: remains of this one must not be read as records.
            self.cut(begin)
            raise
        self.sums.last = point
        self.end = point.position

    def _refuse(self, run: PackedRun) -> NoReturn:
        most, of = self._record_bytes_max, self.segment_bytes
        rule = f"at most {most} bytes as a record in log files of {of}"
        raise MessageTooLarge("message", run.next_bytes(), rule)

    def _write(self, runs: Sequence[tuple[int, Sequence[Chunk]]]) -> Point:
        """Write each run at its beginning; returns the last end and the chain there."""
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
        """Sync a file's mark before its first record: recovery needs it to judge a crash."""
        start = point.position - point.position % self.segment_bytes
        if start == self._marked or point.position - start + BLANK_BYTES > self._mark_position:
            return
        self._segments.ensure(start)
        self._write_mark(point)
        self._files.sync(self._segments.path_at(start))
        self._marked = start

    def _write_mark(self, point: Point, synced_end: int | None = None) -> None:
        start = point.position - point.position % self.segment_bytes
        if point.position - start + BLANK_BYTES > self._mark_position:
            # Records of RocketMQ's may lie there.
            return
        mark = encode_mark(Mark(self.synced_end if synced_end is None else synced_end, *point))
        self._segments.write(start + self._mark_position, mark)

    def mark_synced(self, point: Point) -> None:
        """Note that everything up to a former `point` is on disk, and write it into the mark."""
        self.synced_end = max(self.synced_end, point.position)
        with suppress(StoreUnavailable):
            # A mark whose write fails may be torn: the next call writes it again.
            while self._closed and self._closed[0].position <= self.synced_end:
                closed = self._closed[0]
                if closed.position >= self.min_offset:
                    self._remarked.add(closed.position - closed.position % self.segment_bytes)
                    self._write_mark(closed, closed.position)
                del self._closed[0]
        self.marked_end = min([self.synced_end, *(each.position for each in self._closed)])
        start = point.position - point.position % self.segment_bytes
        if start == self._marked and point.position > start:
            # A failure is harmless: the mark only helps to judge a crash, and an older one stays.
            with suppress(StoreUnavailable):
                self._write_mark(point)

    @property
    def point(self) -> Point:
        """The log's end, and the chain there."""
        return self.sums.last

    def read(self, physical_offset: int, size: int) -> bytes:
        """Bytes of the log, up to its end; nothing of what lies before its beginning.

        Neighbours are read together, and retention may have removed only the first of them: then
        zeros stand for the bytes before the beginning.
        """
        if (gone := self.min_offset - physical_offset) > 0:
            return bytes(gone) + self.read(self.min_offset, size - gone) if gone < size else b""
        return self._segments.read(physical_offset, min(size, self.end - physical_offset))

    def read_each(self, spans: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """What read() returns for each of these physical offsets and sizes."""
        for span in spans if len(spans) > 1 else ():
            self._segments.will_read(*span)
        for span in spans:
            yield self.read(*span)

    def read_raw(self, position: int, size: int) -> bytes:
        """Bytes of the files at a position, also past the log's end; for checks."""
        return self._segments.read(position, size)

    def read_record(self, physical_offset: int, size: int = 4096) -> Record:
        """The record that begins there; size is a guess.  Raises MessageNotFound, StoreDamaged."""
        found = self.read_head(physical_offset, size)
        if found is None:
            raise MessageNotFound(physical_offset)
        if not found.has_sound_body():
            expected = f"a body with CRC {found.head.body_crc:#010x}"
            raise self.damage(physical_offset, expected)
        return found

    def read_head(self, physical_offset: int, size: int = 4096) -> Record | None:
        """The record that begins there, or None.  Its own physical offset must agree."""
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
        return Record(head, data)

    def walk(self, physical_offset: int, *, to_end: bool = False) -> Iterator[Record]:
        """Every record from one on, CRC checked.

        The walk goes up to `end`; with to_end as far as the bytes are sound: then `end` moves
        along and is the log's true end afterwards.  Raises StoreDamaged for damage before
        the log's end.
        """
        upto = self._segments.end_position if to_end else self.end
        walk = LogWalk(self._segments, physical_offset, upto, check_bodies=True)
        for head, data in ((head, window.data) for window in walk for head in window.heads):
            if to_end:
                if self.log_end.is_torn(head):
                    self._check_end(head.physical_offset)
                    return
                # A blank does not move the end: a torn batch may have written only that.
                self.end = head.physical_offset + head.size
                newest_ms = max(self.newest_timestamp_ms, head.store_timestamp_ms)
                self.newest_timestamp_ms = newest_ms
            yield Record(head, data)
        if to_end:
            self._check_end(walk.position)
        elif walk.is_stuck:
            raise self.damage(walk.position, "a record")

    def _check_end(self, position: int) -> None:
        self.log_end.check(position, self.newest_timestamp_ms, self.persisted_end)

    def has_bytes_from(self, position: int) -> bool:
        """Are there bytes other than zeros and marks at or behind a position?"""
        return self.log_end.has_bytes_from(position)

    def cut(self, physical_offset: int) -> None:
        """End the log at physical_offset; everything behind it reads as zeros.

        Raises StoreUnavailable: the log ends there all the same, and the next append cuts
        first.
        """
        self.end = physical_offset
        self._is_cut_due = True
        self._marked = -1
        start = physical_offset - physical_offset % self.segment_bytes
        place = start + self._mark_position
        # The mark stays: without it, holes from a power cut would be taken for damage.
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
        """Undo the last append: the log ends at `before` again.  Raises as cut() does."""
        self.sums.last = before
        self.cut(before.position)

    def begin_at(self, physical_offset: int, newest_timestamp_ms: int) -> None:
        """Set the end before a walk that starts there; the bytes before must be sound."""
        self.end = physical_offset
        self.newest_timestamp_ms = newest_timestamp_ms

    def sum_up(self) -> None:
        """Continue the checksums at the end that a walk has found."""
        self.sums.begin_at(self.sums.known_before(self.end), self.end)

    def remove_broken_marks(self, begin: int) -> None:
        """Remove torn marks from `begin` on: some disks write less than a sector at once."""
        for start in self._segments.starts:
            place = start + self._mark_position
            if start + self.segment_bytes > begin and is_broken_mark(
                self._segments.read(place, MARK_BYTES)
            ):
                end = start
                for walked in self.walk(start):
                    if walked.head.physical_offset >= place:
                        break
                    end = walked.end
                # If RocketMQ has filled the file, these bytes belong to a record.
                if end + BLANK_BYTES <= place:
                    self._segments.write(place, bytes(MARK_BYTES))

    def write_again(self, begin: int) -> None:
        """Write the bytes between `begin` and the end again, unchanged.

        After a failed fsync the system treats pages as clean that are not on disk.
        """
        while begin < self.end:
            room = self.segment_bytes - begin % self.segment_bytes
            data = self._segments.read(begin, min(WINDOW_BYTES, room, self.end - begin))
            self._segments.write(begin, data)
            begin += len(data)

    def has_room_for(self, physical_offset: int) -> bool:
        """Do the files reach from the first position to this one?"""
        return self.min_offset <= physical_offset <= self._segments.end_position

    def take_unsynced(self) -> list[Path]:
        return self._segments.take_unsynced()

    def take_unsynced_sums(self) -> list[Path]:
        """The files of checksums, and those with a last mark, that are not synced yet."""
        paths = [self.path_at(start) for start in self.segment_starts if start in self._remarked]
        self._remarked.clear()
        return paths + self.sums.take_unsynced()

    def paths_between(self, begin: int, end: int) -> list[Path]:
        """The files with the bytes begin <= n <= end, and the file that ends at begin."""
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
        """The error for wrong bytes at a position; it shows the bytes found."""
        return damage_at(self._segments, physical_offset, expected)

    def path_at(self, physical_offset: int) -> Path:
        return self._segments.path_at(physical_offset)
