"""Which queues hold messages that wait, and when a record in one of them is due.

A wait queue is a queue of the store whose entries are due times (an entry's tags code is
its record's due time), with a note of which entries are completed (progress.py).  There are two
kinds of it: a delay level, whose records lie in SCHEDULE_TOPIC_XXXX, in the queue level - 1; and
the timers, whose records lie in RocketMQ 5's rmq_sys_wheel_timer and say themselves when they are
due.  The writer, recovery, the readers, check and the Arrow decoder all find due times and wait
queues with these functions.  So only these functions change for another kind of wait queue.
"""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.words.levels import LevelHistory
from rmqlite.kernel.words.message import (
    RESCHEDULED_FROM,
    RETRY_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_EXACT,
    TIMER_OUT_MS,
)
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqlite.kernel.words.names import WAIT_TOPICS as WAIT_TOPICS
from rmqlite.kernel.words.property_string import PropertyString

QueueKey = tuple[str, int]
"""Topic and queue id."""
TIMERS: Final = -1
"""The id of the timers' wait queue."""
_EXACT: Final = TIMER_EXACT.encode()
HASH_END: Final = 1 << 31
"""A smaller tags code is a hash of 32 bits, as RocketMQ may write it; a time has 41 bits."""
SLOT_MS: Final = 1_000
"""RocketMQ's timerPrecisionMs: it delivers a timer at most this long after the time that its record
names."""


def wait_queue_of(topic: str, queue_id: int) -> int:
    """The id of a queue as a wait queue: a delay level, or TIMERS; 0 if nothing waits in the queue.

    The id of a delay level is the level.  Tables, cursors and answers name wait queues by it.
    """
    if topic == SCHEDULE_TOPIC:
        return queue_id + 1
    return TIMERS if topic == TIMER_TOPIC and queue_id == 0 else 0


def queue_of(wait_queue: int) -> QueueKey:
    """The queue that holds a wait queue."""
    return (TIMER_TOPIC, 0) if wait_queue == TIMERS else (SCHEDULE_TOPIC, wait_queue - 1)


def wait_queue_name(wait_queue: int) -> str:
    """The name of a wait queue in a sentence."""
    return "the timers" if wait_queue == TIMERS else f"level {wait_queue}"


def when_due_ms(
    levels: LevelHistory, topic: str, queue_id: int, stored_ms: int, properties: bytes
) -> int:
    """When a record is due that was stored in this queue at stored_ms; 0 if it does not wait.

    properties: its property string.  In a level it is looked at only for what was handed over to
    RocketMQ there (moving/handover.py).
    """
    wait_queue = wait_queue_of(topic, queue_id)
    if wait_queue == TIMERS:
        return timer_due_ms(properties) or stored_ms
    if wait_queue and _EXACT in properties and _is_handed_over(wait_queue, stored_ms, properties):
        return timer_due_ms(properties)
    return stored_ms + levels.delay_ms(wait_queue, stored_ms) if wait_queue else 0


def _is_handed_over(wait_queue: int, stored_ms: int, properties: bytes) -> bool:
    """Is it the record of a handed over message, and not of a failure of it later?"""
    own = PropertyString(properties)
    if own.get(RESCHEDULED_FROM) == b"%d" % wait_queue:
        return timer_due_ms(properties) > stored_ms
    return own.get(RESCHEDULED_FROM) == b"%d" % TIMERS and own.get(RETRY_TOPIC) is None


def timer_due_ms(properties: bytes) -> int:
    """When the record of a timer says that it is due; 0 if it does not say it.

    In a record of this broker TIMER_OUT_MS is the instant.  RocketMQ rounds it down to a slot, and
    delivers when the slot is over; only an instant that its producer named is known exactly
    (timer-reference section 15).
    """
    own = PropertyString(properties)
    out_ms = own.number(TIMER_OUT_MS)
    if out_ms is None:
        return 0
    if own.get(TIMER_EXACT) is not None:
        return out_ms
    if own.get(TIMER_DELAY_SEC) is None and own.get(TIMER_DELAY_MS) is None:
        asked_ms = own.number(TIMER_DELIVER_MS)
        if asked_ms is not None and out_ms < asked_ms <= out_ms + SLOT_MS:
            return asked_ms
    return out_ms + SLOT_MS
