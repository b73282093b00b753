"""Many records of the commit log at once: where they begin, and their fixed parts as arrays.

A record has a magic number and its own physical offset, and these show where it may begin.  A
body may have the same bytes, so a beginning counts only if each record ends where the next one
begins.  kernel/records/record.py draws the layout; a test compares the two.  The walk over the
blocks of a log is the same for a store's files and a broker's chunks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from rmqlite.kernel.compiled import in_c, only_in_c
from rmqlite.kernel.records.record import (
    BLANK,
    BLANK_MAGIC,
    BORN_HOST_V6,
    FIELDS,
    MAGIC,
    MAGIC_BYTES,
    RECORD_BYTES_MIN,
    STORE_HOST_V6,
    offset_of,
)
from rmqlite.spark.arrow.partitions import LogSlice

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

_NUMPY: Final = {"i": ">i4", "q": ">i8", "8s": ">u8"}
HEAD: Final = np.dtype([(name, _NUMPY[code]) for name, code in FIELDS.items()])
HEAD_BYTES: Final = HEAD.itemsize
V6_MORE_BYTES: Final = 12
CHUNK_BYTES: Final = 1 << 20
"""How much is searched at a time: so much stays in the processor's cache."""
LOOK_BACK_BYTES: Final = (4 << 20) + (64 << 10)
"""How far before a place a record may begin that reaches over it: RocketMQ's largest record."""

WINDOW_BYTES: Final = 4 << 20
"""The most bytes of the log in one batch; more is not faster, and takes more memory."""
_BLANK_BYTES: Final = 8
Block = tuple[Bytes, int | None, Longs]
"""Bytes, the physical offset of the first byte, and where records begin in the bytes."""
_PARTS: Final = ("body_begin", "body_end", "topic_begin", "topic_end", "pairs_begin", "end")
_PER_RECORD: Final = ("starts", "head", *_PARTS)
record_parts: Final = only_in_c("record_parts")
"""(data, begin or -1, starts) -> the heads, the _PARTS one behind the other, is_v6; see Records."""
_MAGIC_WORD: Final = int.from_bytes(MAGIC_BYTES, "little")
_MAGIC_AT: Final = offset_of("magic")
_PLACE_AT: Final = offset_of("physical_offset")
_BORN_HOST_AT: Final = offset_of("born_host")
_AFTER_BORN_HOST: Final = offset_of("store_timestamp")
_AFTER_STORE_HOST: Final = offset_of("reconsume_times")


class UnsoundRecord(Exception):
    """No sound record lies at a physical offset; the reader adds the file."""

    def __init__(self, physical_offset: int, expected: str = "a record") -> None:
        super().__init__(f"{expected} at {physical_offset}")
        self.physical_offset = physical_offset
        self.expected = expected


class Source(Protocol):
    """Bytes of the log by their physical offset."""

    def at(self, position: int, size: int) -> tuple[Bytes, int]:
        """An array with the bytes from a position on, and the offset of its first byte.

        It has fewer than size bytes from there on only if the source has no more.
        """


def gathered(data: Bytes, places: Any, kind: str | np.dtype[Any]) -> NDArray[Any]:
    """The values at these places of data, which need no alignment."""
    dtype = np.dtype(kind)
    room = len(data) - dtype.itemsize + 1
    if dtype.fields is None:
        # A view in which every byte begins a value; only the wanted values are copied.
        view: NDArray[Any] = np.ndarray((max(0, room),), dtype, buffer=data, strides=(1,))
        found: NDArray[Any] = view[places]
        return found
    view = np.ndarray((max(0, room),), f"V{dtype.itemsize}", buffer=data, strides=(1,))
    found = view[places].view(dtype)
    return found


