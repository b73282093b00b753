"""The two makers of new records: from a draft that has come in, and from an existing record.

A draft is a message as it was sent: its properties are a raw property string, whose bytes change
only where they must.  A derived record has the header, body and property string of another one,
apart from the changes that the caller names.

A message that this broker has accepted has room for what names its origin and for the place where
it waits (SENT_PROPERTIES_BYTES_MAX).  If a property string is still longer than a record can carry,
everything else that the broker adds is left out one by one; a reason is first cut to what is left.
The pairs of the message itself go last of all: only a message of RocketMQ or of an older broker can
be so long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rmqlite.kernel.compiled import SPAN
from rmqlite.kernel.records.record import BORN_HOST_V6, STORE_HOST_V6, NewRecord, body_crc
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.words.message import (
    CLAIMED_ORIGIN_MESSAGE_ID,
    DELIVERY_ATTEMPTS,
    DLQ_ORIGIN_MESSAGE_ID,
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    FIRST_FAILURE_TIMESTAMP,
    LAST_FAILURE_TIMESTAMP,
    ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_ID,
    ORIGIN_QUEUE_OFFSET,
    REDRIVEN_BY,
    REDRIVEN_FROM,
    REDRIVEN_MESSAGE_ID,
    REDRIVEN_TIMES,
    RESERVED_PROPERTIES,
)
from rmqlite.kernel.words.property_string import PropertyString

LEFT_BEHIND: Final = "its body did not fit into a log file once more: look at the origin message"
"""The body of a dead letter whose record would be too long with the body of the message."""

SPARED: Final = (
    FAILURE_REASON,
    FAILURE_REASON_ATTEMPT,
    DLQ_ORIGIN_MESSAGE_ID,
    ORIGIN_QUEUE_OFFSET,
    ORIGIN_QUEUE_ID,
    FIRST_FAILURE_TIMESTAMP,
    LAST_FAILURE_TIMESTAMP,
    DELIVERY_ATTEMPTS,
    CLAIMED_ORIGIN_MESSAGE_ID,
    REDRIVEN_TIMES,
    REDRIVEN_BY,
    REDRIVEN_MESSAGE_ID,
    REDRIVEN_FROM,
    ORIGIN_MESSAGE_ID,
)
"""What a failed message does without, in this order."""
_CHANGE_BYTES: Final = 64
"""A reason that is cut leaves so much free: a retry that waits may be rescheduled."""

_PAIR_END: Final = b"\x02"
_HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6
"""Bits of the sys flag for IPv6 hosts; encode() sets them."""


class Draft(NamedTuple):
    """A message that comes in, and the queue that it goes to; -1 lets the broker choose one.

    properties: a property string as it was sent.  born_host: 8 or 20 packed bytes.  spans: a SPAN
    of each message (see kernel/compiled) if it is a batch.  Then body is a buffer with them, and
    properties end those of each message; all else they have in common.  delay: instead of the
    property DELAY the length of a level, "10m", or empty.
    """

    topic: str
    queue_id: int
    properties: bytes
    body: bytes
    born_timestamp_ms: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    spans: bytes = b""
    delay: str = ""

    @property
    def messages(self) -> int:
        """How many messages it is."""
        return len(self.spans) // SPAN.size or 1

    def parts(self, messages: int) -> Iterator[Draft]:
        """The same as batches of so many messages."""
        for begin in range(0, len(self.spans), messages * SPAN.size):
            yield self._replace(spans=self.spans[begin : begin + messages * SPAN.size])

    def singles(self) -> Iterator[Draft]:
        """Each message of a batch as a draft of its own; else this one."""
        if not self.spans:
            yield self
            return
        topic, queue_id, common, buffer, born_ms, born_host, _, sys_flag, times, *_ = self
        for flag, body_at, body_end, own_at, own_end in SPAN.iter_unpack(self.spans):
            own = joined(buffer[own_at:own_end], common)
            body = buffer[body_at:body_end]
            # Not _replace(): it takes three times as long, and runs once per message.
            yield Draft(topic, queue_id, own, body, born_ms, born_host, flag, sys_flag, times)


def joined(own: bytes, ending: bytes) -> bytes:
    """A property string with pairs behind its own."""
    separator = _PAIR_END if own and ending and not own.endswith(_PAIR_END) else b""
    return own + separator + ending


def fresh(
    draft: Draft,
    store_host: bytes,
    topic: str | None = None,
    queue_id: int | None = None,
    properties: PropertyString | None = None,
    *,
    completes: int = 0,
) -> NewRecord:
    """The record of a draft.

    topic, queue_id, properties: those that it is stored with; None means the draft's own.
    """
    own_topic, own_queue_id, own, body, born_timestamp_ms, born_host, flag, sys_flag, times, *_ = (
        draft
    )
    return NewRecord(
        own_topic if topic is None else topic,
        own_queue_id if queue_id is None else queue_id,
        PropertyString(own) if properties is None else properties,
        body,
        body_crc(body),
        flag,
        sys_flag & ~_HOST_BITS,
        born_timestamp_ms,
        born_host,
        store_host,
        times,
        completes,
    )


def derived(
    source: Record,
    topic: str,
    queue_id: int,
    *,
    properties: PropertyString | None = None,
    body: bytes | None = None,
    reconsume_times: int | None = None,
    completes: int = 0,
) -> NewRecord:
    """A record made from another one; None means the value of the other one.

    The body's CRC is copied, too, so that a consumer finds out if the body is damaged.
    """
    head = source.head
    return NewRecord(
        topic,
        queue_id,
        source.properties if properties is None else properties,
        source.body if body is None else body,
        head.body_crc if body is None else body_crc(body),
        head.flag,
        # The flag describes the old body, for example that it is compressed.
        head.sys_flag & ~_HOST_BITS if body is None else 0,
        head.born_timestamp_ms,
        head.born_host,
        head.store_host,
        head.reconsume_times if reconsume_times is None else reconsume_times,
        completes,
    )


class Spared(NamedTuple):
    """How a property string is edited so that it fits."""

    changes: dict[str, str | bytes]
    without: frozenset[str]

    def of(self, properties: PropertyString) -> PropertyString:
        is_same = not self.changes and not self.without
        return properties if is_same else properties.edited(self.changes, self.without)


_AS_IT_IS: Final = Spared({}, frozenset())


def left_after_sparing(
    properties: PropertyString, bytes_max: int, names: Sequence[str] = SPARED
) -> Spared | None:
    """What is left without the first of these properties; None if that is not enough."""
    too_long = len(properties.encoded) - bytes_max
    if too_long <= 0:
        return _AS_IT_IS
    gone: set[str] = set()
    for name in names:
        value = properties.get(name)
        if value is None:
            continue
        if name == FAILURE_REASON:
            kept = value[: max(0, len(value) - too_long - _CHANGE_BYTES)]
            reason = kept.decode("utf-8", "ignore").rstrip()
            if reason:
                return _if_it_fits(Spared({name: reason}, frozenset(gone)), properties, bytes_max)
            # Without its reason, the number of its attempt says nothing.
            gone.add(FAILURE_REASON_ATTEMPT)
        gone.add(name)
        too_long -= len(name) + len(value) + 2
        if too_long <= 0:
            break
    return _if_it_fits(Spared({}, frozenset(gone)), properties, bytes_max)


def _if_it_fits(left: Spared, properties: PropertyString, bytes_max: int) -> Spared | None:
    return left if len(left.of(properties).encoded) <= bytes_max else None


def without_longest(own: PropertyString, too_long: int) -> PropertyString:
    """A property string that is shorter by at least so many bytes, without its longest pairs.

    Those that RocketMQ gives a meaning (id, keys, tags, destination) go after all others.
    """
    parts = own.encoded.split(b"\x02")

    def last_needed(at: int) -> tuple[bool, int]:
        name = parts[at].partition(b"\x01")[0].decode("utf-8", "replace")
        return name in RESERVED_PROPERTIES, -len(parts[at])

    gone = set()
    for at in sorted(range(len(parts)), key=last_needed):
        if too_long <= 0:
            break
        gone.add(at)
        too_long -= len(parts[at]) + 1
    return PropertyString(b"\x02".join([part for at, part in enumerate(parts) if at not in gone]))
