"""What completes a scheduled record, and how: tables that everybody evaluates.

Progress lives in the log: the wait of a scheduled record ends with a later record whose
prepared transaction offset is the physical offset at which the scheduled one ends.  ENDS says
which wait queue it leaves, and WORDS how:

    topic                          property             meaning
    the real topic                                      the delivery
    the real topic                 FIRED                the delivery, at once, on request
    SCHEDULE_TOPIC_XXXX            RESCHEDULED_FROM     the same message, which waits anew
    rmq_sys_wheel_timer            RESCHEDULED_FROM     the same
    rmq_sys_wheel_timer                                 the same timer, carried to the log's end
    rmq_sys_SCHEDULE_CANCELLED                          a cancellation, without body
    %DLQ%group                                          a cancelled retry, which is a dead letter
    %DLQ%SCHEDULE_CONSUMER                              a dead letter: it cannot be delivered

Records of RocketMQ 5 point to nothing; STEPS says what each means for a timer.  The store, its
readers and the adoption of RocketMQ's timers evaluate the tables record by record, here; the
Arrow decoder evaluates whole columns (spark/arrow/waits.py), and Spark reads its columns.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

from rmqlite.kernel.records import record
from rmqlite.kernel.records.record import PREPARED, ROLLBACK, TRANSACTION_TYPE, Head
from rmqlite.kernel.records.wait_queues import TIMERS, WAIT_TOPICS, wait_queue_of
from rmqlite.kernel.words.message import DELAY, FIRED, RESCHEDULED_FROM, TIMER_OUT_MS, UNIQ_KEY
from rmqlite.kernel.words.names import (
    CANCELLED_TOPIC,
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_GROUP,
    TIMER_TOPIC,
    dlq_topic,
)
from rmqlite.kernel.words.property_string import PropertyString

UNREADABLE: Final = "the log has no sound record there"
"""The reason and the body of a dead letter whose scheduled record could not be read."""

UNDELIVERABLE_TOPIC: Final = dlq_topic(SCHEDULE_GROUP)
TIMER_NAMED: Final = "TIMER_DEL_UNIQKEY"
REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
"""How the topics of check points begin, which RocketMQ's POP consumers leave as timers."""
_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
_FROM_TIMERS: Final = str(TIMERS).encode()
_NO_TRANSACTION: Final = 0
_POINTING_ELSEWHERE: Final = (*WAIT_TOPICS, HALF_TOPIC)
"""Here a pointer means a scheduled record only if something says so."""
T = TypeVar("T")


class Rule(NamedTuple, Generic[T]):
    """A row of a table: the meaning of a record for which all of this is true."""

    meaning: T
    topics: tuple[str, ...] = ()
    """It lies in one of these; (): in any."""
    has: str = ""
    """A property that has a value."""
    lacks: str = ""
    """A property that has none."""
    types: tuple[int, ...] = ()
    """Its transaction type is one of these; (): any."""
    ahead: tuple[str, ...] = ()
    """Its destination begins with one of these."""
    within: str = ""
    """How the topic begins that it lies in."""

    def fits(self, topic: str, properties: PropertyString, sys_flag: int = 0) -> bool:
        """Is all of this true of a record?"""
        return (
            (not self.topics or topic in self.topics)
            and topic.startswith(self.within)
            and (not self.has or properties.get(self.has) is not None)
            and (not self.lacks or properties.get(self.lacks) is None)
            and (not self.types or sys_flag & TRANSACTION_TYPE in self.types)
            and (not self.ahead or topic_ahead(properties).startswith(self.ahead))
        )


class Left(enum.Enum):
    """How a record names the wait queue that its pointer means."""

    NAMED = "RESCHEDULED_FROM has its id"
    LEVEL = "DELAY has the level"
    TIMERS = "that of the timers"
    NOTHING = "the pointer means a half message"


ENDS: Final = (
    Rule(Left.NAMED, WAIT_TOPICS, has=RESCHEDULED_FROM),
    # A message that RocketMQ commits points to its half message; a delay schedules it.
    Rule(Left.TIMERS, (TIMER_TOPIC,), lacks=RESCHEDULED_FROM, types=(_NO_TRANSACTION,)),
    # RocketMQ 5 commits a timer into the topic of half messages, and points to its half.
    Rule(Left.NOTHING, _POINTING_ELSEWHERE),
    Rule(Left.NOTHING, types=(PREPARED, ROLLBACK)),
    Rule(Left.LEVEL, has=DELAY),
    Rule(Left.TIMERS, has=TIMER_OUT_MS),
)
"""The first row that fits, and names a queue, counts; NOTHING is the last."""


