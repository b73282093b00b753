"""Turns a record into a hop of a message's life: Head -> Hop.

The kind of a hop follows from the record's topic, its destination, and the record that it
completes; RocketMQ's own deliveries complete none, but still say that they have waited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rmqlite.broker.finding.letter_reading import INT32_MAX
from rmqlite.broker.finding.matching import number_of, reason_of, redriven_from, unique_key_of
from rmqlite.message import (
    DELIVERY_ATTEMPTS,
    REDRIVEN_BY,
    decode_properties,
    find_property,
    offset_message_id,
    property_marker,
    senders_limit,
    unpack_host,
)
from rmqlite.names import CANCELLED_TOPIC, group_of, is_dlq, is_retry
from rmqlite.property_string import PropertyString
from rmqlite.records.completion import (
    UNDELIVERABLE_TOPIC,
    Completion,
    completed_queue,
    completion_of,
    topic_ahead,
    wait_queue_left,
)
from rmqlite.records.record import Head, destination
from rmqlite.records.wait_queues import WAIT_TOPICS
from rmqlite.requests.letters import Hop, HopKind
from rmqlite.requests.topics import Queue
from rmqlite.store.message_store import MessageStore
from rmqlite.store.waits import wait_of

_REDRIVEN_BY: Final = property_marker(REDRIVEN_BY)
_ATTEMPTS: Final = property_marker(DELIVERY_ATTEMPTS)
_WITH_REASON: Final = (HopKind.FAILED, HopKind.DEAD, HopKind.UNDELIVERABLE)


def hop_of(store: MessageStore, committed: Callable[[Queue], Mapping[str, int]], head: Head) -> Hop:
    """The hop of a record; committed(queue) returns the committed offset of each group."""
    kind = kind_of(head)
    wait = wait_of(store, head)
    host = unpack_host(head.store_host)
    own_id = offset_message_id(host, head.physical_offset)
    job = find_property(head.properties, _REDRIVEN_BY) if kind is HopKind.REDRIVEN else None
    return Hop(
        kind=kind,
        at_ms=head.store_timestamp_ms,
        topic=head.topic,
        queue_id=head.queue_id,
        queue_offset=head.queue_offset,
        physical_offset=head.physical_offset,
        offset_message_id=own_id,
        message_id=unique_key_of(head) or own_id,
        group=_group(head),
        attempt=_attempt(head),
        level=wait.wait_queue if wait else 0,
        due_ms=wait.due_ms if wait else 0,
        is_pending=wait is not None and wait.is_pending,
        reason=reason_of(head) if kind in _WITH_REASON else "",
        job_id=(job or b"").decode("utf-8", "replace"),
        readers=_readers(committed, head),
        max_reconsume_times=senders_limit(decode_properties(head.properties)),
    )


def kind_of(head: Head) -> HopKind:
    """The kind of hop that a record is."""
    if head.topic in WAIT_TOPICS:
        return _scheduled(head)
    if head.topic == CANCELLED_TOPIC:
        return HopKind.CANCELLED
    properties = PropertyString(head.properties)
    is_completing = completed_queue(head, properties) != 0
    if head.topic == UNDELIVERABLE_TOPIC and is_completing:
        return HopKind.UNDELIVERABLE
    if is_dlq(head.topic):
        return HopKind.DEAD
    if is_completing and completion_of(head.topic, properties) is Completion.FIRED:
        return HopKind.FIRED
    is_delivered = is_completing or _rocketmq_has_delivered(head, properties)
    if is_retry(head.topic):
        return HopKind.RETRIED if is_delivered or not _is_back(head) else HopKind.REDRIVEN
    if is_delivered:
        return HopKind.DELIVERED
    return HopKind.REDRIVEN if redriven_from(head.properties) else HopKind.SENT


def _scheduled(head: Head) -> HopKind:
    properties = PropertyString(head.properties)
    completion = completion_of(head.topic, properties)
    # A carried timer stands for the record that it completes, which goes with its log file.
    if completed_queue(head, properties) and completion is Completion.RESCHEDULED:
        return HopKind.RESCHEDULED
    ahead = topic_ahead(properties)
    if (is_retry(ahead) or is_dlq(ahead)) and not _is_back(head):
        # In RocketMQ a dead letter that a consumer sends itself may wait, too.
        return HopKind.FAILED
    return HopKind.REDRIVEN if redriven_from(head.properties) else HopKind.SCHEDULED


def _is_back(head: Head) -> bool:
    """Has a redrive sent this to the group that failed?  Every failure counts at least one."""
    return not head.reconsume_times and bool(redriven_from(head.properties))


def _rocketmq_has_delivered(head: Head, properties: PropertyString) -> bool:
    """Has a record the properties of one that waited in RocketMQ's schedule?"""
    has_waited = wait_queue_left(head.topic, properties) != 0
    return has_waited and destination(properties) == (head.topic, head.queue_id)


def _group(head: Head) -> str:
    """The group of a failure, retry or dead letter, also while the message waits for it."""
    if head.topic in (*WAIT_TOPICS, CANCELLED_TOPIC, UNDELIVERABLE_TOPIC):
        return group_of(topic_ahead(PropertyString(head.properties))) or ""
    return group_of(head.topic) or ""


def _attempt(head: Head) -> int:
    told = number_of(head.properties, _ATTEMPTS) if is_dlq(head.topic) else 0
    return max(0, head.reconsume_times, told if told and told <= INT32_MAX else 0)


def _readers(committed: Callable[[Queue], Mapping[str, int]], head: Head) -> tuple[str, ...]:
    if head.topic in (*WAIT_TOPICS, CANCELLED_TOPIC) or is_dlq(head.topic):
        return ()
    offsets = committed(Queue(head.topic, head.queue_id))
    return tuple(sorted(group for group, at in offsets.items() if at > head.queue_offset))
