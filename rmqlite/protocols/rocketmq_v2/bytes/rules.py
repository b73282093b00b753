"""What the fields of requests must be; each function here is one rule with its code.

The rules are those of RocketMQ's proxy.  The sentence of a refusal names the field and the rule, so
that a user of an official client reads what to change.  What needs the broker (is there such a
topic, does the expression parse) is not checked here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rmqlite.kernel.words.errors import InvalidName
from rmqlite.kernel.words.limits import (
    CLIENT_ID_BYTES_MAX,
    INVISIBLE_MS_MAX,
    MESSAGE_ID_BYTES_MAX,
    RECEIVE_MESSAGES_MAX,
)
from rmqlite.kernel.words.message import (
    EXPIRES_AT_MS,
    MESSAGE_GROUP,
    RESERVED_PROPERTIES,
    UNIQUE_ID,
    UNIQUE_ID_REPLACE,
)
from rmqlite.kernel.words.names import check_group, check_topic, is_system, is_system_group
from rmqlite.protocols.pb.rocketmq_v2 import definition_pb2 as definition
from rmqlite.protocols.pb.rocketmq_v2 import service_pb2 as service
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, RocketmqRefusal, broken

NORMAL: Final = int(definition.NORMAL)
FIFO: Final = int(definition.FIFO)
DELAY: Final = int(definition.DELAY)
TRANSACTION: Final = int(definition.TRANSACTION)
ACCEPTED_TYPES: Final = (NORMAL, FIFO, DELAY, TRANSACTION)
"""The types of messages that every topic accepts."""

USER_PROPERTIES_MAX: Final = 128
USER_PROPERTIES_BYTES_MAX: Final = 16 << 10
"""Of the keys, the tag and the user's properties, as a property string."""
MESSAGE_GROUP_BYTES_MAX: Final = 63
RECOVERY_S_MAX: Final = 3_600
INVISIBLE_MS_MIN: Final = 10_000
POLLING_MS_MIN: Final = 5_000
"""A call with less time than this must have asked for a shorter poll."""
POLLING_MS_MAX: Final = 20_000
ANSWER_MS: Final = 500
"""So long before the end of its time a poll is answered."""
_POLLING_CODE_SINCE: Final = "5.0.3"
"""Clients of a lower version, compared as text, do not know ILLEGAL_POLLING_TIME."""

BORN_HOST: Final = "__BORNHOST"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
_MORE_RESERVED: Final = (
    *(MESSAGE_GROUP, BORN_HOST, TRACE_CONTEXT, "BORN_TIMESTAMP", "POP_CK", "POP_CK_OFFSET"),
    *("1ST_POP_TIME", "DUP_INFO", "EXTEND_UNIQ_INFO", "TIMER_DELAY_LEVEL", "__CRC32#"),
)
_ASKED: Final = frozenset({UNIQUE_ID, UNIQUE_ID_REPLACE, EXPIRES_AT_MS})
"""These clients can say in no other way what they ask for."""
RESERVED: Final = RESERVED_PROPERTIES.union(_MORE_RESERVED) - _ASKED
"""A user's property has none of these names, and a consumer sees none of them as a property."""
_MORE_SYSTEM_TOPICS: Final = frozenset({"CHECKPOINT_TOPIC"})

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_PLAIN: Final = "text without control characters"
_SECONDS_MAX: Final = 253_402_300_799
"""The end of the year 9999, where the types of protobuf end."""
INSTANT_MS_MAX: Final = _SECONDS_MAX * 1_000
_NANOS_MAX: Final = 999_999_999


# ---- who asks, and about what


def client_id_of(text: str | None) -> str:
    """The header x-mq-client-id."""
    own = text or ""
    if not own.strip() or len(own.encode()) > CLIENT_ID_BYTES_MAX or _CONTROL.search(own):
        rule = f"1 to {CLIENT_ID_BYTES_MAX} bytes of {_PLAIN}"
        raise broken(Code.CLIENT_ID_REQUIRED, "x-mq-client-id", own, rule)
    return own


