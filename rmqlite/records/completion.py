"""Records that complete a scheduled record, and how they do it.

Progress lives in the log: the wait of a scheduled record ends with a later record whose
prepared transaction offset is the physical offset at which the scheduled one ends.

    topic                          property             meaning
    the real topic                                      the delivery
    the real topic                 FIRED                the delivery, at once, on request
    SCHEDULE_TOPIC_XXXX            RESCHEDULED_FROM     the same message, which waits anew
    rmq_sys_wheel_timer            RESCHEDULED_FROM     the same
    rmq_sys_wheel_timer                                 the same timer, carried to the log's end
    rmq_sys_SCHEDULE_CANCELLED                          a cancellation, without body
    %DLQ%SCHEDULE_CONSUMER                              a dead letter: it cannot be delivered

DELAY has the level of the scheduled record; without it, TIMER_OUT_MS says that it was a timer.  On
a rescheduled one, RESCHEDULED_FROM has the wait queue that it left (records/wait_queues.py).
"""

from __future__ import annotations

import enum
from typing import Final

from rmqlite.message import FIRED, RESCHEDULED_FROM, TIMER_OUT_MS
from rmqlite.names import CANCELLED_TOPIC, HALF_TOPIC, SCHEDULE_GROUP, TIMER_TOPIC, dlq_topic
from rmqlite.property_string import PropertyString
from rmqlite.records import record
from rmqlite.records.record import Head
from rmqlite.records.wait_queues import TIMERS, WAIT_TOPICS

UNDELIVERABLE_TOPIC: Final = dlq_topic(SCHEDULE_GROUP)
_FROM_TIMERS: Final = str(TIMERS).encode()


class Completion(enum.Enum):
    """How the wait of a scheduled record ended."""

    DELIVERED = "delivered"
    FIRED = "fired"
    RESCHEDULED = "rescheduled"
    CANCELLED = "cancelled"
    UNDELIVERABLE = "undeliverable"
    CARRIED = "carried"
    """Retention has written the timer anew, so that its log file may go."""

    @property
    def may_be_early(self) -> bool:
        """May this happen before the deliver time?"""
        return self not in (Completion.DELIVERED, Completion.UNDELIVERABLE)


def completed_queue(head: Head, properties: PropertyString) -> int:
    """The wait queue of the scheduled record that this one completes; 0 if it completes none."""
    if not head.completes or not is_completing(head.topic, head.sys_flag, properties):
        return 0
    return wait_queue_left(head.topic, properties)


def is_completing(topic: str, sys_flag: int, properties: PropertyString) -> bool:
    """Does the prepared transaction offset of such a record mean a scheduled record?"""
    transaction = sys_flag & record.TRANSACTION_TYPE
    if topic in WAIT_TOPICS:
        # A message that RocketMQ commits points to its half message; a delay schedules it.
        is_anew = properties.get(RESCHEDULED_FROM) is not None
        return (is_anew or not transaction) and wait_queue_left(topic, properties) != 0
    if not record.has_entry(sys_flag) or topic == HALF_TOPIC:
        # RocketMQ 5 commits a timer into the topic of half messages, and points to its half.
        return False
    # A message that RocketMQ commits without a delay points to its half message, too.
    return not transaction or wait_queue_left(topic, properties) != 0


def wait_queue_left(topic: str, properties: PropertyString) -> int:
    """The wait queue of the scheduled record that a record completes; 0 if it names none."""
    if topic in WAIT_TOPICS:
        left = properties.get(RESCHEDULED_FROM)
        if left == _FROM_TIMERS or (left is None and topic == TIMER_TOPIC):
            return TIMERS
        return properties.number(RESCHEDULED_FROM) or 0
    return record.delay_level(properties) or (
        TIMERS if properties.get(TIMER_OUT_MS) is not None else 0
    )


def waited_for(topic: str, properties: PropertyString) -> str:
    """The destination of the scheduled record that a record completes; "" if none."""
    if completion_of(topic, properties) in (Completion.DELIVERED, Completion.FIRED):
        return topic
    return topic_ahead(properties)


def topic_ahead(properties: PropertyString) -> str:
    """The destination topic of a scheduled record; "" if it has none."""
    destination = record.destination(properties)
    return destination[0] if destination else ""


def completion_of(topic: str, properties: PropertyString) -> Completion:
    """How a record completes a scheduled one."""
    if topic in WAIT_TOPICS:
        is_carried = topic == TIMER_TOPIC and properties.get(RESCHEDULED_FROM) is None
        return Completion.CARRIED if is_carried else Completion.RESCHEDULED
    if topic == CANCELLED_TOPIC:
        return Completion.CANCELLED
    if topic == UNDELIVERABLE_TOPIC:
        return Completion.UNDELIVERABLE
    if properties.get(FIRED) is not None:
        return Completion.FIRED
    return Completion.DELIVERED
