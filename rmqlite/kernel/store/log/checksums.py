"""Running checksums over every byte of the log, and the synced mark.

RocketMQ's record has a CRC of its body only.  The chain of a log file is the CRC-32 of its
bytes from the first one to a position.  It is stored in checksums/ for every 64 KiB, in
storeProgress.json for the persisted end, and in the mark.

The mark lies in the last bytes of a log file, in the space that RocketMQ leaves blank:

     0  magic        8     "rmqlsync"
     8  synced end   i64   physical offset up to which the log is on disk
    16  summed end   i64   physical offset up to which the chain reaches
    24  chain        u32
    28  CRC-32       u32   of the 28 bytes before

The mark is written after a sync and reaches the disk with the next one, so its synced end is
never too high.  Broken bytes below the synced end are damage; broken bytes behind it are the
remains of a power cut.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.kernel.records.record import BLANK_BYTES
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.segments import Segments
from rmqlite.kernel.words.errors import StoreUnavailable

BLOCK_BYTES: Final = 64 << 10
"""Distance between two checksums in a file of checksums/."""
MARK_BYTES: Final = 32
_MARK: Final = struct.Struct(">8sqqII")
_MAGIC: Final = b"rmqlsync"
SECTOR_BYTES: Final = 512
"""A disk writes a sector as a whole or not at all."""
_SUM_BYTES: Final = 4


class Mark(NamedTuple):
    """The end of the log on disk, and the chain of one of its files up to summed_end."""

    synced_end: int
    summed_end: int
    chain: int

    @property
    def is_sure(self) -> bool:
        """Were the summed bytes on disk?  If not, a power cut may have replaced them."""
        return self.summed_end <= self.synced_end


class Point(NamedTuple):
    """A physical offset and the chain of its file there."""

    position: int
    chain: int


def mark_position(segment_bytes: int) -> int:
    """The position of the mark in a log file: the last place that lies within one sector.

    A disk writes a sector as a whole, so a mark is never torn.
    """
    position = segment_bytes - MARK_BYTES
    if position // SECTOR_BYTES == (segment_bytes - 1) // SECTOR_BYTES:
        return position
    return (segment_bytes - 1) // SECTOR_BYTES * SECTOR_BYTES - MARK_BYTES


def record_bytes_max(segment_bytes: int) -> int:
    """Length of the longest record that fits into a log file before a blank and the mark."""
    return mark_position(segment_bytes) - BLANK_BYTES


def encode_mark(mark: Mark) -> bytes:
    head = _MARK.pack(_MAGIC, *mark, 0)[:-4]
    return head + zlib.crc32(head).to_bytes(4, "big")


def is_broken_mark(data: bytes) -> bool:
    """Does data begin like a mark, but is no valid one?"""
    return data.startswith(_MAGIC) and decode_mark(data) is None


def decode_mark(data: bytes) -> Mark | None:
    """The mark in data; None if data is no mark or a damaged one."""
    if len(data) != MARK_BYTES or not data.startswith(_MAGIC):
        return None
    _, synced_end, summed_end, chain, crc = _MARK.unpack(data)
    if crc != zlib.crc32(data[:-4]):
        return None
    return Mark(synced_end, summed_end, chain)


class Checksums:
    """The chains of a log's files and their tables; `last` is the point at the log's end."""

    def __init__(self, files: Files, folder: Path, segments: Segments) -> None:
        self.last = Point(0, 0)
        self._files = files
        self._folder = folder
        self._segments = segments
        self._segment_bytes = segments.segment_bytes
        self._blocks = segments.segment_bytes // BLOCK_BYTES
        self._known: set[int] | None = None
        self._unsynced: set[Path] = set()

    def extended(self, point: Point, data: bytes) -> Point:
        """The point behind data that is written at a point; full blocks enter the table."""
        position, chain = point
        room = BLOCK_BYTES - position % self._segment_bytes % BLOCK_BYTES
        if len(data) < room:
            return Point(position + len(data), zlib.crc32(data, chain))
        first, sums, at, view = position + room, bytearray(), 0, memoryview(data)
        while len(data) - at >= room:
            chain = zlib.crc32(view[at : at + room], chain)
            sums += chain.to_bytes(_SUM_BYTES, "big")
            at += room
            room = BLOCK_BYTES
        self._enter(first, bytes(sums))
        return Point(position + len(data), zlib.crc32(view[at:], chain))

    def known_before(self, position: int) -> Point:
        """The last point of the table at or before a position.

        Without one it is the file's first byte, where the chain begins with 0.
        """
        start = position - position % self._segment_bytes
        blocks = min(self._blocks, (position - start) // BLOCK_BYTES)
        sums = self._sums(start, 0, blocks)
        for block in range(len(sums), 0, -1):
            if sums[block - 1]:
                return Point(start + block * BLOCK_BYTES, sums[block - 1])
        return Point(start, 0)

    def points(self, begin: int, end: int) -> Iterator[Point]:
        """The points in the table of one file, begin < position <= end, ascending."""
        start = begin - begin % self._segment_bytes
        first = (begin - start) // BLOCK_BYTES
        last = min(self._blocks, (end - start) // BLOCK_BYTES)
        for block, chain in enumerate(self._sums(start, first, last - first), first + 1):
            if chain:
                yield Point(start + block * BLOCK_BYTES, chain)

    def chain_at(self, point: Point, position: int) -> int:
        """The chain at a position of the same file, computed from its present bytes."""
        at, chain = point
        while at < position:
            data = self._segments.read(at, min(BLOCK_BYTES * 16, position - at))
            if not data:
                break
            chain = zlib.crc32(data, chain)
            at += len(data)
        return chain

    def begin_at(self, point: Point, position: int) -> None:
        """Set the log's end; sum its file up again from a trusted point to there."""
        while point.position < position:
            data = self._segments.read(point.position, min(1 << 20, position - point.position))
            if not data:
                break
            point = self.extended(point, data)
        self.last = Point(position, point.chain)

    def forget_from(self, position: int) -> None:
        """Drop the checksums of blocks that end behind a position, and of removed files.

        They may belong to bytes that a power cut took, or to another log.
        """
        for start in sorted(self._starts()):
            if start not in self._segments.starts:
                self.drop(start)
                continue
            first = max(0, position - start) // BLOCK_BYTES
            if any(self._sums(start, first, self._blocks - first)):
                zeros = bytes((self._blocks - first) * _SUM_BYTES)
                self._files.write(self._path(start), first * _SUM_BYTES, zeros)
                self._unsynced.add(self._path(start))

    def take_unsynced(self) -> list[Path]:
        paths = [path for path in self._unsynced if self._has(int(path.name))]
        self._unsynced.clear()
        return paths

    def drop(self, start: int) -> None:
        """Remove the table of a log file that is gone."""
        if self._has(start):
            self._files.remove(self._path(start))
            self._starts().discard(start)

    def _enter(self, position: int, sums: bytes) -> None:
        """sums: of successive blocks; the first of them ends at position."""
        start = (position - 1) - (position - 1) % self._segment_bytes
        path = self._path(start)
        # A missing table costs little: damage is then located less exactly.
        with suppress(StoreUnavailable):
            if not self._has(start):
                self._files.make_folder(self._folder)
                self._files.create(path, self._blocks * _SUM_BYTES)
                self._starts().add(start)
            block = (position - start) // BLOCK_BYTES - 1
            self._files.write(path, block * _SUM_BYTES, sums)
            self._unsynced.add(path)

    def _sums(self, start: int, first: int, count: int) -> list[int]:
        if count <= 0 or not self._has(start):
            return []
        data = self._files.read(self._path(start), first * _SUM_BYTES, count * _SUM_BYTES)
        whole = len(data) - len(data) % _SUM_BYTES
        return [int.from_bytes(data[at : at + 4], "big") for at in range(0, whole, _SUM_BYTES)]

    def _has(self, start: int) -> bool:
        return start in self._starts()

    def _starts(self) -> set[int]:
        if self._known is None:
            names = self._files.names(self._folder)
            self._known = {int(name) for name in names if name.isascii() and name.isdigit()}
        return self._known

    def _path(self, start: int) -> Path:
        return self._folder / f"{start:020d}"