def topic_of(resource: definition.Resource) -> str:
    """The topic that is named; its namespace does not count, as in RocketMQ's proxy."""
    return _topic(resource.name)


def group_of(resource: definition.Resource) -> str:
    return _group(resource.name)


@lru_cache(maxsize=4096)
def _topic(name: str) -> str:
    """A refusal is not cached."""
    try:
        check_topic(name)
    except InvalidName as error:
        raise RocketmqRefusal(Code.ILLEGAL_TOPIC, str(error)) from None
    if is_system(name) or name in _MORE_SYSTEM_TOPICS:
        raise broken(Code.ILLEGAL_TOPIC, "topic", name, "a topic of users, not the broker's own")
    return name


@lru_cache(maxsize=4096)
def _group(name: str) -> str:
    try:
        check_group(name)
    except InvalidName as error:
        raise RocketmqRefusal(Code.ILLEGAL_CONSUMER_GROUP, str(error)) from None
    if is_system_group(name):
        rule = "a group of users, not the broker's own"
        raise broken(Code.ILLEGAL_CONSUMER_GROUP, "group", name, rule)
    return name


# ---- messages that are sent


def topic_of_messages(messages: Sequence[definition.Message]) -> str:
    """The one topic of the messages of a send."""
    if not messages:
        raise broken(Code.MESSAGE_CORRUPTED, "messages", "none", "at least one message")
    first = messages[0].topic
    for message in messages[1:]:
        if message.topic != first:
            rule = f"that of the first message, {first.name!r}"
            raise broken(Code.MESSAGE_CORRUPTED, "topic", message.topic.name, rule)
    return topic_of(first)


def check_body(size: int, bytes_max: int) -> None:
    if not size:
        raise broken(Code.MESSAGE_BODY_EMPTY, "body", "", "at least 1 byte")
    if size > bytes_max:
        rule = f"at most {bytes_max} bytes (maxMessageSize)"
        raise broken(Code.MESSAGE_BODY_TOO_LARGE, "body", f"{size} bytes", rule)


def check_message_id(text: str) -> None:
    if not text.strip() or len(text.encode()) > MESSAGE_ID_BYTES_MAX or _CONTROL.search(text):
        rule = f"1 to {MESSAGE_ID_BYTES_MAX} bytes of {_PLAIN}"
        raise broken(Code.ILLEGAL_MESSAGE_ID, "message_id", text, rule)


def check_tag(text: str) -> None:
    """Of a message that has one."""
    if not text.strip() or "|" in text or _CONTROL.search(text):
        rule = f"not blank, without '|', {_PLAIN}"
        raise broken(Code.ILLEGAL_MESSAGE_TAG, "tag", text, rule)


def check_keys(keys: Sequence[str]) -> None:
    for key in keys:
        if not key.strip() or _CONTROL.search(key):
            raise broken(Code.ILLEGAL_MESSAGE_KEY, "keys", key, f"not blank, {_PLAIN}")


def check_message_group(text: str) -> None:
    """Of a message that has one."""
    size = len(text.encode())
    if not text.strip() or size > MESSAGE_GROUP_BYTES_MAX or _CONTROL.search(text):
        rule = f"not blank, at most {MESSAGE_GROUP_BYTES_MAX} bytes of {_PLAIN}"
        raise broken(Code.ILLEGAL_MESSAGE_GROUP, "message_group", text, rule)


def check_user_properties(properties: Mapping[str, str]) -> None:
    if len(properties) > USER_PROPERTIES_MAX:
        rule = f"at most {USER_PROPERTIES_MAX} properties"
        raise broken(
            Code.MESSAGE_PROPERTIES_TOO_LARGE, "user_properties", f"{len(properties)}", rule
        )
    for key, value in properties.items():
        if key in RESERVED:
            rule = "a name that RocketMQ does not reserve"
            raise broken(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "user_properties", key, rule)
        # RocketMQ drops a property without a value when it reads the message.
        if not key or not value or _CONTROL.search(key) or _CONTROL.search(value):
            rule = f"keys and values that are not empty, {_PLAIN}"
            raise broken(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "user_properties", f"{key}={value}", rule
            )


