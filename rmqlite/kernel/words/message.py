"""A message as it is sent, a message as it is stored, and the property string between the two.

Properties are RocketMQ's: text pairs, key 0x01 value 0x02 key 0x01 value …, without a
separator at the end.  TAGS, KEYS, DELAY and UNIQ_KEY are ordinary properties on disk and
fields of their own here.  Routing and retry decide what their properties mean; this module
only has the names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import NoneType
from typing import Any, Final

from rmqlite.kernel.compiled import in_c
from rmqlite.kernel.words.errors import InvalidValue, must_be_type
from rmqlite.kernel.words.levels import (
    Delay,
    Instant,
    Wait,
    delay_text,
    instant_ms,
    wait_ms,
    whole_wait,
)
from rmqlite.kernel.words.limits import INT32_MAX, MESSAGE_ID_BYTES_MAX
from rmqlite.kernel.words.names import is_dlq, is_retry
from rmqlite.kernel.words.property_string import KEY_END as KEY_END
from rmqlite.kernel.words.property_string import PAIR_END as PAIR_END
from rmqlite.kernel.words.property_string import check_properties, check_texts, check_unique_id
from rmqlite.kernel.words.property_string import decode_properties as decode_properties
from rmqlite.kernel.words.property_string import encode_properties as encode_properties
from rmqlite.kernel.words.property_string import find_property as find_property
from rmqlite.kernel.words.property_string import property_marker as property_marker
from rmqlite.kernel.words.visible import shortened

# Names of RocketMQ 4.9 (reference §5.2) that this project reads or writes.
KEYS: Final = "KEYS"
KEY_SEPARATOR: Final = " "
"""The separator of the tokens in KEYS: a space, and no other blank."""
TAGS: Final = "TAGS"
DELAY: Final = "DELAY"
WAIT: Final = "WAIT"
UNIQ_KEY: Final = "UNIQ_KEY"
CLUSTER: Final = "CLUSTER"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
MESSAGE_GROUP: Final = "__SHARDINGKEY"
"""Messages of one group are consumed in order by a group of consumers that asks for it."""
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
# Names of RocketMQ 5 for the origin of a dead letter.
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
# Our own: what a consumer that sent a failed message itself told of its origin, which the log of
# this broker cannot prove.
CLAIMED_ORIGIN_TOPIC: Final = "CLAIMED_ORIGIN_TOPIC"
CLAIMED_ORIGIN_MESSAGE_ID: Final = "CLAIMED_ORIGIN_MESSAGE_ID"
# Our own, on every record of a message from its first failure on.
ORIGIN_QUEUE_ID: Final = "ORIGIN_QUEUE_ID"
ORIGIN_QUEUE_OFFSET: Final = "ORIGIN_QUEUE_OFFSET"
FIRST_FAILURE_TIMESTAMP: Final = "FIRST_FAILURE_TIMESTAMP"
LAST_FAILURE_TIMESTAMP: Final = "LAST_FAILURE_TIMESTAMP"
FAILURE_REASON: Final = "FAILURE_REASON"
FAILURE_REASON_ATTEMPT: Final = "FAILURE_REASON_ATTEMPT"
"""The failed attempt that gave the reason, if a later one failed without a reason."""
DELIVERY_ATTEMPTS: Final = "DELIVERY_ATTEMPTS"
# Our own, on a message whose time was changed: its level before, if it was rescheduled, and
# its deliver time before, in milliseconds, if it was delivered at once.
RESCHEDULED_FROM: Final = "RESCHEDULED_FROM"
FIRED: Final = "FIRED"
# Our own, from producers: an id that one message of a topic has, and "true" if it is the newest.
UNIQUE_ID: Final = "UNIQUE_ID"
UNIQUE_ID_REPLACE: Final = "UNIQUE_ID_REPLACE"
# Our own, on a new message that was made of a dead letter: the place of the dead letter
# (topic:queue id:queue offset), its message id (the first one, after several redrives), how
# often it was redriven, this time included, and the broker's job that did it.
REDRIVEN_FROM: Final = "REDRIVEN_FROM"
REDRIVEN_MESSAGE_ID: Final = "REDRIVEN_MESSAGE_ID"
REDRIVEN_TIMES: Final = "REDRIVEN_TIMES"
REDRIVEN_BY: Final = "REDRIVEN_BY"
REDRIVE_PROPERTIES: Final = frozenset(
    {REDRIVEN_FROM, REDRIVEN_MESSAGE_ID, REDRIVEN_TIMES, REDRIVEN_BY}
)
"""Not reserved: a program may send dead letters of an export again, as any producer would."""
FIRST_ID_PROPERTIES: Final = (
    REDRIVEN_MESSAGE_ID,
    UNIQ_KEY,
    DLQ_ORIGIN_MESSAGE_ID,
    ORIGIN_MESSAGE_ID,
)
"""The first of these that a dead letter has is the message id that its producer knows."""
REDRIVE_ID_PREFIX: Final = "redrive:"
"""A redriven dead letter's message id is this and the place of the dead letter."""

