"""A scheduled message that cannot be delivered becomes a dead letter with the reason.

The dead letter lies in %DLQ%SCHEDULE_CONSUMER and has the body, the properties and the
destination of the message.  So no message blocks those behind it, and none is lost.
"""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.admission import Room
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC, UNREADABLE, topic_ahead
from rmqlite.kernel.records.drafts import (
    LEFT_BEHIND,
    Draft,
    derived,
    fresh,
    left_after_sparing,
    without_longest,
)
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.record import Head, NewRecord, delay_level
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import TIMERS, WAIT_TOPICS, timer_due_ms, wait_queue_of
from rmqlite.kernel.retry import FAILURE_PROPERTIES, origin_of
from rmqlite.kernel.tables.topics import TopicTable
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    DELAY,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    LAST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    TIMER_OUT_MS,
    TIMER_PROPERTIES,
    offset_message_id,
    unpack_host,
)
from rmqlite.kernel.words.names import group_of
from rmqlite.kernel.words.property_string import PropertyString

_SPARED: Final = (
    FAILURE_REASON,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    LAST_FAILURE_TIMESTAMP,
    DELIVERY_ATTEMPTS,
)
"""The properties that are left out, in this order, if a record has no room for them."""


def why_undeliverable(
    head: Head,
    properties: PropertyString,
    target: tuple[str, int] | None,
    topics: TopicTable,
    room: Room,
) -> str:
    """Why a scheduled record cannot be delivered; empty if it can.

    properties: the record's own.  target: the topic and queue id that they name.
    """
    if target is None or target[0] in WAIT_TOPICS:
        return "its properties do not say where it should go (REAL_TOPIC, REAL_QID)"
    # Otherwise, after a crash, recovery could not find out which record its delivery completed.
    wait_queue = wait_queue_of(head.topic, head.queue_id)
    if delay_level(properties) != max(0, wait_queue):
        return f"its properties do not say that it waits at level {max(0, wait_queue)} (DELAY)"
    if wait_queue == TIMERS and not timer_due_ms(properties.encoded):
        return "its properties do not say when it is due (TIMER_OUT_MS)"
    body_bytes = head.body_end - head.body_position
    return topics.why_not_to(target, body_bytes) or room.why_not_in(head, target[0])


def dead_letter(
    wait_queue: int,
    entry: Entry,
    waited: Record | None,
    reason: str,
    now_ms: int,
    store_host: bytes,
    room: Room,
) -> NewRecord:
    """The record that completes an undeliverable one; waited: None if that cannot be read."""
    origin = offset_message_id(unpack_host(store_host), entry.physical_offset)
    own = _with_wait(wait_queue, entry, waited)
    changes: dict[str, str | bytes] = {}
    target = (waited and origin_of(waited.head)) or own.get(REAL_TOPIC)
    if target:
        changes[DLQ_ORIGIN_TOPIC] = target
    if own.get(DLQ_ORIGIN_MESSAGE_ID) is None:
        changes[DLQ_ORIGIN_MESSAGE_ID] = own.get(ORIGIN_MESSAGE_ID) or origin
    changes[LAST_FAILURE_TIMESTAMP] = str(now_ms)
    if own.get(DELIVERY_ATTEMPTS) is None:
        changes[DELIVERY_ATTEMPTS] = "0"
    changes[FAILURE_REASON] = reason
    if waited is None:
        properties = _fitted(own, changes, PROPERTIES_BYTES_MAX)
        # Not empty: a Java consumer that reads dead letters would fail at an empty body.
        body = UNREADABLE.encode()
        draft = Draft(UNDELIVERABLE_TOPIC, 0, properties.encoded, body, now_ms, store_host)
        return fresh(draft, store_host, completes=entry.physical_offset + entry.size)
    own_bytes = min(len(own.encoded), PROPERTIES_BYTES_MAX)
    has_body = own_bytes <= room.for_properties(waited.head, UNDELIVERABLE_TOPIC)
    properties_max = room.for_properties(waited.head, UNDELIVERABLE_TOPIC, has_body=has_body)
    return derived(
        waited,
        UNDELIVERABLE_TOPIC,
        0,
        properties=_fitted(own, changes, properties_max),
        body=None if has_body else LEFT_BEHIND.encode(),
        completes=waited.end,
    )


def _with_wait(wait_queue: int, entry: Entry, waited: Record | None) -> PropertyString:
    """The property string of a record, with the level or the instant for which it waited."""
    is_timer = wait_queue == TIMERS
    wait = {TIMER_OUT_MS: str(entry.tags_code)} if is_timer else {DELAY: str(wait_queue)}
    in_front = PropertyString(b"").edited(wait)
    if waited is None:
        return in_front
    # The dead letter gets a reason of its own, not one of an earlier attempt.
    gone = frozenset({DELAY, FAILURE_REASON_ATTEMPT}) | TIMER_PROPERTIES
    if group_of(topic_ahead(waited.properties)) is None:
        # It waits for no retry: its failures are those of another message.
        gone |= FAILURE_PROPERTIES
    rest = waited.properties.edited({}, gone)
    encoded = b"\x02".join([each.encoded for each in (in_front, rest) if each.encoded])
    return PropertyString(encoded)


def _fitted(own: PropertyString, changes: dict[str, str | bytes], size_max: int) -> PropertyString:
    """The string with as many of the changes as fit; at worst without its longest pairs."""
    left = left_after_sparing(own.edited(changes), size_max, _SPARED)
    if left is not None:
        return left.of(own.edited(changes))
    few = {name: value for name, value in changes.items() if name not in _SPARED}
    too_long = len(own.edited(few).encoded) - size_max
    return without_longest(own, too_long).edited(few)
