"""A repaired place: a record in the log that fills the space of a lost one.

It has the transaction type rolled back, to which RocketMQ gives no queue entry, reconsume
times -1, and the property REPAIRED if there is room.  A named place has the queue and the
queue offset of the lost record, and a queue entry, so that no queue offset changes; consumers
never get it.  An anonymous place has queue offset -1, because the lost records are unknown;
queue entries that are missing from there on point at it.  The repair of a store writes them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rmqlite.kernel.records import record
from rmqlite.kernel.records.record import RECORD_BYTES_MIN, Head

PLACE_RECONSUME_TIMES: Final = -1
ANONYMOUS_OFFSET: Final = -1


class RepairedPlace(NamedTuple):
    """A place's queue entry without the tags code, and its record's store timestamp."""

    physical_offset: int
    size: int
    store_timestamp_ms: int


def is_repaired(found: Head) -> bool:
    """Is the record a repaired place?"""
    return found.reconsume_times == PLACE_RECONSUME_TIMES and not record.is_indexed(found.sys_flag)


def is_anonymous(head: Head) -> bool:
    """Is the record an anonymous repaired place?"""
    return head.queue_offset == ANONYMOUS_OFFSET and is_repaired(head)


def explains_gap(
    place: RepairedPlace | None, *, last_offset: int, head: Head, missing: int
) -> bool:
    """Can the records that are missing in head's queue before it have lain at the place?

    last_offset: physical offset of the queue's record before the gap, -1 if unknown.
    """
    room = (head.physical_offset - max(0, last_offset)) // RECORD_BYTES_MIN
    return place is not None and place.physical_offset > last_offset and 0 < missing <= room