# Names of RocketMQ 5 for a message that waits for an instant (timer-reference section 1).
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
"""The name of cloud clients for TIMER_DELIVER_MS."""
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_EXACT: Final = "TIMER_EXACT"
"""Our own, on the record of a timer: its TIMER_OUT_MS is the instant, not a slot of RocketMQ's."""
TIMER_ASKED: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, START_DELIVER_TIME)
"""With these a producer asks for an instant; the first one that a message has counts."""
TIMER_BROKERS: Final = tuple(
    """TIMER_OUT_MS TIMER_EXACT TIMER_DEL_UNIQKEY TIMER_ROLL_TIMES TIMER_ENQUEUE_MS
    TIMER_DEQUEUE_MS""".split()  # noqa: SIM905 - as below
)
"""Only brokers write these."""
TIMER_PROPERTIES: Final = frozenset({*TIMER_ASKED, *TIMER_BROKERS})
# Our own: from this instant on no group is handed the message.
EXPIRES_AT_MS: Final = "EXPIRES_AT_MS"
RESERVED_PROPERTIES: Final = frozenset(
    """KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
    BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION
    TRACE_ON UNIQ_KEY MAX_RECONSUME_TIMES CONSUME_START_TIME TRAN_PREPARED_QUEUE_OFFSET
    TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS INSTANCE_ID CORRELATION_ID
    REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_DISPATCH
    INNER_MULTI_QUEUE_OFFSET DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID ORIGIN_QUEUE_ID
    ORIGIN_QUEUE_OFFSET FIRST_FAILURE_TIMESTAMP LAST_FAILURE_TIMESTAMP FAILURE_REASON
    FAILURE_REASON_ATTEMPT CLAIMED_ORIGIN_TOPIC CLAIMED_ORIGIN_MESSAGE_ID
    DELIVERY_ATTEMPTS RESCHEDULED_FROM FIRED UNIQUE_ID UNIQUE_ID_REPLACE
    EXPIRES_AT_MS""".split()  # noqa: SIM905 - a list of words is read as one
).union(TIMER_PROPERTIES)

