"""Damage and gaps that a walk over the log has found."""

from __future__ import annotations

from typing import NamedTuple

from rmqlite.records import record
from rmqlite.records.record import BLANK_BYTES, Head
from rmqlite.store.commit_log import CommitLog


class Damage(NamedTuple):
    """Bytes from `begin` on that are no record; follows: where the next sound one begins.

    newest_timestamp_ms: of the records before.  was_on_disk: the bytes were synced; otherwise
    they were never acknowledged.
    """

    begin: int
    follows: int | None
    newest_timestamp_ms: int
    was_on_disk: bool


class Gap(NamedTuple):
    """A record whose queue offset is not the expected one.

    last_offset: physical offset of its queue's record before.
    """

    head: Head
    expected: int
    last_offset: int


def what_is_wrong(log: CommitLog, position: int) -> str:
    """A phrase for the bytes at a position where a record or a blank should be."""
    room = log.segment_bytes - position % log.segment_bytes
    data = log.read_raw(position, min(BLANK_BYTES, room))
    if len(data) < BLANK_BYTES:
        return "too few bytes for a record"
    size, magic = record.BLANK.unpack_from(data)
    if magic == record.BLANK_MAGIC:
        return f"a blank of {size} bytes where {room} are left"
    if magic != record.MAGIC:
        return f"neither a record nor a blank: {data[:8].hex(' ', 4)}"
    data = log.read_raw(position, min(size, room)) if size > 0 else b""
    head = record.read_head(data)
    if head is None:
        return f"a record of {size} bytes whose lengths do not add up"
    if head.physical_offset != position:
        return f"a record that says it is at {head.physical_offset}, not at {position}"
    if record.has_sound_body(head, data):
        return "a record whose properties are torn"
    return f"a record whose body does not fit its CRC {head.body_crc:#010x}"
