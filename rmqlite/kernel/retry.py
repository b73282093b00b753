"""A failed message becomes a delayed retry or a dead letter.

The decision table is RocketMQ's (reference §7.1); the new record is appended like any other.  A
dead letter is written at once on every path.  The properties of the record explain the failure
to a person: where the message came from, when it first and last failed, and why.  A reason stays
until a failure gives another one: RocketMQ's own clients cannot give any.

A group's chain begins with the first record that is not in its own retry or dead-letter topic.
Whatever that one tells of failures is forgotten: somebody has forwarded it, another group has
failed it, or its producer has made it up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rmqlite.kernel.admission import Room
from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.records.drafts import (
    LEFT_BEHIND,
    SPARED,
    derived,
    left_after_sparing,
    without_longest,
)
from rmqlite.kernel.records.record import Head, NewRecord, one_more
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS, QueueKey
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.routing import LEVEL_MAX, QUEUE_ID_MAX, check_property_string, hidden, route
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX
from rmqlite.kernel.words.message import (
    CLAIMED_ORIGIN_MESSAGE_ID,
    CLAIMED_ORIGIN_TOPIC,
    DELAY,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    FIRED,
    FIRST_FAILURE_TIMESTAMP,
    LAST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_ID,
    ORIGIN_QUEUE_OFFSET,
    REAL_TOPIC,
    RESCHEDULED_FROM,
    RETRY_TOPIC,
    TIMER_PROPERTIES,
    WAIT,
    decode_properties,
    find_property,
    offset_message_id,
    property_marker,
    senders_limit,
    unpack_host,
)
from rmqlite.kernel.words.names import dlq_topic, group_of, is_dlq, is_retry, retry_topic
from rmqlite.kernel.words.property_string import PropertyString

_DLQ_ORIGIN_TOPIC: Final = property_marker(DLQ_ORIGIN_TOPIC)
_RETRY_TOPIC: Final = property_marker(RETRY_TOPIC)
_CLAIMED_TOPIC: Final = property_marker(CLAIMED_ORIGIN_TOPIC)
_REAL_TOPIC: Final = property_marker(REAL_TOPIC)

REASON_BYTES_MAX: Final = 1024
ADDED_BYTES_MAX: Final = 4096
"""The most bytes that a failure adds, apart from copies of the message's own properties."""
FAILURE_PROPERTIES: Final = frozenset(
    {RETRY_TOPIC, ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, ORIGIN_QUEUE_ID}
    | {ORIGIN_QUEUE_OFFSET, FIRST_FAILURE_TIMESTAMP, LAST_FAILURE_TIMESTAMP, FAILURE_REASON}
    | {FAILURE_REASON_ATTEMPT, DELIVERY_ATTEMPTS, CLAIMED_ORIGIN_TOPIC, CLAIMED_ORIGIN_MESSAGE_ID}
)
"""What a retry chain tells of its message.  Anybody can send them, and who forwards a message does:
they count in a group's own retry and dead-letter topic, and nowhere else."""
_OF_THE_LAST_DELAY: Final = frozenset({RESCHEDULED_FROM, FIRED}) | TIMER_PROPERTIES
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but tab and line feed: some end a property, others drive a terminal."""
_SPARED_LAST: Final = (WAIT, DELAY)
"""What a dead letter does without, too; its origin topic it always has."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The decision on a failed message: a retry or, in a dead-letter topic, a dead letter.

    due_ms: instead of a delay level the instant of the retry; 0 means at once.  changes, without:
    the properties that its property string gets and loses.  own: a shorter property string of the
    message itself; None means the one that it has.
    """

    topic: str
    delay_level: int
    reconsume_times: int
    changes: dict[str, str | bytes]
    without: frozenset[str]
    has_body: bool = True
    """False if the record has no room for the body."""
    own: PropertyString | None = None
    due_ms: int | None = None

    @property
    def is_dead(self) -> bool:
        return is_dlq(self.topic)


def after_failure(
    failed: Record,
    request: SendBackRequest,
    group: GroupInfo,
    retry_level: int,
    now_ms: int,
    room: Room,
    *,
    due_ms: int | None = None,
    failed_in_place: int = 0,
) -> Failure:
    """Decide between retry and dead letter: rows 7 to 11 of the table.

    retry_level: the level of the group's policy, which the consumer's own level overrides.  The
    limit of retries is the sender's; if there is none, the consumer's, or else the group's.
    due_ms: see Failure.  failed_in_place: how often it failed since, and no record says so.
    """
    head, own = failed.head, failed.properties
    origin_topic, before = head.topic, times_failed(head, group.group) + failed_in_place
    times = one_more(before)
    if is_in_chain(head.topic, group.group):
        origin_topic = origin_of(head) or head.topic
    else:
        own = own.edited({}, FAILURE_PROPERTIES)
    senders = senders_limit(decode_properties(own.encoded))
    limits = (senders, request.max_reconsume_times, group.max_reconsume_times)
    most = next(limit for limit in limits if limit is not None)
    is_dead = before >= most or request.delay_level < 0
    origin = place_properties(head) | {FIRST_FAILURE_TIMESTAMP: str(now_ms)}
    changes: dict[str, str | bytes] = {
        **{name: value for name, value in origin.items() if own.get(name) is None},
        LAST_FAILURE_TIMESTAMP: str(now_ms),
        DELIVERY_ATTEMPTS: str(times),
        WAIT: "false",
    }
    about_reason, without = reason_properties(printable_reason(request.reason), own)
    changes |= about_reason
    if is_dead:
        changes[DELAY] = "0"
        changes[DLQ_ORIGIN_TOPIC] = origin_topic
        if own.text(RETRY_TOPIC) != origin_topic:
            changes[RETRY_TOPIC] = origin_topic
        changes[DLQ_ORIGIN_MESSAGE_ID] = own.get(ORIGIN_MESSAGE_ID) or origin[ORIGIN_MESSAGE_ID]
        topic, level, due_ms = dlq_topic(group.group), 0, None
    else:
        level = request.delay_level or retry_level if due_ms is None else 0
        topic = retry_topic(group.group)
    without |= _OF_THE_LAST_DELAY
    if due_ms is not None:
        without |= {DELAY}
    if own is not failed.properties:
        without |= FAILURE_PROPERTIES - changes.keys()
    failure = Failure(topic, level, times, changes, without, due_ms=due_ms)
    return _fitted(failure, failed, group, room, origin_topic)


def is_in_chain(topic: str, group: str) -> bool:
    """Do the records of a topic belong to this group's own retry chain?

    What others send there is rewritten before it is stored (sends/failed_drafts.py).
    """
    return topic in (retry_topic(group), dlq_topic(group))


def times_failed(head: Head, group: str) -> int:
    """How often a group has failed a record before; a sender may begin above 0, as in RocketMQ.

    What another group has failed does not count.
    """
    return head.reconsume_times if group_of(head.topic) in (None, group) else 0


def place_properties(head: Head) -> dict[str, str]:
    """The properties that name a record as the first one that failed."""
    return {
        RETRY_TOPIC: head.topic,
        ORIGIN_MESSAGE_ID: offset_message_id(unpack_host(head.store_host), head.physical_offset),
        ORIGIN_QUEUE_ID: str(head.queue_id),
        ORIGIN_QUEUE_OFFSET: str(head.queue_offset),
    }


def reason_properties(
    given: str, own: PropertyString
) -> tuple[dict[str, str | bytes], frozenset[str]]:
    """The properties to write and to remove: the given reason, or the one of an earlier attempt."""
    if given:
        return {FAILURE_REASON: given}, frozenset({FAILURE_REASON_ATTEMPT})
    attempt = own.get(FAILURE_REASON_ATTEMPT) or own.get(DELIVERY_ATTEMPTS)
    if own.get(FAILURE_REASON) is None or not attempt:
        return {}, frozenset({FAILURE_REASON, FAILURE_REASON_ATTEMPT})
    return {FAILURE_REASON_ATTEMPT: attempt}, frozenset()


def failed_record(failed: Record, failure: Failure, queue_id: int, table: LevelTable) -> NewRecord:
    """The record to append; every byte that the failure does not change stays."""
    level = table.clamp(failure.delay_level) if failure.delay_level else 0
    key, properties = _placed(failure, failure.own or failed.properties, queue_id, level)
    check_property_string(properties)
    return derived(
        failed,
        *key,
        properties=properties,
        body=None if failure.has_body else LEFT_BEHIND.encode(),
        reconsume_times=failure.reconsume_times,
    )


def _placed(
    failure: Failure, own: PropertyString, queue_id: int, level: int
) -> tuple[QueueKey, PropertyString]:
    """Where the failure is stored, and its property string there; own: of the failed record."""
    if failure.due_ms:
        changed = own.edited(failure.changes, failure.without).encoded
        return hidden(changed, failure.topic, queue_id, due_ms=failure.due_ms)
    place = route(failure.topic, queue_id, level)
    properties = own.edited({**place.properties, **failure.changes}, failure.without)
    return (place.topic, place.queue_id), properties


def _fitted(
    failure: Failure, failed: Record, group: GroupInfo, room: Room, origin_topic: str
) -> Failure:
    """The failure with no more properties than a record can carry."""
    head, own = failed.head, failed.properties
    size_max = room.for_properties(head, failure.topic)
    # Nearly all have plenty of room: at most two values are copied, and the rest is short.
    if 3 * len(own.encoded) + ADDED_BYTES_MAX <= size_max:
        return failure
    fitted = _spared(failure, own, size_max, SPARED)
    if fitted is not None:
        return fitted
    # No retry fits.  As a dead letter that names its origin topic the message is not lost.
    topic = dlq_topic(group.group)
    changes = {**failure.changes, DELAY: "0", DLQ_ORIGIN_TOPIC: origin_topic}
    changes.pop(RETRY_TOPIC, None)
    without = failure.without - {DLQ_ORIGIN_TOPIC} | {RETRY_TOPIC}
    dead = replace(
        failure, topic=topic, delay_level=0, due_ms=None, changes=changes, without=without
    )
    size_max = room.for_properties(head, topic)
    fitted = _spared(dead, own, size_max, SPARED + _SPARED_LAST)
    if fitted is not None:
        return fitted
    if size_max < PROPERTIES_BYTES_MAX:
        # Leave the body behind; the origin properties name the message that has it.
        dead.changes[FAILURE_REASON] = LEFT_BEHIND
        dead.changes.pop(FAILURE_REASON_ATTEMPT, None)
        without |= {FAILURE_REASON_ATTEMPT}
        dead = replace(dead, without=without, has_body=False)
        size_max = room.for_properties(head, topic, has_body=False)
        fitted = _spared(dead, own, size_max, SPARED + _SPARED_LAST)
    return fitted or _shortened(dead, own, size_max)


def _spared(
    failure: Failure, own: PropertyString, size_max: int, names: Sequence[str]
) -> Failure | None:
    """The failure without properties that do not fit; None if that is not enough."""
    _, properties = _placed(failure, own, QUEUE_ID_MAX, LEVEL_MAX if failure.delay_level else 0)
    left = left_after_sparing(properties, size_max, names)
    if left is None:
        return None
    kept = {name: value for name, value in failure.changes.items() if name not in left.without}
    changes = kept | left.changes
    return replace(failure, changes=changes, without=failure.without | left.without)


def _shortened(dead: Failure, own: PropertyString, size_max: int) -> Failure:
    """The dead letter without the longest properties of the message itself."""
    too_long = len(own.edited(dead.changes, dead.without).encoded) - size_max
    return replace(dead, own=without_longest(own, too_long))


def printable_reason(reason: str) -> str:
    """At most 1 KiB of text that a property may hold."""
    cleaned = _CONTROL.sub(" ", reason).strip().encode("utf-8", "replace")
    return cleaned[:REASON_BYTES_MAX].decode("utf-8", "ignore")


def origin_of(head: Head) -> str:
    """The topic that a message was sent to first; empty if its record does not name it.

    RocketMQ 4 names it in RETRY_TOPIC, for a dead letter, too.  A message that the schedule
    could not deliver never failed in a consumer, and names only its destination.  A retry that
    came from nobody knows where names its own topic in DLQ_ORIGIN_TOPIC (sends/failed_drafts.py).
    """
    topic, properties = head.topic, head.properties
    dead = find_property(properties, _DLQ_ORIGIN_TOPIC) if is_dlq(topic) else None
    if dead:
        return dead.decode("utf-8", "replace")
    if topic in (*WAIT_TOPICS, UNDELIVERABLE_TOPIC):
        topic = (find_property(properties, _REAL_TOPIC) or b"").decode("utf-8", "replace")
    if not is_retry(topic) and not is_dlq(topic):
        return topic
    if find_property(properties, _DLQ_ORIGIN_TOPIC) == topic.encode():
        return topic
    return (find_property(properties, _RETRY_TOPIC) or b"").decode("utf-8", "replace")


def claimed_of(head: Head) -> str:
    """The topic that a client says a failed message was sent to first; empty without such a claim.

    Nothing in this broker's log proves it: the message may be another broker's of a cluster, or
    made up.  So it is shown, and its group gets it again, but it is never written to that topic.
    """
    claimed = find_property(head.properties, _CLAIMED_TOPIC)
    if not claimed:
        return ""
    origin = origin_of(head)
    # Elsewhere anybody can send the property.
    return claimed.decode("utf-8", "replace") if is_retry(origin) or is_dlq(origin) else ""