class RecordArray:
    """Records of one array of bytes; every position is an index into that array."""

    __slots__ = ("begin", "data", "is_v6", *_PER_RECORD)

    def __init__(self, data: Bytes, begin: int | None, starts: Longs) -> None:
        """starts: ascending.  begin: physical offset of data's first byte; None: take the
        physical offsets from the records.

        Checks all that read_head() of the store checks, except the bytes of the topic.  Raises
        UnsoundRecord.
        """
        self.data = data
        self.begin = begin
        self.starts = starts
        found = record_parts(data, -1 if begin is None else begin, np.ascontiguousarray(starts))
        if found is None:
            self._take_apart()
            return
        self.head = np.frombuffer(found[0], HEAD)
        parts = np.frombuffer(found[1], np.int64).reshape(len(_PARTS), len(starts))
        for name, part in zip(_PARTS, parts, strict=True):
            setattr(self, name, part)
        self.is_v6 = found[2]

    def _take_apart(self) -> None:
        data, begin, starts = self.data, self.begin, self.starts
        self._check(starts + HEAD_BYTES <= len(data))
        self.head = gathered(data, starts, HEAD)
        head = self.head
        self._check(
            (head["magic"] == MAGIC)
            & (begin is None or head["physical_offset"] == starts + begin)
            & (head["queue_id"] >= 0)
        )
        sys_flag = head["sys_flag"].astype(np.int32)
        shift: Any = 0
        self.is_v6 = bool((sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)).any())
        if self.is_v6:
            shift = self._shift_heads(sys_flag)
        size = head["size"].astype(np.int64)
        self.end = starts + size
        self._check((size >= RECORD_BYTES_MIN + shift) & (self.end <= len(data)))
        body_size = head["body_size"].astype(np.int64)
        self.body_begin = starts + (HEAD_BYTES + shift)
        self.body_end = self.body_begin + body_size
        self._check((body_size >= 0) & (self.body_end <= self.end - 3))
        self.topic_begin = self.body_end + 1
        self.topic_end = self.topic_begin + data[self.body_end]
        self._check(self.topic_end <= self.end - 2)
        self.pairs_begin = self.topic_end + 2
        high, low = data[self.topic_end], data[self.topic_end + 1]
        self._check(self.pairs_begin + (high.astype(np.int64) << 8) + low == self.end)

    def __len__(self) -> int:
        return len(self.starts)

    def only(self, wanted: Flags) -> RecordArray:
        """The wanted records."""
        if wanted.all():
            return self
        found = object.__new__(RecordArray)
        found.data, found.begin, found.is_v6 = self.data, self.begin, self.is_v6
        for name in _PER_RECORD:
            setattr(found, name, getattr(self, name)[wanted])
        return found

    def ints(self, name: str) -> NDArray[np.int32]:
        return self.head[name].astype(np.int32)

    def longs(self, name: str) -> Longs:
        return self.head[name].astype(np.int64)

    @property
    def places(self) -> Longs:
        """Their physical offsets."""
        return self.longs("physical_offset")

    def place(self, row: int) -> int:
        """The physical offset of one row; if begin is given, even if no record is there."""
        start = int(self.starts[row])
        if self.begin is not None:
            return self.begin + start
        return int.from_bytes(self.data[start + _PLACE_AT :][:8].tobytes(), "big")

    def host_at(self, row: int, name: str) -> bytes:
        """The 8 or 20 bytes of one host; name: born_host or store_host."""
        at = int(self.starts[row]) + _BORN_HOST_AT
        sys_flag = int(self.head["sys_flag"][row])
        is_v6 = sys_flag & BORN_HOST_V6
        if name == "store_host":
            at += 8 + 8 + (V6_MORE_BYTES if is_v6 else 0)
            is_v6 = sys_flag & STORE_HOST_V6
        return self.data[at : at + (20 if is_v6 else 8)].tobytes()

    def check_bodies(self) -> None:
        """Check that all bodies have their CRC.  Raises UnsoundRecord."""
        view = self.data.data
        wanted = self.ints("body_crc").tolist()
        begins, ends = self.body_begin.tolist(), self.body_end.tolist()
        for row, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            crc = zlib.crc32(view[begin:end]) & 0x7FFFFFFF if end > begin else 0
            if crc != wanted[row]:
                expected = f"a body with CRC {wanted[row]:#010x}"
                raise UnsoundRecord(self.place(row), expected)

    def _shift_heads(self, sys_flag: NDArray[np.int32]) -> Longs:
        """Move the fields behind IPv6 addresses to their usual places.  Returns how far."""
        born = np.where(sys_flag & BORN_HOST_V6, V6_MORE_BYTES, 0)
        shift = born + np.where(sys_flag & STORE_HOST_V6, V6_MORE_BYTES, 0)
        self._check(self.starts + HEAD_BYTES + shift <= len(self.data))
        rows = self.head.view(np.uint8).reshape(-1, HEAD_BYTES)
        for begin, end, more in (
            (_AFTER_BORN_HOST, _AFTER_STORE_HOST, born),
            (_AFTER_STORE_HOST, HEAD_BYTES, shift),
        ):
            moved = gathered(self.data, self.starts + begin + more, f"V{end - begin}")
            rows[:, begin:end] = moved.view(np.uint8).reshape(-1, end - begin)
        return shift.astype(np.int64)

    def _check(self, sound: Flags) -> None:
        if not sound.all():
            raise UnsoundRecord(self.place(int(np.argmin(sound))))


def field_of(data: Bytes, starts: Longs, name: str) -> NDArray[Any]:
    """One field of the header of the records that begin at starts."""
    return gathered(data, starts + offset_of(name), HEAD[name])


