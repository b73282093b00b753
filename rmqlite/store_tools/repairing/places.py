"""Writes repaired places, which fill the space of lost records; the kernel says what they are."""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.records.encoding import encode
from rmqlite.kernel.records.record import OVERHEAD_BYTES, ROLLBACK
from rmqlite.kernel.records.wait_queues import TIMERS, wait_queue_of
from rmqlite.kernel.store.log.repaired_place import ANONYMOUS_OFFSET, PLACE_RECONSUME_TIMES
from rmqlite.kernel.words.message import REAL_QID, REAL_TOPIC, TIMER_OUT_MS, encode_properties

REPAIRED: Final = "REPAIRED"
"""The property's name."""
PLACE_BYTES_MIN: Final = OVERHEAD_BYTES + 1
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
            sys_flag=ROLLBACK,
            reconsume_times=PLACE_RECONSUME_TIMES,
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
        ANONYMOUS_OFFSET,
        physical_offset=physical_offset,
        size=size,
        store_timestamp_ms=store_timestamp_ms,
    )
