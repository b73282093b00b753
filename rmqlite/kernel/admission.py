"""What a message must be before the broker accepts it, whichever way it comes in.

An accepted message keeps what its sender asked for, and can be delivered: its delay is understood,
its property string leaves room for all that the broker adds later, and its body is what its sys
flag says.  The compiled form has none of these rules: it leaves every message that they could
refuse to the plain form.

A new store has log files with room for the largest message and everything that its way adds.
A store that RocketMQ began may have shorter ones.  Then a send is refused if its message would
leave no room for that.  If a copy of a message in the log does not fit, its properties are
shortened, or at last its body is left behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from rmqlite.kernel.config.config import KEYS, RECORD_ROOM_BYTES, BrokerConfig
from rmqlite.kernel.records.drafts import LEFT_BEHIND, Draft
from rmqlite.kernel.records.record import INNER_BATCH, NEED_UNWRAP, OVERHEAD_BYTES, Head
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS
from rmqlite.kernel.store.log.checksums import record_bytes_max
from rmqlite.kernel.words.compression import COMPRESSED, why_unreadable
from rmqlite.kernel.words.errors import InvalidValue, MessageTooLarge, Overloaded, TimersOff
from rmqlite.kernel.words.limits import INT64_MAX, PROPERTIES_BYTES_MAX, SENT_PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    BODY_RULE,
    DELAY,
    TIMER_ASKED,
    TIMER_BROKERS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_PROPERTIES,
    TRAN_MSG,
)
from rmqlite.kernel.words.names import is_retry
from rmqlite.kernel.words.property_string import PropertyString, java_int

DELAY_PAIR: Final = f"{DELAY}\x01".encode()
_TIMER_MARKS: Final = (b"TIMER_", b"__STARTDELIVERTIME")
"""Each name of TIMER_PROPERTIES begins with one of them."""
_UNIT_MS: Final = {TIMER_DELAY_SEC: 1_000, TIMER_DELAY_MS: 1}
"""The unit of a delay; the other properties name an instant."""
_LONG: Final = re.compile(rb"[+-]?[0-9]{1,19}")
_DELAY_RULE: Final = "a whole number from -2147483648 to 2147483647: the delay level"
_BROKERS_RULE: Final = (
    "left out: only a broker sets it; leave out all TIMER_ properties when a received message is"
    " sent again"
)
_INNER_RULE: Final = "a flag without the bits 0x40 and 0x80: inner batches are not supported"
_BATCH_RULE: Final = "a flag without the bit 0x1: messages of a batch must not be compressed"
_PLAIN_HOSTS_BYTES: Final = 16
_MORE_BYTES_MAX: Final = 127 + 24
"""The most bytes that another topic and IPv6 hosts add to a record."""
_IS_HALF: Final = f"{TRAN_MSG}\x01".encode()


def check_draft(draft: Draft, *, is_alone: bool = True, is_failed: bool = False) -> None:
    """Raises InvalidValue, MessageTooLarge for a message that must not be stored.

    is_alone: False for a message of a batch.  is_failed: a consumer sends a message again that
    it has failed: its properties were accepted when it was sent first, and the broker's own
    additions are in them.
    """
    if not draft.body:
        raise InvalidValue("body", "", BODY_RULE)
    own = draft.properties
    level_of(own)
    if not is_failed:
        check_sent_properties(own)
    if draft.sys_flag & (COMPRESSED | INNER_BATCH | NEED_UNWRAP):
        _check_body(draft, is_alone=is_alone)


def level_of(properties: bytes) -> int:
    """The delay level that a property string asks for; 0 for none.

    RocketMQ refuses what Java's Integer.parseInt() refuses, and so does this: otherwise the
    message would be delivered at once.  Raises InvalidValue.
    """
    if DELAY_PAIR not in properties:
        return 0
    text = PropertyString(properties).get(DELAY)
    if text is None:
        return 0
    level = java_int(text)
    if level is None:
        raise InvalidValue(DELAY, text.decode("utf-8", "replace"), _DELAY_RULE)
    return max(0, level)


def check_sent_properties(properties: bytes) -> None:
    """Raises MessageTooLarge for a property string without room for what the broker adds."""
    size = len(properties)
    if size > SENT_PROPERTIES_BYTES_MAX:
        rule = (
            f"at most {SENT_PROPERTIES_BYTES_MAX} bytes as a property string: the broker adds"
            " to it when it delays, retries or redrives the message"
        )
        raise MessageTooLarge("properties", size, rule)


def has_timer(properties: bytes) -> bool:
    """May a property string have a property of timers?"""
    return any(mark in properties for mark in _TIMER_MARKS)


def without_timer(properties: bytes) -> bytes:
    """A property string without the properties of timers."""
    if not has_timer(properties):
        return properties
    return PropertyString(properties).edited({}, TIMER_PROPERTIES).encoded


class TimerRules(NamedTuple):
    """When a message without a delay level is due that asks for an instant or a delay of its own.

    RocketMQ 5 reads the properties in the same order; but it ignores __STARTDELIVERTIME.
    """

    is_enabled: bool
    delay_ms_max: int
    check_room: Callable[[], None]
    """Raises Overloaded if no timer may be added now."""

    @classmethod
    def of(cls, config: BrokerConfig, check_room: Callable[[], None]) -> TimerRules:
        return cls(config.timer_wheel_enable, 1_000 * config.timer_max_delay_s, check_room)

    @property
    def packed_ms_max(self) -> int:
        """The longest delay that the compiled form may accept without asking here."""
        if not self.is_enabled:
            return 0
        try:
            self.check_room()
        except Overloaded:
            return 0
        return self.delay_ms_max

    def due_ms(self, properties: bytes, now_ms: int) -> int:
        """The instant; 0 if the message asks for none, or for one that has passed.

        Raises InvalidValue for a time that cannot be kept: ignoring it would break a promise in
        silence.  Raises Overloaded.
        """
        if not has_timer(properties):
            return 0
        own = PropertyString(properties)
        for name in TIMER_BROKERS:
            if own.get(name) is not None:
                raise InvalidValue(name, own.text(name), _BROKERS_RULE)
        due_ms = asked_ms(own, now_ms)
        if due_ms:
            self.check(*_asked(own), due_ms - now_ms)
        return due_ms

    def check(self, field: str, value: object, delay_ms: int) -> None:
        """Raises InvalidValue, for the field that asks for it, unless a timer may wait so long;
        and Overloaded.
        """
        if delay_ms > self.delay_ms_max:
            rule = f"at most {self.delay_ms_max} ms from now ({KEYS['timer_max_delay_s']})"
            raise InvalidValue(field, value, rule)
        if not self.is_enabled:
            rule = f"left out: {KEYS['timer_wheel_enable']}=false allows delay levels only"
            raise TimersOff(field, value, rule)
        self.check_room()


def asked_ms(own: PropertyString, now_ms: int) -> int:
    """The instant that a message asks for, a delay counted from now; 0 if none, or it has passed.

    Raises InvalidValue for a text that Java's Long.parseLong() refuses.
    """
    for name in TIMER_ASKED:
        value = own.get(name)
        if value is None:
            continue
        number = int(value) if _LONG.fullmatch(value) else INT64_MAX + 1
        if not -INT64_MAX - 1 <= number <= INT64_MAX:
            rule = f"a whole number from {-INT64_MAX - 1} to {INT64_MAX}"
            raise InvalidValue(name, own.text(name), rule)
        unit_ms = _UNIT_MS.get(name)
        due_ms = number if unit_ms is None else now_ms + number * unit_ms
        return due_ms if due_ms > now_ms else 0
    return 0


def _asked(own: PropertyString) -> tuple[str, str]:
    name = next(name for name in TIMER_ASKED if own.get(name) is not None)
    return name, own.text(name)


def _check_body(draft: Draft, *, is_alone: bool) -> None:
    """RocketMQ's clients lose a whole pull if they cannot read one message of it."""
    if draft.sys_flag & (INNER_BATCH | NEED_UNWRAP):
        raise InvalidValue("sysFlag", draft.sys_flag, _INNER_RULE)
    if not is_alone:
        # All of a batch is made in one step, and no client of RocketMQ compresses one.
        raise InvalidValue("sysFlag", draft.sys_flag, _BATCH_RULE)
    why = why_unreadable(draft.body, draft.sys_flag)
    if why:
        size, flag = len(draft.body), draft.sys_flag
        raise InvalidValue("body", f"{size} bytes", f"compressed as sysFlag {flag} says: {why}")