class Completion(enum.Enum):
    """How the wait of a scheduled record ended."""

    DELIVERED = "delivered"
    FIRED = "fired"
    RESCHEDULED = "rescheduled"
    CANCELLED = "cancelled"
    UNDELIVERABLE = "undeliverable"
    CARRIED = "carried"
    """Retention has written the timer anew, so that its log file may go; or RocketMQ has."""

    @property
    def may_be_early(self) -> bool:
        """May this happen before the deliver time?"""
        return self not in (Completion.DELIVERED, Completion.UNDELIVERABLE)


WORDS: Final = (
    Rule(Completion.CARRIED, (TIMER_TOPIC,), lacks=RESCHEDULED_FROM),
    Rule(Completion.RESCHEDULED, WAIT_TOPICS),
    Rule(Completion.CANCELLED, (CANCELLED_TOPIC,)),
    Rule(Completion.UNDELIVERABLE, (UNDELIVERABLE_TOPIC,)),
    Rule(Completion.CANCELLED, within=DLQ_PREFIX, ahead=(RETRY_PREFIX,)),
    Rule(Completion.FIRED, has=FIRED),
    Rule(Completion.DELIVERED),
)
"""The first row that fits counts, for a record that completes a scheduled one."""


class TimerStep(enum.Enum):
    """What a record of RocketMQ 5 means for the timer that it names (timer reference section 4 to
    6); each ends the oldest pending record of its timer, if there is one."""

    RECALL = "recall"
    """The timer is cancelled, with all its copies; this record ends itself."""
    INTERNAL = "internal"
    """No timer of a user; this record ends itself."""
    COPY = "copy"
    """The same timer, appended once more."""
    TIMER = "timer"
    """A timer, which waits; it ends none."""
    COPY_DELIVERY = "delivery of a copy"
    DELIVERY = "delivery"


STEPS: Final = (
    Rule(TimerStep.RECALL, (TIMER_TOPIC,), has=TIMER_NAMED),
    Rule(TimerStep.INTERNAL, (TIMER_TOPIC,), ahead=(HALF_TOPIC, REVIVE_PREFIX)),
    Rule(TimerStep.COPY, (TIMER_TOPIC,), has=_ROLL_TIMES),
    Rule(TimerStep.TIMER, (TIMER_TOPIC,)),
    Rule(TimerStep.COPY_DELIVERY, has=_ROLL_TIMES),
    Rule(TimerStep.DELIVERY),
)
"""The first row that fits counts, for a record that has TIMER_OUT_MS; outside the topic of timers,
for one without a pointer."""


def _by_topic(table: tuple[Rule[T], ...]) -> Callable[[str], tuple[Rule[T], ...]]:
    """The rows of a table that a topic may fit, found once: topics recur, and openings are long."""

    @lru_cache(maxsize=4096)
    def rows(topic: str) -> tuple[Rule[T], ...]:
        found = [rule for rule in table if not rule.topics or topic in rule.topics]
        return tuple(rule._replace(topics=()) for rule in found)

    return rows


_ends_in, _words_in = _by_topic(ENDS), _by_topic(WORDS)


def completed_queue(head: Head, properties: PropertyString) -> int:
    """The wait queue of the scheduled record that this one completes; 0 if it completes none."""
    return wait_queue_left(head.topic, properties, head.sys_flag) if head.completes else 0


def is_completing(topic: str, sys_flag: int, properties: PropertyString) -> bool:
    """Does the prepared transaction offset of such a record mean a scheduled record?"""
    if not sys_flag & TRANSACTION_TYPE and topic not in _POINTING_ELSEWHERE:
        return True
    return wait_queue_left(topic, properties, sys_flag) != 0


def wait_queue_left(topic: str, properties: PropertyString, sys_flag: int = 0) -> int:
    """The wait queue of the scheduled record that a record completes; 0 if it names none."""
    for rule in _ends_in(topic):
        if rule.fits(topic, properties, sys_flag):
            if rule.meaning is Left.NOTHING:
                break
            if left := _named(rule.meaning, properties):
                return left
    return 0