_LIMIT = re.compile(r"[0-9]{1,10}")
BODY_RULE: Final = (
    "at least 1 byte: RocketMQ's Java consumer fails at an empty body,"
    " and loses the messages that it pulled with it"
)
_FIELD_TYPES: Final = {
    "topic": str,
    "body": bytes,
    "tags": str,
    "message_id": str,
    "unique_id": str,
    "delay_level": int,
    "flag": int,
    "max_reconsume_times": int,
    "deliver_at_ms": int,
}
_NEVER_NONE: Final = {"topic", "body", "tags", "message_id", "delay_level"}
_WAITS: Final = ("delay", "delay_level", "deliver_at", "deliver_after")


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send.

    body: at least one byte.  keys: tokens to find the message by; a string is split at blanks,
    as RocketMQ does.  delay_level: 0 is now; 1 is the first level of the broker's
    messageDelayLevel; a level above the last one means the last one.  delay: instead of a level
    its length, "10m" or a timedelta (kept as text); the broker takes the level that is exactly that
    long when it stores the message.  deliver_at: instead of both an instant, a datetime with a time
    zone or milliseconds since 1970 (kept as these); a past one means now.  deliver_after: instead
    of all these how long to wait from the moment at which the broker stores the message, "36h" or
    a timedelta (kept as one).  message_id: RocketMQ's UNIQ_KEY; if empty, the producer chooses one.
    max_reconsume_times: how often consumers may fail it and get it again, in every group; with 0
    the first failure makes it a dead letter, with None the limit of the consumer or its group
    holds.  unique_id: the topic gets no second message with it within dedupWindow.  replace: if the
    first one still waits, this one takes its place.  expires_at: the instant from which on no group
    is handed the message.  expires_after: the same, so long after the client sends it, by its own
    clock.  Raises InvalidValue.
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int = 0
    delay: Delay | None = None
    flag: int = 0
    message_id: str = ""
    max_reconsume_times: int | None = None
    deliver_at: Instant | None = None
    deliver_after: Wait | None = None
    unique_id: str = ""
    replace: bool = False
    expires_at: Instant | None = None
    expires_after: Wait | None = None

    def __post_init__(self) -> None:
        try:
            if self.keys.__class__ is not tuple:
                tokens = self.keys.split() if isinstance(self.keys, str) else self.keys
                object.__setattr__(self, "keys", tuple(tokens))
            if self.properties or self.properties.__class__ is not dict:
                # A copy: threads of the client encode it later, and it must be what was checked.
                object.__setattr__(self, "properties", dict(self.properties))
                check_properties(self.properties, RESERVED_PROPERTIES)
            # Nearly all texts are plain: one check of all of them, and only then field by field.
            text = self.topic + self.tags + "".join(self.keys) + self.message_id
            is_plain = text.isascii() and text.isprintable() and " " not in text
            if not is_plain or "" in self.keys or len(text) > MESSAGE_ID_BYTES_MAX:
                check_texts(self.tags, self.message_id, self.keys)
            is_now = self.delay is None and self.deliver_at is None and self.deliver_after is None
            is_now = is_now and self.delay_level.__class__ is self.flag.__class__ is int
            is_now = is_now and self.expires_at is None and self.expires_after is None
            if not is_now or self.delay_level or self.flag or self.max_reconsume_times is not None:
                _check_numbers(self)
            if self.unique_id or self.replace:
                check_unique_id(self.unique_id)
                if self.replace.__class__ is not bool:
                    raise must_be_type("replace", "bool", self.replace)
        except (TypeError, ValueError, AttributeError):
            check_field_types(self)  # names the wrong type; in nearly all messages there is none
            raise
        if self.body.__class__ is not bytes or not self.body:
            check_field_types(self)
            raise InvalidValue("body", "", BODY_RULE)

    @property
    def deliver_at_ms(self) -> int:
        """deliver_at in milliseconds since 1970; 0 if it is not given."""
        return 0 if self.deliver_at is None else instant_ms("deliver_at", self.deliver_at)

    @property
    def deliver_after_ms(self) -> int:
        """deliver_after in milliseconds; 0 if it is not given."""
        return 0 if self.deliver_after is None else wait_ms("deliver_after", self.deliver_after)

    def named(self, message_id: str) -> Message:
        """A copy with an id that needs no check."""
        named: Message = copied(self, _ALL_SLOTS, _SLOTS["message_id"], message_id)
        return named

    def with_properties(self, more: Mapping[str, str]) -> Message:
        """A copy with further properties that need no check; those that it has stay."""
        properties = {**more, **self.properties}
        message: Message = copied(self, _ALL_SLOTS, _SLOTS["properties"], properties)
        return message

    def at_level(self, delay_level: int) -> Message:
        """A copy with this level, which the caller has worked out from the delay."""
        at_level: Message = copied(self, _ALL_SLOTS, _SLOTS["delay_level"], delay_level)
        return at_level


_SLOTS: Final = {name: vars(Message)[name] for name in Message.__slots__}
_ALL_SLOTS: Final = tuple(_SLOTS.values())


@in_c
def copied(source: Any, slots: tuple[Any, ...], slot: Any, value: object) -> Any:
    """A copy of an object with a value in one slot.  slots: descriptors of all of its fields.

    C takes a fifth of the time, and that is a tenth of a constructor's.
    """
    copy = object.__new__(type(source))
    for each in slots:
        each.__set__(copy, each.__get__(source))
    slot.__set__(copy, value)
    return copy


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as the broker stores it, and as a consumer receives it.

    queue_offset: ordinal in its queue.  physical_offset and store_size: where its record
    lies in the commit log, in bytes.  properties: all of them, the reserved ones included.
    born_host, store_host: "ip:port".  prepared_transaction_offset: on a record delivered
    from the schedule, the physical offset at which the scheduled record ends; on a message that a
    transaction commits, where its half message begins (else 0).
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    body: bytes
    properties: Mapping[str, str]
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int

    @property
    def tags(self) -> str:
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(KEYS, "").split())

    @property
    def delay_level(self) -> int:
        """The level of this message's last delay; 0 if it was never delayed."""
        try:
            return int(self.properties.get(DELAY, "0"))
        except ValueError:
            return 0

    @property
    def max_reconsume_times(self) -> int | None:
        """The sender's own limit of retries; None if it set none, or an invalid one."""
        return senders_limit(self.properties)

    @property
    def offset_message_id(self) -> str:
        """RocketMQ's offset id (reference §5.1): store address and physical offset, in hex."""
        return offset_message_id(self.store_host, self.physical_offset)

    @property
    def message_id(self) -> str:
        """The id its producer gave it, the same in every record; else the offset message id."""
        return self.properties.get(UNIQ_KEY) or self.offset_message_id

    @property
    def origin_topic(self) -> str:
        """The topic that it was sent to, even if it is in a retry or dead-letter topic now."""
        own = self.properties
        if is_dlq(self.topic):
            return own.get(DLQ_ORIGIN_TOPIC) or own.get(RETRY_TOPIC, self.topic)
        return own.get(RETRY_TOPIC, self.topic) if is_retry(self.topic) else self.topic


