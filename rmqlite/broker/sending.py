"""Checks a send, and makes the records of its messages (reference §8.4, §1.7, §5.3)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from rmqlite.broker.admission import Room, TimerRules, check_sent_properties
from rmqlite.broker.routing import hidden
from rmqlite.config import BrokerConfig
from rmqlite.errors import InvalidValue, MessageTooLarge
from rmqlite.levels import LevelTable
from rmqlite.limits import KEYS_MAX, PROPERTIES_BYTES_MAX, PROPERTIES_MAX
from rmqlite.message import (
    Message,
    encode_properties,
    message_properties,
)
from rmqlite.names import check_sendable
from rmqlite.property_string import PropertyString
from rmqlite.records.drafts import Draft, fresh
from rmqlite.records.record import NewRecord
from rmqlite.records.written import Written
from rmqlite.requests.messages import SendRequest, SendResult

STEP_MESSAGES: Final = 100
"""A call with more messages makes its records in a step of 10 ms and appends them in the next."""


def check_batch(messages: Sequence[Message], config: BrokerConfig, room: Room) -> None:
    """Raises InvalidName, InvalidValue, MessageTooLarge, PermissionMissing."""
    check_messages("messages", len(messages), config.send_messages_max, "maxSendMessages")
    total = keys = properties = 0
    for message in messages:
        keys += len(message.keys)
        properties += len(message.properties)
        size = len(message.body)
        total += size
        room.check_body(size)
    if total > config.send_bytes_max:
        rule = f"bodies of at most {config.send_bytes_max} bytes in one call (maxSendBytes)"
        raise MessageTooLarge("messages", total, rule)
    check_count("keys", keys, KEYS_MAX)
    check_count("properties", properties, PROPERTIES_MAX)
    for topic in {message.topic for message in messages}:
        check_sendable(topic)


def check_messages(field: str, count: int, most: int, key: str) -> None:
    """Raises InvalidValue for none, and MessageTooLarge for more than a call may have."""
    if not 1 <= count <= most:
        error = MessageTooLarge if count else InvalidValue
        raise error(field, count, f"1 to {most} in one call ({key})")


def is_large(count: int) -> bool:
    """Is a call of so many messages stored in two steps?"""
    return count > STEP_MESSAGES


def check_count(field: str, count: int, most: int) -> None:
    """Raises MessageTooLarge for more of a field in all messages of a call."""
    if count > most:
        raise MessageTooLarge(field, f"{count} of them", f"at most {most} in one call")


def new_records(
    request: SendRequest,
    queues: Mapping[str, int],
    table: LevelTable,
    timers: TimerRules,
    *,
    cluster: str,
    now_ms: int,
    born_host: bytes,
    store_host: bytes,
) -> tuple[list[NewRecord], list[tuple[str, int, str]]]:
    """The records to append, and per message its topic, queue id and message id.

    queues: the queue id for every topic.  Raises InvalidValue, MessageTooLarge, DelayUnknown.
    """
    born_at_ms = request.born_at_ms or now_ms
    records = []
    addressed = []
    for message in request.messages:
        topic = message.topic
        queue_id = queues[topic]
        if message.delay is not None:
            # The level is chosen only now: the sender may know an older table.
            message = message.at_level(table.level_lasting(str(message.delay)))
        message_id = message.message_id or secrets.token_hex(16).upper()
        draft = Draft(
            topic,
            queue_id,
            encode_properties(message_properties(message, message_id)),
            message.body,
            born_at_ms,
            born_host,
            message.flag,
        )
        check_sent_properties(draft.properties)
        level = table.clamp(message.delay_level) if message.delay_level > 0 else 0
        due_ms = 0 if level else timers.due_ms(draft.properties, now_ms)
        records.append(record_of(draft, level, due_ms, cluster=cluster, store_host=store_host))
        addressed.append((topic, queue_id, message_id))
    return records, addressed


def send_results(
    addressed: Sequence[tuple[str, int, str]], written: Sequence[Written], store_host: str
) -> tuple[SendResult, ...]:
    """addressed: per message its topic, queue id and message id."""
    return tuple(
        [
            SendResult(
                topic,
                queue_id,
                at.queue_offset,
                message_id,
                at.physical_offset,
                at.due_ms,
                store_host,
            )
            for (topic, queue_id, message_id), at in zip(addressed, written, strict=True)
        ]
    )


def record_of(
    draft: Draft, level: int, due_ms: int = 0, *, cluster: str, store_host: bytes
) -> NewRecord:
    """The record of a draft that waits at a level of the table, or for an instant, or does not.

    Raises MessageTooLarge.
    """
    key, properties = hidden(
        draft.properties,
        draft.topic,
        draft.queue_id,
        level=level,
        due_ms=due_ms,
        cluster=cluster,
    )
    if len(properties.encoded) > PROPERTIES_BYTES_MAX:
        check_property_string(properties)
    return fresh(draft, store_host, *key, properties)


def check_property_string(properties: PropertyString) -> None:
    """Raises MessageTooLarge for a property string that no record can hold."""
    size = len(properties.encoded)
    if size > PROPERTIES_BYTES_MAX:
        rule = f"at most {PROPERTIES_BYTES_MAX} bytes as a property string"
        raise MessageTooLarge("properties", size, rule)