def _named(left: Left, properties: PropertyString) -> int:
    if left is Left.LEVEL:
        return record.delay_level(properties)
    if left is Left.TIMERS or properties.get(RESCHEDULED_FROM) == _FROM_TIMERS:
        return TIMERS
    return properties.number(RESCHEDULED_FROM) or 0


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
    return next(rule.meaning for rule in _words_in(topic) if rule.fits(topic, properties))


# ---- timers of RocketMQ 5


def timer_step(head: Head, properties: PropertyString) -> TimerStep | None:
    """What a record means for a timer; None: nothing."""
    if properties.get(TIMER_OUT_MS) is None:
        return None
    is_timer = wait_queue_of(head.topic, head.queue_id) == TIMERS
    if not is_timer and (head.completes or head.topic in WAIT_TOPICS):
        # Our own delivery, which points back; or a message that failed after it was delivered.
        return None
    return next(rule.meaning for rule in STEPS if rule.fits(head.topic, properties))


def timer_topic(head: Head, properties: PropertyString) -> str:
    """The destination of the timer for which a record is a step."""
    return topic_ahead(properties) if head.topic == TIMER_TOPIC else head.topic


def timer_of(head: Head, properties: PropertyString) -> str:
    """What a timer, its copies, its recall and its delivered message have in common.

    A program that is no RocketMQ client may send a message without UNIQ_KEY.
    """
    topic = timer_topic(head, properties)
    named = properties.text(TIMER_NAMED) if head.topic == TIMER_TOPIC else ""
    # Of two forms: topic+UNIQ_KEY from 5.3.2 to 5.3.3, UNIQ_KEY before and after.
    key = named.removeprefix(f"{topic}+") or properties.text(UNIQ_KEY)
    key = key or f"{head.born_timestamp_ms} {head.body_crc}"
    return f"{topic} {properties.text(TIMER_OUT_MS)} {key}"


class Over(enum.Enum):
    """Why a record of a timer waits no more."""

    DELIVERED = "delivered"
    ROLLED = "rolled"
    CANCELLED = "cancelled"
    CANCELLING = "cancelling"
    INTERNAL = "of RocketMQ itself"
    COPY = "copies"
    """After a kill RocketMQ may hold a timer twice: the other one has ended."""


class TimerSteps:
    """Sees the steps of timers in the order of the log, and ends what is not pending.

    It has about 300 bytes of memory for each pending timer.
    """

    def __init__(self, end: Callable[[int, Over], bool]) -> None:
        """end: is called with the place of a record that waits no more; False: it had ended."""
        self._end = end
        self._pending: dict[int, tuple[int, ...]] = {}
        """Timer -> the places of its records that may be pending, oldest first: one, or more if
        its producer has sent the message more than once."""
        self._over: set[int] = set()
        """Timers of which a copy may follow that is not pending."""

    def add(self, timer: int, place: int) -> None:
        """A record that waits."""
        self._pending[timer] = (*self._pending.get(timer, ()), place)

    def see(self, step: TimerStep, timer: int, place: int) -> bool:
        """The next record, at a place; False for a delivery that ends none."""
        if step in (TimerStep.DELIVERY, TimerStep.COPY_DELIVERY):
            is_ended = self._end_oldest(timer, Over.DELIVERED)
            if is_ended and step is TimerStep.COPY_DELIVERY and timer not in self._pending:
                self._over.add(timer)
            return is_ended
        if step is TimerStep.RECALL:
            self._over.add(timer)
            while self._end_oldest(timer, Over.CANCELLED):
                pass
            self._end(place, Over.CANCELLING)
        elif step is TimerStep.INTERNAL:
            self._end(place, Over.INTERNAL)
        elif timer in self._over:
            self._end(place, Over.COPY)
        else:
            if step is TimerStep.COPY:
                self._end_oldest(timer, Over.ROLLED)
            self.add(timer, place)
        return True

    def _end_oldest(self, timer: int, how: Over) -> bool:
        """End the oldest pending record of a timer; False if there is none."""
        while places := self._pending.pop(timer, ()):
            if places[1:]:
                self._pending[timer] = places[1:]
            if self._end(places[0], how):
                return True
        return False