def senders_limit(properties: Mapping[str, str]) -> int | None:
    """The sender's limit of retries in the properties of a stored message; None without one.

    A value that is no number from 0 to 2147483647 counts as none.  A RocketMQ consumer that
    sends a failed message itself writes its own limit under the same name, always with
    RECONSUME_TIME (reference §5.3): that limit is not the sender's.
    """
    text = properties.get(MAX_RECONSUME_TIMES, "")
    is_limit = _LIMIT.fullmatch(text) and RECONSUME_TIME not in properties
    return limit if is_limit and (limit := int(text)) <= INT32_MAX else None


def offset_message_id(store_host: str, physical_offset: int) -> str:
    """Upper-case hex of address, port and physical offset: 32 characters, 56 for IPv6.

    The entry of a damaged queue may have a negative offset.
    """
    offset = physical_offset.to_bytes(8, "big", signed=True)
    return (pack_host(store_host) + offset).hex().upper()


def host_text(ip: str, port: int) -> str:
    """An address as messages show it: "1.2.3.4:80", or "[::1]:80"."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


@lru_cache(maxsize=4096)
def pack_host(host: str) -> bytes:
    """The 8 bytes of "1.2.3.4:80", or the 20 of "[::1]:80".  Raises InvalidValue."""
    import ipaddress  # here, so that a client that never packs an address never loads it

    address, _, port = host.rpartition(":")
    try:
        packed = ipaddress.ip_address(address.strip("[]")).packed
        return packed + int(port).to_bytes(4, "big")
    except (ValueError, OverflowError) as error:
        raise InvalidValue("host", host, "an IP address, a colon and a port") from error


def unpack_host(packed: bytes) -> str:
    """The inverse of pack_host."""
    port = int.from_bytes(packed[-4:], "big")
    if len(packed) == 8:
        return f"{packed[0]}.{packed[1]}.{packed[2]}.{packed[3]}:{port}"
    import ipaddress

    return f"[{ipaddress.IPv6Address(packed[:-4])}]:{port}"


def check_field_types(message: Any) -> None:
    """Raises InvalidValue for a field of another type than a Message, or a BulkMessage, declares.

    Few users run a type checker: without it a wrong type is an error far from its cause.
    """
    for name, kind in _FIELD_TYPES.items():
        value = getattr(message, name, None)
        if not isinstance(value, kind) and not (value is None and name not in _NEVER_NONE):
            raise must_be_type(name, kind.__name__, value)
        if isinstance(value, bool):
            raise must_be_type(name, kind.__name__, value)
    keys = message.keys
    if not isinstance(keys, str | Sequence) or not all(isinstance(key, str) for key in keys):
        raise must_be_type("keys", "str or a sequence of str", keys)
    check_property_types(message.properties)


def check_property_types(properties: Any) -> None:
    """Raises InvalidValue unless a user's properties map text to text."""
    if not isinstance(properties, Mapping) or not all(isinstance(key, str) for key in properties):
        raise must_be_type("properties", "a mapping of str to str", properties)
    for key, value in properties.items():
        if not isinstance(value, str):
            raise must_be_type(f"properties[{shortened(key)!r}]", "str", value)


def _check_alone(message: Message, names: Sequence[str]) -> None:
    given = [name for name in names if getattr(message, name)]
    if len(given) > 1:
        rule = f"left out if {given[1]} is given"
        raise InvalidValue(given[0], getattr(message, given[0]), rule)


def _check_numbers(message: Message) -> None:
    if message.delay is not None:
        object.__setattr__(message, "delay", delay_text(message.delay))
    for name in ("deliver_at", "expires_at", "deliver_after", "expires_after"):
        if (given := getattr(message, name)) is not None:
            kept = instant_ms(name, given) if name.endswith("_at") else whole_wait(name, given)
            object.__setattr__(message, name, kept)
    _check_alone(message, _WAITS)
    _check_alone(message, ("expires_at", "expires_after"))
    kinds = (message.delay_level.__class__, message.flag.__class__)
    if kinds != (int, int) or message.max_reconsume_times.__class__ not in (int, NoneType):
        check_field_types(message)
    for name, number in (("delay_level", message.delay_level), ("flag", message.flag)):
        if not -INT32_MAX - 1 <= number <= INT32_MAX:
            raise InvalidValue(name, number, "a 32-bit integer")
    limit = message.max_reconsume_times
    if limit is not None and not 0 <= limit <= INT32_MAX:
        raise InvalidValue("max_reconsume_times", limit, "0 to 2147483647, or None")
