"""A repaired place: a record in the log that fills the space of a lost one.

It has the transaction type rolled back, to which RocketMQ gives no queue entry, reconsume
times -1, and the property REPAIRED if there is room.  A named place has the queue and the
queue offset of the lost record, and a queue entry, so that no queue offset changes; consumers
never get it.  An anonymous place has queue offset -1, because the lost records are unknown;
queue entries that are missing from there on point at it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rmqlite.kernel.records import record
from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.record import OVERHEAD_BYTES, RECORD_BYTES_MIN, Head
from rmqlite.kernel.records.wait_queues import TIMERS, wait_queue_of
from rmqlite.kernel.words.message import REAL_QID, REAL_TOPIC, TIMER_OUT_MS, encode_properties

REPAIRED: Final = "REPAIRED"
"""The property's name."""
PLACE_BYTES_MIN: Final = OVERHEAD_BYTES + 1
_RECONSUME_TIMES: Final = -1
_NO_OFFSET: Final = -1
_NO_TOPIC: Final = "?"
_NO_HOST: Final = bytes(8)
_PLAIN: Final = encode_properties({REPAIRED: "1"})
# RocketMQ skips a scheduled record with this destination; without a destination the record
# would block its level for ever (reference §6.3).
_SCHEDULED: Final = encode_properties(
    {REPAIRED: "1", REAL_TOPIC: "RMQ_SYS_TRANS_HALF_TOPIC", REAL_QID: "0"}
)


def _fitting(wait_queue: int, store_timestamp_ms: int) -> list[bytes]:
    """The property strings for a place in a wait queue, the best first."""
    if wait_queue == TIMERS:
        # RocketMQ drops the recall of a timer whose time has passed; a record without a time would
        # stop all its timers (timer-reference section 6).
        recall = {TIMER_OUT_MS: str(store_timestamp_ms), "TIMER_DEL_UNIQKEY": REPAIRED}
        named = {REPAIRED: "1", **recall, REAL_TOPIC: _NO_TOPIC, REAL_QID: "0"}
        return [encode_properties(named), encode_properties(recall), _PLAIN]
    return [_SCHEDULED, _PLAIN] if wait_queue else [_PLAIN]


class RepairedPlace(NamedTuple):
    """A place's queue entry without the tags code, and its record's store timestamp."""

    physical_offset: int
    size: int
    store_timestamp_ms: int


def is_repaired(found: Head) -> bool:
    """Is the record a repaired place?"""
    return found.reconsume_times == _RECONSUME_TIMES and not record.is_indexed(found.sys_flag)


def is_anonymous(head: Head) -> bool:
    """Is the record an anonymous repaired place?"""
    return head.queue_offset == _NO_OFFSET and is_repaired(head)


def explains_gap(
    place: RepairedPlace | None, *, last_offset: int, head: Head, missing: int
) -> bool:
    """Can the records that are missing in head's queue before it have lain at the place?

    last_offset: physical offset of the queue's record before the gap, -1 if unknown.
    """
    room = (head.physical_offset - max(0, last_offset)) // RECORD_BYTES_MIN
    return place is not None and place.physical_offset > last_offset and 0 < missing <= room


def encode_named(
    topic: str,
    queue_id: int,
    queue_offset: int,
    *,
    physical_offset: int,
    size: int,
    store_timestamp_ms: int,
) -> bytes:
    """A place for the record with that queue offset; anonymous if its topic does not fit."""
    if size < OVERHEAD_BYTES + len(topic.encode()):
        return encode_anonymous(physical_offset, size, store_timestamp_ms)
    room = size - OVERHEAD_BYTES - len(topic.encode())
    fitting = _fitting(wait_queue_of(topic, queue_id), store_timestamp_ms)
    properties = next((each for each in fitting if len(each) <= room), b"")
    body = bytes(room - len(properties))
    lost = fresh(
        Draft(
            topic,
            queue_id,
            properties,
            body,
            born_timestamp_ms=0,
            born_host=_NO_HOST,
            sys_flag=record.ROLLBACK,
            reconsume_times=_RECONSUME_TIMES,
        ),
        _NO_HOST,
    )
    return encode(
        lost,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_timestamp_ms=store_timestamp_ms,
    )


def encode_anonymous(physical_offset: int, size: int, store_timestamp_ms: int) -> bytes:
    """A place for unknown records; size: PLACE_BYTES_MIN or more."""
    assert size >= PLACE_BYTES_MIN
    return encode_named(
        _NO_TOPIC,
        0,
        _NO_OFFSET,
        physical_offset=physical_offset,
        size=size,
        store_timestamp_ms=store_timestamp_ms,
    )
