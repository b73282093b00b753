"""Fills damaged stretches of the log with repaired places, and cuts off a lost end.

A record whose lengths still add up names itself; the queue entries that point into damaged parts
name the others.  Each gets a repaired place of its own size; one anonymous place stands for all
records whose number is unknown.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.kernel.records import record
from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK
from rmqlite.kernel.records.record import BLANK_BYTES, RECORD_BYTES_MIN, Head
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.dispatch import QueueKey, queue_keys
from rmqlite.kernel.store.log.checksums import BLOCK_BYTES, Mark, encode_mark, mark_position
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.store_tools.checking.file_layer import queue_folder
from rmqlite.store_tools.checking.finding import Damage, what_is_wrong
from rmqlite.store_tools.checking.sums import sums_path
from rmqlite.store_tools.repairing.places import PLACE_BYTES_MIN, encode_anonymous, encode_named
from rmqlite.store_tools.repairing.plan import (
    CUT,
    PLACE,
    Action,
    Change,
    Overwrite,
    Remove,
    Resize,
    Zero,
    message_id_of,
    record_name,
)

POINTERS_MAX: Final = 100_000
"""The most entries in memory; records behind them are lost without a name."""
_BLOCK_ENTRIES: Final = 8192
NO_SIZE: Final = ENTRY.unpack(PRE_BLANK)[1]
"""The size in the entries that fill up a first file; they point at no record."""
Interval = tuple[int, int]
"""Physical offsets begin <= n < end."""
CHUNK_BYTES: Final = 1 << 20
"""Length of an anonymous place; the last one of a stretch may be a little longer."""
_BLANK_BYTES_EQUAL_MIN: Final = 5
"""Eight bytes are taken for a damaged blank if this many of them are right."""
_SUM_BYTES: Final = 4


class Pointer(NamedTuple):
    """A queue entry, seen from the record that it points at."""

    key: QueueKey
    queue_offset: int
    size: int
    tags_code: int


class Pointers:
    """The entries that point into some intervals of the log, by physical offset."""

    def __init__(
        self, files: Files, root: Path, file_bytes: int, intervals: Sequence[Interval]
    ) -> None:
        self._at: dict[int, list[Pointer]] = {}
        pointing = _pointing_into(files, root, file_bytes, intervals)
        for physical_offset, pointer in islice(pointing, POINTERS_MAX):
            self._at.setdefault(physical_offset, []).append(pointer)
        self._positions = sorted(self._at)

    def at(self, physical_offset: int) -> Sequence[Pointer]:
        """The entries for a record that begins there."""
        return self._at.get(physical_offset, ())

    def next_behind(self, physical_offset: int) -> int | None:
        """The next physical offset behind this one that an entry points at."""
        at = bisect_right(self._positions, physical_offset)
        return self._positions[at] if at < len(self._positions) else None

    def ranges_from(self, physical_offset: int) -> dict[QueueKey, tuple[int, int]]:
        """Lowest and highest queue offset of the entries that point there or behind."""
        ranges: dict[QueueKey, tuple[int, int]] = {}
        for position in self._positions[bisect_left(self._positions, physical_offset) :]:
            for key, queue_offset, _, _ in self._at[position]:
                low, high = ranges.get(key, (queue_offset, queue_offset))
                ranges[key] = (min(low, queue_offset), max(high, queue_offset))
        return ranges


def pointer_of(head: Head, pointers: Pointers) -> Pointer | None:
    """The queue entry that points at a record; if several do, one that agrees with it."""
    fitting = [each for each in pointers.at(head.physical_offset) if each.size == head.size]
    for each in fitting:
        if (each.key, each.queue_offset) == ((head.topic, head.queue_id), head.queue_offset):
            return each
    return fitting[0] if fitting else None


def _pointing_into(
    files: Files, root: Path, file_bytes: int, intervals: Sequence[Interval]
) -> Iterator[tuple[int, Pointer]]:
    if not intervals:
        return
    ordered = _merged(intervals)
    begins = [begin for begin, _ in ordered]
    lowest, highest = begins[0], ordered[-1][1]
    for key in queue_keys(files, root):
        try:
            queue = ConsumeQueue(files, queue_folder(root, key), file_bytes)
        except StoreDamaged:
            continue
        for begin in range(queue.files_begin, queue.files_end, _BLOCK_ENTRIES):
            data = queue.bytes_at(begin, _BLOCK_ENTRIES)
            whole = data[: len(data) - len(data) % ENTRY_BYTES]
            for at, (physical_offset, size, code) in enumerate(ENTRY.iter_unpack(whole), begin):
                if lowest <= physical_offset < highest and RECORD_BYTES_MIN <= size < NO_SIZE:
                    before = bisect_right(begins, physical_offset) - 1
                    if physical_offset < ordered[before][1]:
                        yield physical_offset, Pointer(key, at, size, code)


def _merged(intervals: Sequence[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


@dataclass(slots=True)
class _Piece:
    """Bytes begin <= n < end of the log; key is None if their records are unknown."""

    begin: int
    end: int
    timestamp_ms: int
    key: QueueKey | None = None
    queue_offset: int = -1
    message_id: str = ""

    def encoded(self) -> bytes:
        place = (self.begin, self.end - self.begin, self.timestamp_ms)
        if self.key is None:
            return b"".join(
                encode_anonymous(begin, end - begin, self.timestamp_ms)
                for begin, end in _chunks(self.begin, self.end)
            )
        return encode_named(
            *self.key,
            self.queue_offset,
            physical_offset=place[0],
            size=place[1],
            store_timestamp_ms=place[2],
        )

    def __str__(self) -> str:
        if self.key is None:
            return f"{self.end - self.begin} bytes of unknown messages"
        return record_name(self.key, self.queue_offset, self.message_id)


def interval_of(damage: Damage) -> Interval:
    """The bytes of a damage; everything behind a lost end."""
    return damage.begin, damage.follows or 1 << 62


def mend_stretch(log: CommitLog, damage: Damage, pointers: Pointers, wrong: str = "") -> Action:
    """Put repaired places from the damage up to the record that follows.

    wrong: what is wrong with a record whose lengths and body are right.
    """
    assert damage.follows is not None
    pieces: list[_Piece] = []
    changes: list[Change] = []
    for begin, end, is_file_end in _parts(log, damage.begin, damage.follows):
        stretch = _Stretch(log, damage, pointers, begin, end, is_file_end)
        stretch.run()
        pieces += stretch.pieces
        changes += stretch.changes
    size = damage.follows - damage.begin
    if not pieces:
        remedy = "the blank at the file's end is written anew"
    elif len(pieces) == 1:
        remedy = f"a repaired place of {size} bytes, which consumers skip"
    else:
        remedy = f"{len(pieces)} repaired places, {size} bytes together, which consumers skip"
    return Action(
        PLACE,
        log.path_at(damage.begin),
        damage.begin % log.segment_bytes,
        wrong or what_is_wrong(log, damage.begin),
        remedy,
        tuple(changes),
        tuple(str(piece) for piece in pieces),
        lost_messages=sum(piece.key is not None for piece in pieces),
    )


def cut_tail(log: CommitLog, damage: Damage, pointers: Pointers, trusted_end: int) -> Action:
    """End the log where the damage begins, and remove later files."""
    begin = damage.begin
    file_begin = begin - begin % log.segment_bytes
    changes: list[Change] = []
    for start in log.segment_starts:
        if start > file_begin or start == begin:
            changes += [Remove(log.path_at(start)), Remove(sums_path(log, start))]
    if begin > file_begin:
        changes.append(Zero(log.path_at(begin), begin % log.segment_bytes))
    lost, messages = [], 0
    size = trusted_end - begin
    if damage.was_on_disk:
        remedy = f"the log ends there: {size} bytes that were on disk are lost"
        for key, (low, high) in pointers.ranges_from(begin).items():
            lost.append(record_name(key, low) + (f" to {high}" if high > low else ""))
            messages += high - low + 1
        if not lost:
            lost.append(f"{size} bytes of unknown messages")
    else:
        remedy = "the log ends there, as opening would cut it; nothing was acknowledged"
    position = begin % log.segment_bytes
    wrong = f"{what_is_wrong(log, begin)}; nothing sound follows"
    return Action(
        CUT,
        log.path_at(begin),
        position,
        wrong,
        remedy,
        tuple(changes),
        tuple(lost),
        lost_messages=messages,
    )


class _Stretch:
    """The part of a damaged stretch that lies in one file."""

    def __init__(
        self,
        log: CommitLog,
        damage: Damage,
        pointers: Pointers,
        begin: int,
        end: int,
        is_file_end: bool,
    ) -> None:
        self.pieces: list[_Piece] = []
        self.changes: list[Change] = []
        self._log = log
        self._pointers = pointers
        self._begin = begin
        self._end = end
        self._is_file_end = is_file_end
        self._timestamp_ms = damage.newest_timestamp_ms

    def run(self) -> None:
        end = self._end - BLANK_BYTES if self._is_file_end else self._end
        at = self._begin
        while at < end:
            piece = self._piece_at(at, end)
            self.pieces.append(piece)
            at = piece.end
        rest = self._take_rest() if self._is_file_end else None
        self._join_short()
        self._write(b"".join(piece.encoded() for piece in self.pieces))
        if rest is not None:
            self._end_file(rest)

    def _piece_at(self, at: int, end: int) -> _Piece:
        head = head_at(self._log, at, end)
        pointer = pointer_of(head, self._pointers) if head else self._pointer_at(at, end)
        if head is not None:
            key, queue_offset = (head.topic, head.queue_id), head.queue_offset
            if pointer is not None:
                key, queue_offset = pointer.key, pointer.queue_offset
            named = (key, queue_offset, message_id_of(head))
            return _Piece(at, at + head.size, self._timestamp_ms, *named)
        if pointer is not None:
            named = (pointer.key, pointer.queue_offset, "")
            return _Piece(at, at + pointer.size, self._timestamp_ms, *named)
        return _Piece(at, self._next_known(at, end), self._timestamp_ms)

    def _pointer_at(self, at: int, end: int) -> Pointer | None:
        """A queue entry that points there."""
        return next((each for each in self._pointers.at(at) if at + each.size <= end), None)

    def _next_known(self, at: int, end: int) -> int:
        """Where the next record begins that a queue entry or its own header names."""
        pointed = self._pointers.next_behind(at)
        limit = end if pointed is None else min(end, pointed)
        position = at + 1
        while position < limit:
            data = self._log.read_raw(position, min(CHUNK_BYTES, limit + 8 - position))
            found = data.find(record.MAGIC_BYTES)
            while found >= 0:
                begin = position + found - 4
                if at < begin < limit and head_at(self._log, begin, end) is not None:
                    return begin
                found = data.find(record.MAGIC_BYTES, found + 1)
            position += max(1, len(data) - 3)
        return limit

    def _take_rest(self) -> int:
        """Where the file's blank begins; unknown bytes before it get an anonymous place."""
        last = self.pieces[-1] if self.pieces else None
        if last is None or last.key is not None:
            return last.end if last else self._begin
        self.pieces.pop()
        room = self._end - last.begin
        blank = record.encode_blank(room)
        there = self._log.read_raw(last.begin, BLANK_BYTES)
        is_blank = sum(a == b for a, b in zip(there, blank, strict=False)) >= _BLANK_BYTES_EQUAL_MIN
        if is_blank or room < PLACE_BYTES_MIN + BLANK_BYTES:
            return last.begin
        self.pieces.append(_Piece(last.begin, last.begin + PLACE_BYTES_MIN, last.timestamp_ms))
        return last.begin + PLACE_BYTES_MIN

    def _join_short(self) -> None:
        """Join a piece that is too short for a place with the one before, or else the next."""
        joined: list[_Piece] = []
        for piece in self.pieces:
            is_short = piece.end - piece.begin < PLACE_BYTES_MIN
            last = joined[-1] if joined else None
            if last is not None and (is_short or last.end - last.begin < PLACE_BYTES_MIN):
                known = last if is_short else piece
                joined[-1] = _Piece(
                    last.begin,
                    piece.end,
                    piece.timestamp_ms,
                    known.key,
                    known.queue_offset,
                    known.message_id,
                )
            else:
                joined.append(piece)
        self.pieces = joined
        if len(joined) == 1 and joined[0].end - joined[0].begin < PLACE_BYTES_MIN:
            self._take_next(joined[0])

    def _take_next(self, piece: _Piece) -> None:
        """Extend a piece that is too short for a place over the sound record behind it."""
        head = head_at(self._log, piece.end, self._end + self._log.segment_bytes)
        assert head is not None, "a sound record follows"
        piece.end += head.size
        piece.key, piece.queue_offset = (head.topic, head.queue_id), head.queue_offset
        piece.message_id = message_id_of(head)

    def _write(self, data: bytes) -> None:
        position = self._begin
        while data:
            part, data = data[: CHUNK_BYTES * 8], data[CHUNK_BYTES * 8 :]
            path = self._log.path_at(position)
            self.changes.append(Overwrite(path, position % self._log.segment_bytes, part))
            position += len(part)

    def _end_file(self, begin: int) -> None:
        """Write a blank from `begin` to the file's end, and zeros over other bytes in it."""
        path, position = self._log.path_at(begin), begin % self._log.segment_bytes
        if self._end - begin < BLANK_BYTES:
            return
        self.changes.append(Overwrite(path, position, record.encode_blank(self._end - begin)))
        at = position + BLANK_BYTES
        mark = mark_position(self._log.segment_bytes)
        while at < mark:
            data = self._log.read_raw(begin - position + at, min(CHUNK_BYTES, mark - at))
            if any(data):
                self.changes.append(Overwrite(path, at, bytes(len(data))))
            at += max(1, len(data))


