"""The records of a transaction, as RocketMQ writes them (reference §10.1).

    topic                        record
    RMQ_SYS_TRANS_HALF_TOPIC     a half message; its properties name its destination
    RMQ_SYS_TRANS_OP_HALF_TOPIC  the end of a half message; the body is that one's queue offset
    the destination              the committed message: sys flag 8, and its prepared transaction
                                 offset is where the half message begins
    SCHEDULE_TOPIC_XXXX          the same, if the message has a delay level
    rmq_sys_wheel_timer          the same, if it waits for an instant
    TRANS_CHECK_MAX_TIME_TOPIC   a half message that is given up

All are made from the bytes of the half message; its properties change only where they must.
"""

from __future__ import annotations

import secrets
from typing import Final

from rmqlite.broker.admission import asked_ms, without_timer
from rmqlite.broker.routing import hidden, route_half, routed
from rmqlite.broker.sending import check_property_string
from rmqlite.errors import InvalidValue
from rmqlite.levels import LevelTable
from rmqlite.message import (
    PGROUP,
    RESCHEDULED_FROM,
    TRAN_MSG,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
    offset_message_id,
    unpack_host,
)
from rmqlite.names import HALF_ENDS_TOPIC, HALF_TOPIC, UNDECIDED_TOPIC, is_retry
from rmqlite.property_string import PropertyString
from rmqlite.records.drafts import Draft, derived, fresh
from rmqlite.records.encoding import encode
from rmqlite.records.record import (
    COMMITTED,
    TRANSACTION_TYPE,
    Head,
    NewRecord,
    delay_level,
)
from rmqlite.records.stored import Record
from rmqlite.records.written import Written
from rmqlite.requests.transactions import TransactionQuestion

_IS_HALF: Final = f"{TRAN_MSG}\x01".encode()
_END_PROPERTIES: Final = b"WAIT\x01true\x02TAGS\x01d"
Destination = tuple[str, int]
"""Topic and queue id."""


def is_half(draft: Draft) -> bool:
    """Does the message begin a transaction?

    One that its consumer sends to a retry topic may still have the property.
    """
    if _IS_HALF not in draft.properties or is_retry(draft.topic):
        return False
    return (PropertyString(draft.properties).get(TRAN_MSG) or b"").lower() == b"true"


def half_record(draft: Draft, *, cluster: str, store_host: bytes) -> NewRecord:
    """The half message of a draft whose queue is chosen.  Raises InvalidValue, MessageTooLarge."""
    own = PropertyString(draft.properties)
    if own.get(PGROUP) is None:
        raise InvalidValue(PGROUP, "", "the producer group that the broker asks for the outcome")
    if own.get(UNIQ_KEY) is None:
        own = own.edited({UNIQ_KEY: secrets.token_hex(16).upper()})
    place = route_half(draft.topic, draft.queue_id, cluster)
    properties = routed(own.encoded, place)
    check_property_string(properties)
    draft = draft._replace(sys_flag=draft.sys_flag & ~TRANSACTION_TYPE)
    return fresh(draft, store_host, place.topic, place.queue_id, properties)


def committed_record(half: Record, to: Destination, table: LevelTable, now_ms: int) -> NewRecord:
    """The message of a committed half; a delay begins now.

    Raises MessageTooLarge.
    """
    # With this property it would seem to complete the scheduled record that ends where the half
    # message begins.
    properties = half.properties.edited({}, frozenset({RESCHEDULED_FROM}))
    level = delay_level(properties)
    if level:
        properties = PropertyString(without_timer(properties.encoded))
    due_ms = 0 if level else asked_ms(properties, now_ms)
    key = to
    if level or due_ms:
        level = table.clamp(level) if level else 0
        key, properties = hidden(properties.encoded, *to, level=level, due_ms=due_ms)
        check_property_string(properties)
    record = derived(half, *key, properties=properties, completes=half.head.physical_offset)
    return record._replace(sys_flag=record.sys_flag & ~TRANSACTION_TYPE | COMMITTED)


def end_record(queue_offset: int, now_ms: int, store_host: bytes) -> NewRecord:
    """The record that ends the half message with this queue offset."""
    body = str(queue_offset).encode()
    draft = Draft(HALF_ENDS_TOPIC, 0, _END_PROPERTIES, body, now_ms, store_host)
    return fresh(draft, store_host)


def ended_by(body: bytes) -> int:
    """The queue offset of the half message that a record's body ends; -1 if it names none."""
    is_number = body.isdigit() and len(body) < 19
    return int(body) if is_number else -1


def copy_record(half: Record, times: int) -> NewRecord:
    """The same half message, of which a producer is asked so many times now."""
    changes = {TRANSACTION_CHECK_TIMES: str(times)}
    return derived(half, HALF_TOPIC, 0, properties=half.properties.edited(changes))


def undecided_record(half: Record) -> NewRecord:
    """A half message that is given up."""
    return derived(half, UNDECIDED_TOPIC, 0)


def times_asked(head: Head) -> int:
    """How many times a producer was asked of a half message."""
    return PropertyString(head.properties).number(TRANSACTION_CHECK_TIMES) or 0


def question(half: Record, copy: NewRecord, at: Written, to: Destination) -> TransactionQuestion:
    """The question of a half message whose copy was stored there; its answer names the copy."""
    shown = encode(
        copy._replace(topic=to[0], queue_id=to[1]),
        queue_offset=at.queue_offset,
        physical_offset=at.physical_offset,
        store_timestamp_ms=half.head.store_timestamp_ms,
    )
    return TransactionQuestion(
        half.properties.text(PGROUP),
        at.queue_offset,
        at.physical_offset,
        half.properties.text(UNIQ_KEY),
        offset_message_id(unpack_host(copy.store_host), at.physical_offset),
        shown,
    )