def check_properties_size(size: int) -> None:
    """Of the keys, the tag and the user's properties, as a property string."""
    if size > USER_PROPERTIES_BYTES_MAX:
        rule = f"at most {USER_PROPERTIES_BYTES_MAX} bytes with keys and tag"
        raise broken(Code.MESSAGE_PROPERTIES_TOO_LARGE, "user_properties", f"{size} bytes", rule)


def check_trace_context(text: str) -> None:
    if _CONTROL.search(text):
        raise broken(Code.BAD_REQUEST, "trace_context", text, _PLAIN)


def born_host_of(text: str) -> str:
    """The host that a client says it runs on; "" if that is no plain text."""
    return "" if len(text) > 255 or _CONTROL.search(text) else text.strip()


def delivery_ms(timestamp: Timestamp, now_ms: int, delay_ms_max: int) -> int:
    """When a message is due; a past instant means now."""
    due_ms = timestamp_ms(timestamp)
    if due_ms is None:
        rule = "an instant from year 1 to 9999"
        value = f"{timestamp.seconds} s and {timestamp.nanos} ns"
        raise broken(Code.ILLEGAL_DELIVERY_TIME, "delivery_timestamp", value, rule)
    if due_ms - now_ms > delay_ms_max:
        rule = f"at most {delay_ms_max} ms from now (timerMaxDelaySec)"
        value = f"{due_ms - now_ms} ms from now"
        raise broken(Code.ILLEGAL_DELIVERY_TIME, "delivery_timestamp", value, rule)
    return max(0, due_ms)