def head_at(log: CommitLog, position: int, end: int) -> Head | None:
    """The record at a position if its lengths add up; its body may be damaged."""
    data = log.read_raw(position, BLANK_BYTES)
    if len(data) < BLANK_BYTES:
        return None
    size, magic = record.BLANK.unpack(data)
    if magic != record.MAGIC or not record.RECORD_BYTES_MIN <= size <= end - position:
        return None
    head = record.read_head(log.read_raw(position, size))
    return head if head is not None and head.physical_offset == position else None


def _parts(log: CommitLog, begin: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """The parts of a stretch by file; True: the part reaches its file's end."""
    while begin < end:
        file_end = begin - begin % log.segment_bytes + log.segment_bytes
        yield begin, min(file_end, end), file_end <= end
        begin = file_end


def _chunks(begin: int, end: int) -> Iterator[Interval]:
    while end - begin > CHUNK_BYTES + PLACE_BYTES_MIN:
        yield begin, begin + CHUNK_BYTES
        begin += CHUNK_BYTES
    yield begin, end


def is_summed(log: CommitLog, files: Files, start: int) -> bool:
    """Has the log file that begins at start any checksums?"""
    path = sums_path(log, start)
    return path.name in files.names(path.parent) or log.log_end.mark_of(start) is not None


def new_sums(
    log: CommitLog, files: Files, start: int, content_end: int, synced_end: int
) -> Iterator[Change]:
    """The table and the mark of the file that begins at start, from its present bytes."""
    blocks = log.segment_bytes // BLOCK_BYTES
    sums = bytearray()
    at, chain = start, 0
    while at < content_end:
        data = log.read_raw(at, min(BLOCK_BYTES, content_end - at))
        chain = zlib.crc32(data, chain)
        at += len(data)
        if len(data) < BLOCK_BYTES:
            break
        sums += chain.to_bytes(_SUM_BYTES, "big")
    path = sums_path(log, start)
    if blocks and path.name not in files.names(path.parent):
        yield Resize(path, blocks * _SUM_BYTES)
    if blocks:
        yield Overwrite(path, 0, bytes(sums).ljust(blocks * _SUM_BYTES, b"\0"))
    place = mark_position(log.segment_bytes)
    # In a file that RocketMQ wrote, a record may lie in the mark's place.
    if content_end <= start + place:
        mark = Mark(synced_end, content_end, chain)
        yield Overwrite(log.path_at(start), place, encode_mark(mark))