class Room:
    """The limits of bodies, properties and records in the log of one store."""

    def __init__(self, log_file_bytes: int, max_message_bytes: int) -> None:
        self.log_file_bytes = log_file_bytes
        self.record_bytes_max = record_bytes_max(log_file_bytes)
        # Half of a tiny file: there a record may still be too long, and is refused then.
        in_file = max(log_file_bytes - RECORD_ROOM_BYTES, log_file_bytes // 2)
        self.body_bytes_max = min(max_message_bytes, in_file)
        self._rule = f"at most {self.body_bytes_max} bytes "
        if self.body_bytes_max == max_message_bytes:
            self._rule += f"({KEYS['max_message_bytes']})"
        else:
            self._rule += f"in a store whose log files have {log_file_bytes} bytes"

    def check_body(self, size: int) -> None:
        """Raises MessageTooLarge for a body that is too long."""
        if size > self.body_bytes_max:
            raise MessageTooLarge("body", size, self._rule)

    def surely_holds(self, record_bytes: int) -> bool:
        """Does a record of this size fit, whatever its topic and hosts?"""
        return record_bytes + _MORE_BYTES_MAX <= self.record_bytes_max

    def why_not_in(self, head: Head, topic: str, properties_bytes: int = 0) -> str:
        """Why a copy of a record in another topic would not fit; empty if it fits."""
        other = max(0, properties_bytes - len(head.properties)) + _MORE_BYTES_MAX
        # Nearly all copies fit easily.
        if head.size + other <= self.record_bytes_max:
            return ""
        size = self._rest(head, topic) + (properties_bytes or len(head.properties))
        if size <= self.record_bytes_max:
            return ""
        return (
            f"its record would have {size} bytes, a log file of {self.log_file_bytes} has room"
            f" for {self.record_bytes_max}"
        )

    def for_properties(self, head: Head, topic: str, *, has_body: bool = True) -> int:
        """The longest property string for a copy of a record in another topic."""
        rest = self._rest(head, topic)
        if not has_body:
            rest -= head.body_end - head.body_position - len(LEFT_BEHIND)
        return min(PROPERTIES_BYTES_MAX, self.record_bytes_max - rest)

    def _rest(self, head: Head, topic: str) -> int:
        """The length of a copy in that topic, without its properties.

        The copy may first wait in the schedule, whose name may be longer than the topic's.
        """
        own = OVERHEAD_BYTES + len(head.born_host) + len(head.store_host) - _PLAIN_HOSTS_BYTES
        names = max(len(topic.encode()), *map(len, WAIT_TOPICS))
        return own + names + head.body_end - head.body_position


def is_half(draft: Draft) -> bool:
    """Does the message begin a transaction?

    One that its consumer sends to a retry topic may still have the property.
    """
    if _IS_HALF not in draft.properties or is_retry(draft.topic):
        return False
    return (PropertyString(draft.properties).get(TRAN_MSG) or b"").lower() == b"true"
