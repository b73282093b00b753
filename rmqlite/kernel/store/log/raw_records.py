"""The stored bytes of the records behind queue entries.

Neighbours in the log are read together, and adjacent records are returned in one piece.  Of
each record only the fields that say where it belongs are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from rmqlite.kernel.compiled import only_in_c
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.record import (
    BORN_HOST_V6,
    MAGIC,
    STORE_HOST_V6,
    has_sound_body,
    is_indexed,
    layout_of_fields,
    read_head,
)
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.store.log.repaired_place import is_repaired

READ_BYTES_MAX: Final = 4 << 20
"""Bytes of the log per read; a single record may be longer."""
READ_GAP_BYTES_MAX: Final = 16 << 10
"""Records at most this far apart are read together, including the bytes between them."""
log_reads: Final = only_in_c("log_reads")
"""(entries, end_max, code_max, count_max, bytes_max, gap_max, read_max) -> the reads that bring the
records of the first entries: begin, end, how many of them.

It stops at an entry whose record ends behind end_max, whose tags code is above code_max, or that
would be one more than count_max or bytes_max, of which the first may be longer.  gap_max, read_max:
records that are no further apart are read together, so many bytes at once.
"""
whole_records: Final = only_in_c("whole_records")
"""(data, base, entries) -> the records behind entries, one behind the other: ordinary ones, whose
bodies' CRCs fit.  data: bytes of the log from the physical offset base on."""
_PLACE: Final = layout_of_fields("size", "magic", "physical_offset", "sys_flag")

ReadEach = Callable[[Sequence[tuple[int, int]]], Iterator[bytes]]
"""Returns bytes of the log for each of several physical offsets and sizes."""
_Row = TypeVar("_Row", bound=tuple[int, ...])
_FIXED: Final = layout_of_fields("size", "magic", "physical_offset", "sys_flag", "body_size")
_ODD_TYPES: Final = BORN_HOST_V6 | STORE_HOST_V6


def neighbours(
    rows: Sequence[_Row], file_bytes: int | None = None
) -> Iterator[tuple[int, int, Sequence[_Row]]]:
    """(begin, end, rows) for each read of the log: records that lie close together.

    A row begins with the physical offset and the size of its record.  file_bytes: no read
    goes beyond the end of a log file of this length.
    """
    first = 0
    while first < len(rows):
        begin, size = rows[first][:2]
        end, last = begin + size, first + 1
        file_end = begin - begin % file_bytes + file_bytes if file_bytes else None
        while last < len(rows):
            offset, size = rows[last][:2]
            is_near = begin <= offset <= end + READ_GAP_BYTES_MAX
            if not is_near or offset + size - begin > READ_BYTES_MAX:
                break
            if file_end is not None and offset >= file_end:
                break
            end = max(end, offset + size)
            last += 1
        yield begin, end, rows[first:last]
        first = last


def parts_of_log(
    entries: Sequence[Entry], read_each: ReadEach
) -> Iterator[tuple[int, bytes, Sequence[Entry]]]:
    """(begin, bytes, entries) of each part of the log that has the records of some neighbours."""
    parts = list(neighbours(entries))
    spans = [(begin, end - begin) for begin, end, _ in parts]
    for (begin, _, near), data in zip(parts, read_each(spans), strict=True):
        yield begin, data, near


def raw_records(
    entries: Sequence[Entry],
    read_each: ReadEach,
    damage: Callable[[int, str], Exception],
) -> Iterator[bytes]:
    """Yields the records in pieces of one or several; skips repaired places.

    Raises damage(physical offset, expected) for an entry that points at no such record.  Bodies are
    not checked.
    """
    for base, data, near in parts_of_log(entries, read_each):
        begin = end = 0
        for offset, size, _ in near:
            at = offset - base
            if len(data) - at < max(size, _PLACE.size) or (
                _PLACE.unpack_from(data, at)[:3] != (size, MAGIC, offset)
            ):
                raise damage(offset, f"a record of {size} bytes")
            is_lost = _is_repaired_place(data, at)
            if at != end or is_lost:
                if begin < end:
                    yield data[begin:end]
                begin = at + size if is_lost else at
            end = at + size
        if begin < end:
            yield data[begin:end]


def records_behind(
    entries: Sequence[Entry],
    read_each: ReadEach,
    damage: Callable[[int, str], Exception],
    *,
    check_bodies: bool,
) -> list[Record | None]:
    """The record behind each entry, None for one that is gone, or a repaired place.

    Raises damage(physical offset, expected) for a body whose CRC does not fit, if they are checked.
    """
    found: list[Record | None] = []
    for base, data, near in parts_of_log(entries, read_each):
        for offset, _, _ in near:
            head = read_head(data, offset - base)
            if head is None or head.physical_offset != offset or is_repaired(head):
                found.append(None)
                continue
            if check_bodies and not has_sound_body(head, data):
                raise damage(offset, f"a body with CRC {head.body_crc:#010x}")
            found.append(Record(head, data))
    return found


def _is_repaired_place(data: bytes, at: int) -> bool:
    if is_indexed(_PLACE.unpack_from(data, at)[3]):
        return False
    head = read_head(data, at)
    return head is not None and is_repaired(head)


def property_strings(entries: Sequence[Entry], read_each: ReadEach) -> Iterator[bytes | None]:
    """The property string of each entry's record, in order; None for an unusual record."""
    for base, data, near in parts_of_log(entries, read_each):
        for offset, size, _ in near:
            yield _properties(data, offset - base, offset, size)


def _properties(data: bytes, at: int, physical_offset: int, size: int) -> bytes | None:
    end = at + size
    if len(data) < end or size < _FIXED.size:
        return None
    own_size, magic, own_offset, sys_flag, body_length = _FIXED.unpack_from(data, at)
    if own_size != size or magic != MAGIC or own_offset != physical_offset or body_length < 0:
        return None
    # IPv6 headers are longer; a rolled-back record may be a repaired place.
    if sys_flag & _ODD_TYPES or not is_indexed(sys_flag):
        return None
    topic = at + _FIXED.size + body_length
    if topic >= end:
        return None
    begin = topic + 3 + data[topic]
    if begin > end or begin + (data[begin - 2] << 8 | data[begin - 1]) != end:
        return None
    return data[begin:end]