def recovery_s(duration: Duration) -> int:
    """How long the producer of a half message is not asked for the outcome, in whole seconds."""
    wait_ms = duration_ms(duration)
    if wait_ms is None or not 0 <= wait_ms <= RECOVERY_S_MAX * 1_000:
        rule = f"0 to {RECOVERY_S_MAX} seconds"
        value = f"{duration.seconds} s"
        raise broken(Code.BAD_REQUEST, "orphaned_transaction_recovery_duration", value, rule)
    return -(-wait_ms // 1_000)


def message_type(system: definition.SystemProperties) -> int:
    """The type of a message, which must fit its fields; a client may leave it out."""
    has_group, is_delayed = bool(system.message_group), system.HasField("delivery_timestamp")
    fitting = FIFO if has_group else DELAY if is_delayed else NORMAL
    asked = int(system.message_type) or fitting
    if asked not in ACCEPTED_TYPES or system.HasField("lite_topic"):
        name = "LITE" if system.HasField("lite_topic") else _type_name(asked)
        rule = "NORMAL, FIFO, DELAY or TRANSACTION: the broker has no other types"
        code = Code.UNSUPPORTED if name == "LITE" else Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        raise broken(code, "message_type", name, rule)
    fits = asked == fitting or (asked == TRANSACTION and fitting == NORMAL)
    if not fits or (has_group and is_delayed):
        rule = (
            "FIFO with a message group, DELAY with a delivery timestamp, NORMAL or TRANSACTION"
            " with neither"
        )
        code = Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        raise broken(code, "message_type", _type_name(asked), rule)
    return asked


def _type_name(number: int) -> str:
    try:
        return definition.MessageType.Name(number)
    except ValueError:
        return str(number)


# ---- receiving


def filter_of(expression: definition.FilterExpression) -> tuple[str, str]:
    """Tags such as "a || b", and an expression in SQL92; one of the two takes all messages."""
    text = expression.expression.strip()
    if expression.type in (definition.TAG, definition.FILTER_TYPE_UNSPECIFIED):
        return text or "*", ""
    if expression.type != definition.SQL:
        rule = "TAG or SQL"
        raise broken(
            Code.ILLEGAL_FILTER_EXPRESSION, "filter_expression.type", expression.type, rule
        )
    if not text:
        raise broken(Code.ILLEGAL_FILTER_EXPRESSION, "filter_expression", text, "not blank")
    return "*", text


def batch_size(number: int) -> int:
    """How many messages a consumer takes at once; one that names no number takes all it may get."""
    return min(number, RECEIVE_MESSAGES_MAX) if number > 0 else RECEIVE_MESSAGES_MAX


def invisible_ms(request: service.ReceiveMessageRequest) -> int:
    """For how long what is received is invisible; 0 if the broker renews that time by itself."""
    if request.auto_renew:
        return 0
    wait_ms = duration_ms(request.invisible_duration)
    if wait_ms is None or not INVISIBLE_MS_MIN <= wait_ms <= INVISIBLE_MS_MAX:
        rule = f"{INVISIBLE_MS_MIN} to {INVISIBLE_MS_MAX} ms"
        raise broken(Code.ILLEGAL_INVISIBLE_TIME, "invisible_duration", f"{wait_ms} ms", rule)
    return wait_ms


def changed_invisible_ms(duration: Duration) -> int:
    """For how long a message is to be invisible from now on; 0 makes it visible at once."""
    wait_ms = duration_ms(duration)
    if wait_ms is None or not 0 <= wait_ms <= INVISIBLE_MS_MAX:
        rule = f"0 to {INVISIBLE_MS_MAX} ms"
        raise broken(Code.ILLEGAL_INVISIBLE_TIME, "invisible_duration", f"{wait_ms} ms", rule)
    return wait_ms


def polling_ms(asked: Duration | None, remaining_ms: int | None, client_version: str) -> int:
    """How long a poll waits for a first message.

    asked: None: the client leaves it to the broker.  remaining_ms: until the client gives up; None:
    it does not.
    """
    wait_ms: int | None = POLLING_MS_MAX if asked is None else duration_ms(asked)
    code = Code.ILLEGAL_POLLING_TIME
    if client_version < _POLLING_CODE_SINCE:
        code = Code.BAD_REQUEST
    if wait_ms is None or wait_ms < 0:
        raise broken(code, "long_polling_timeout", f"{wait_ms} ms", "0 ms or more")
    wait_ms = min(wait_ms, POLLING_MS_MAX)
    if remaining_ms is None:
        return wait_ms
    if asked is not None and remaining_ms < min(wait_ms, POLLING_MS_MIN):
        rule = f"less than the time that the call has, {remaining_ms} ms"
        raise broken(code, "long_polling_timeout", f"{wait_ms} ms", rule)
    return max(0, min(wait_ms, remaining_ms - ANSWER_MS))


def queue_offset_of(number: int) -> int:
    """An offset to pull from, or to commit."""
    if number < 0:
        raise broken(Code.ILLEGAL_OFFSET, "offset", number, "0 or more")
    return number


# ---- protobuf's times


def duration_ms(duration: Duration) -> int | None:
    """A duration in milliseconds, rounded up; None if it is none."""
    seconds, nanos = duration.seconds, duration.nanos
    if abs(seconds) > _SECONDS_MAX or abs(nanos) > _NANOS_MAX or seconds * nanos < 0:
        return None
    return seconds * 1_000 - (-nanos // 1_000_000)


def timestamp_ms(timestamp: Timestamp) -> int | None:
    """An instant in milliseconds since 1970, rounded up: never early; None if it is none."""
    seconds, nanos = timestamp.seconds, timestamp.nanos
    if not -62_135_596_800 <= seconds <= _SECONDS_MAX or not 0 <= nanos <= _NANOS_MAX:
        return None
    return seconds * 1_000 - (-nanos // 1_000_000)


def write_timestamp(timestamp: Timestamp, instant_ms: int) -> None:
    """Write an instant; the header of a record may hold any number."""
    timestamp.seconds, ms = divmod(min(max(0, instant_ms), INSTANT_MS_MAX), 1_000)
    timestamp.nanos = ms * 1_000_000


def to_duration(wait_ms: int) -> Duration:
    """Of a duration that is not negative."""
    seconds, ms = divmod(wait_ms, 1_000)
    return Duration(seconds=seconds, nanos=ms * 1_000_000)