def candidates(data: Bytes, begin: int, low: int, high: int) -> Longs:
    """The positions low <= n < high of data at which a record may begin."""
    found = []
    high = min(high, len(data) - RECORD_BYTES_MIN + 1)
    for first in range(low, high, CHUNK_BYTES):
        # The first byte of the magic number leaves few positions for the next comparisons.
        part = data[first + _MAGIC_AT : min(first + CHUNK_BYTES, high) + _MAGIC_AT]
        at = np.flatnonzero(part == MAGIC_BYTES[0]) + first
        at = at[gathered(data, at + _MAGIC_AT, "<u4") == _MAGIC_WORD]
        at = at[gathered(data, at + _PLACE_AT, ">i8") == at + begin]
        found.append(at)
    starts = np.concatenate(found) if found else np.empty(0, np.int64)
    return starts[gathered(data, starts, ">i4") >= RECORD_BYTES_MIN]


def chained(starts: Longs, sizes: Longs, position: int) -> tuple[Longs, int]:
    """Which candidates are records, if one begins at a position: each begins where one ends.

    Returns their indexes, and where the next one has to begin.
    """
    ends = starts + sizes
    follows = ends[:-1] == starts[1:]
    first = int(np.searchsorted(starts, position))
    if first == len(starts) or starts[first] != position:
        return np.empty(0, np.int64), position
    if follows[first:].all():
        return np.arange(first, len(starts)), int(ends[-1])
    breaks = np.flatnonzero(~follows)
    parts = []
    while first < len(starts) and starts[first] == position:
        at = int(np.searchsorted(breaks, first))
        last = int(breaks[at]) if at < len(breaks) else len(starts) - 1
        parts.append(np.arange(first, last + 1))
        position = int(ends[last])
        first = int(np.searchsorted(starts, position))
    return np.concatenate(parts), position


@in_c
def record_starts(data: Bytes, begin: int, low: int, high: int) -> tuple[bytes, int]:
    """Where the records begin that follow each other from the position low of data, as int64, and
    where the last one ends; none begins at or behind high.  begin: physical offset of data's first
    byte."""
    starts = candidates(data, begin, low, high)
    rows, following = chained(starts, gathered(data, starts, ">i4").astype(np.int64), low)
    return starts[rows].tobytes(), following


def is_blank(data: bytes, room: int) -> bool:
    """Does a blank begin here, which fills the last `room` bytes of a log file?"""
    return len(data) >= BLANK.size and BLANK.unpack_from(data) == (room, BLANK_MAGIC)


def synced(source: Source, begin: int, file_begin: int) -> int:
    """A physical offset at or before `begin` where a record surely begins, for a walk."""
    low = begin - LOOK_BACK_BYTES
    if low <= file_begin:
        return file_begin
    data, base = source.at(low, begin - low)
    starts = candidates(data, base, low - base, begin - base)
    sizes = gathered(data, starts, ">i4").astype(np.int64)
    first = 0
    while first < len(starts):
        rows, position = chained(starts, sizes, int(starts[first]))
        if position + base >= begin and _is_sound(data, base, int(starts[first])):
            return base + int(starts[first])
        # The candidate lay in a body, or its chain ends before `begin`.
        first = max(first + 1, int(rows[-1]) + 1)
    return file_begin


def log_blocks(source: Source, wanted: LogSlice) -> Iterator[Block]:
    """The records that begin in a slice.

    Raises UnsoundRecord at bytes that are neither a record nor a blank.
    """
    room = wanted.place.log_file_bytes
    file_begin = wanted.begin - wanted.begin % room
    file_end = file_begin + room
    position = synced(source, wanted.begin, file_begin)
    while position < wanted.end:
        upto = min(position + WINDOW_BYTES, wanted.end)
        data, base = source.at(position, upto - position + RECORD_BYTES_MIN)
        found, following = record_starts(data, base, position - base, upto - base)
        starts = np.frombuffer(found, np.int64)
        if not len(starts):
            blank = data[position - base : position - base + _BLANK_BYTES].tobytes()
            if position == file_end or is_blank(blank, file_end - position):
                return
            raise UnsoundRecord(position)
        position = base + following
        if following > len(data):
            # The last record ends behind the window.  A file has its bytes already.
            first = base + int(starts[0])
            data, moved = source.at(first, position - first)
            starts, base = starts + (base - moved), moved
        yield data, base, starts[starts >= wanted.begin - base]


def joined(parts: list[RecordArray]) -> RecordArray:
    """Several parts of the same array as one, in the order of their positions."""
    if len(parts) == 1:
        return parts[0]
    found = object.__new__(RecordArray)
    found.data, found.begin = parts[0].data, parts[0].begin
    found.is_v6 = any(part.is_v6 for part in parts)
    # Parts may be from several queues; sorted, their bytes are gathered in one forward pass.
    order = np.argsort(np.concatenate([part.starts for part in parts]), kind="stable")
    for name in _PER_RECORD:
        setattr(found, name, np.concatenate([getattr(part, name) for part in parts])[order])
    return found


def _is_sound(data: Bytes, base: int, start: int) -> bool:
    try:
        RecordArray(data, base, np.array([start])).check_bodies()
    except UnsoundRecord:
        return False
    return True
