"""A failed message becomes a delayed retry or a dead letter.

The decision table is RocketMQ's (reference §7.1); the end is the ordinary append.  A dead
letter is written at once on every path.  What a person needs to understand a failure stays
on the record: where the message came from, when it first and last failed, and why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rmqlite.broker.sending import stored_as
from rmqlite.levels import LevelTable
from rmqlite.message import (
    DELAY,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FIRED,
    FIRST_FAILURE_TIMESTAMP,
    LAST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_ID,
    ORIGIN_QUEUE_OFFSET,
    RESCHEDULED_FROM,
    RETRY_TOPIC,
    WAIT,
    StoredMessage,
    encode_properties,
    pack_host,
)
from rmqlite.names import dlq_topic, retry_topic
from rmqlite.requests import GroupInfo, SendBackRequest
from rmqlite.store.record import (
    BORN_HOST_V6,
    PROPERTIES_BYTES_MAX,
    STORE_HOST_V6,
    NewRecord,
    body_crc,
    tags_hash,
)

REASON_BYTES_MAX: Final = 1024
ROUTING_BYTES: Final = 2 * 127 + 64
"""Room that routing needs in a property string for DELAY, REAL_TOPIC, REAL_QID and WAIT."""
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but tab and line feed: some end a property, others drive a terminal."""
_SPARED_FIRST: Final = (
    FAILURE_REASON,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    ORIGIN_QUEUE_OFFSET,
    ORIGIN_QUEUE_ID,
    FIRST_FAILURE_TIMESTAMP,
    LAST_FAILURE_TIMESTAMP,
    DELIVERY_ATTEMPTS,
)
"""What is left out, in this order, of a record whose properties have no room for it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What becomes of a failed message; delay_level 0 is a dead letter."""

    topic: str
    delay_level: int
    reconsume_times: int
    properties: dict[str, str]


def after_failure(
    message: StoredMessage,
    request: SendBackRequest,
    group: GroupInfo,
    retry_level: int,
    now_ms: int,
) -> Failure:
    """Decide; rows 7 to 11 of the table.

    retry_level: what the group's policy says; the consumer's own level goes before it.  Of
    the limits the sender's goes before the consumer's, and that before the group's.
    """
    limits = (message.max_reconsume_times, request.max_reconsume_times, group.max_reconsume_times)
    most = next(limit for limit in limits if limit is not None)
    is_dead = message.reconsume_times >= most or request.delay_level < 0
    properties = dict(message.properties)
    properties.setdefault(RETRY_TOPIC, message.topic)
    properties.setdefault(ORIGIN_MESSAGE_ID, message.offset_message_id)
    properties.setdefault(ORIGIN_QUEUE_ID, str(message.queue_id))
    properties.setdefault(ORIGIN_QUEUE_OFFSET, str(message.queue_offset))
    properties.setdefault(FIRST_FAILURE_TIMESTAMP, str(now_ms))
    properties[LAST_FAILURE_TIMESTAMP] = str(now_ms)
    properties[DELIVERY_ATTEMPTS] = str(message.reconsume_times + 1)
    properties[WAIT] = "false"
    for gone in (FAILURE_REASON, RESCHEDULED_FROM, FIRED):
        # Said of the last delay; the next one has its own story.
        properties.pop(gone, None)
    reason = _printable(request.reason)
    if reason:
        properties[FAILURE_REASON] = reason
    if is_dead:
        properties[DELAY] = "0"
        properties[DLQ_ORIGIN_TOPIC] = properties[RETRY_TOPIC]
        properties[DLQ_ORIGIN_MESSAGE_ID] = properties[ORIGIN_MESSAGE_ID]
        topic, level = dlq_topic(group.group), 0
    else:
        level = request.delay_level or retry_level
        topic = retry_topic(group.group)
    return _fitted(Failure(topic, level, message.reconsume_times + 1, properties), message, group)


def failed_record(
    message: StoredMessage, failure: Failure, queue_id: int, table: LevelTable
) -> NewRecord:
    """The record to append: body, flag, birth and store host stay as they were."""
    return NewRecord(
        *stored_as(failure.topic, queue_id, failure.delay_level, failure.properties, table),
        message.body,
        body_crc(message.body),
        message.flag,
        message.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6),
        message.born_timestamp_ms,
        pack_host(message.born_host),
        pack_host(message.store_host),
        failure.reconsume_times,
        0,
        tags_hash(message.tags) if message.tags else 0,
    )


def _fitted(failure: Failure, message: StoredMessage, group: GroupInfo) -> Failure:
    """The failure with no more properties than a record can carry."""
    room = PROPERTIES_BYTES_MAX - (ROUTING_BYTES if failure.delay_level else 0)
    for name in _SPARED_FIRST:
        if len(encode_properties(failure.properties)) <= room:
            return failure
        failure.properties.pop(name, None)
    if len(encode_properties(failure.properties)) <= room:
        return failure
    # Not even the way back fits.  As a dead letter with its own properties it is not lost.
    return Failure(dlq_topic(group.group), 0, failure.reconsume_times, dict(message.properties))


def _printable(reason: str) -> str:
    """At most 1 KiB of text that a property may hold."""
    cleaned = _CONTROL.sub(" ", reason).strip().encode("utf-8", "replace")
    return cleaned[:REASON_BYTES_MAX].decode("utf-8", "ignore")
