"""What cannot be delivered from the schedule becomes a dead letter, with the reason.

It lies in %DLQ%SCHEDULE_CONSUMER with its body, its properties, and where it should have
gone; so no record ever blocks those behind it, and none is lost.
"""

from __future__ import annotations

from typing import Final

from rmqlite.broker.room import Room, without_body
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.config import BrokerConfig
from rmqlite.limits import PROPERTIES_BYTES_MAX
from rmqlite.message import (
    DELAY,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    LAST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    edit_properties,
    encode_properties,
    exact_properties,
    offset_message_id,
    unpack_host,
)
from rmqlite.names import SCHEDULE_TOPIC
from rmqlite.requests.letters import UNREADABLE
from rmqlite.store.commit_log import Walked
from rmqlite.store.completion import UNDELIVERABLE_TOPIC
from rmqlite.store.consume_queue import Entry
from rmqlite.store.record import (
    Head,
    NewRecord,
    body_crc,
    delay_level,
    tags_code,
)
from rmqlite.store.wait_queues import wait_queue_of

_SPARED_FIRST: Final = (
    FAILURE_REASON,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    LAST_FAILURE_TIMESTAMP,
)
"""What is left out, in this order, of a record whose properties have no room for it."""


def why_undeliverable(
    head: Head,
    target: tuple[str, int] | None,
    topics: TopicTable,
    config: BrokerConfig,
    room: Room,
) -> str:
    """Why a scheduled record cannot be delivered; empty if it can.

    target: the topic and queue id that its properties name.
    """
    if target is None or target[0] == SCHEDULE_TOPIC:
        return "its properties do not say where it should go (REAL_TOPIC, REAL_QID)"
    level = wait_queue_of(head.topic, head.queue_id)
    if delay_level(head.properties) != level:
        # After a crash nobody would know from its delivery what that has completed.
        return f"its properties do not say that it waits at level {level} (DELAY)"
    topic = topics.get(target[0])
    if topic is None:
        return f"there is no topic {target[0]} any more"
    if target[1] >= max(topic.read_queues, topic.write_queues):
        return f"topic {target[0]} has no queue {target[1]} any more"
    size = head.body_end - head.body_position
    if size > config.max_message_bytes:
        return f"its body of {size} bytes is larger than maxMessageSize={config.max_message_bytes}"
    return room.why_not_in(head, target[0])


def dead_letter(
    level: int,
    entry: Entry,
    walked: Walked | None,
    reason: str,
    now_ms: int,
    store_host: bytes,
    room: Room,
) -> NewRecord:
    """The record that completes an undeliverable one; walked is None: nobody can read it."""
    completes = entry.physical_offset + entry.size
    origin = offset_message_id(unpack_host(store_host), entry.physical_offset)
    own = _with_level(level, walked)
    pairs = exact_properties(own)
    changes: dict[str, str] = {}
    target = pairs.get(RETRY_TOPIC) or pairs.get(REAL_TOPIC)
    if target:
        changes[DLQ_ORIGIN_TOPIC] = target
    if DLQ_ORIGIN_MESSAGE_ID not in pairs:
        changes[DLQ_ORIGIN_MESSAGE_ID] = pairs.get(ORIGIN_MESSAGE_ID, origin)
    changes[LAST_FAILURE_TIMESTAMP] = str(now_ms)
    if DELIVERY_ATTEMPTS not in pairs:
        changes[DELIVERY_ATTEMPTS] = "0"
    changes[FAILURE_REASON] = reason
    if walked is None:
        return _unreadable(
            _fitted(own, changes, PROPERTIES_BYTES_MAX), completes, now_ms, store_host
        )
    head, data = walked
    own_bytes = min(len(own), PROPERTIES_BYTES_MAX)
    has_body = own_bytes <= room.for_properties(head, UNDELIVERABLE_TOPIC)
    properties_max = room.for_properties(head, UNDELIVERABLE_TOPIC, has_body=has_body)
    encoded = _fitted(own, changes, properties_max)
    record = NewRecord(
        UNDELIVERABLE_TOPIC,
        0,
        encoded,
        data[head.body_position : head.body_end],
        head.body_crc,
        head.flag,
        head.sys_flag,
        head.born_timestamp_ms,
        head.born_host,
        head.store_host,
        head.reconsume_times,
        completes,
        tags_code(encoded),
    )
    return record if has_body else without_body(record)


def _unreadable(properties: bytes, completes: int, now_ms: int, host: bytes) -> NewRecord:
    # Not empty: a Java consumer that reads dead letters would fail at an empty body.
    body = UNREADABLE.encode()
    return NewRecord(
        UNDELIVERABLE_TOPIC,
        0,
        properties,
        body,
        body_crc(body),
        0,
        0,
        now_ms,
        host,
        host,
        0,
        completes,
        0,
    )


def _with_level(level: int, walked: Walked | None) -> bytes:
    """A record's own property string, and the level that it waited at."""
    waited = encode_properties({DELAY: str(level)})
    rest = edit_properties(walked.head.properties, {}, (DELAY,)) if walked else b""
    # In front: it must not be what too long properties are cut off by.
    return b"\x02".join([waited, rest]) if rest else waited


def _fitted(own: bytes, changes: dict[str, str], size_max: int) -> bytes:
    """No more properties than a record can carry: at worst those that it had."""
    encoded = edit_properties(own, changes)
    for name in (*_SPARED_FIRST, DELIVERY_ATTEMPTS):
        if len(encoded) <= size_max:
            break
        changes.pop(name, None)
        encoded = edit_properties(own, changes)
    return encoded[:size_max]
