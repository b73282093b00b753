"""The two makers of new records: from a draft that has come in, and from an existing record.

A draft is a message as it was sent: its properties are a raw property string, whose bytes change
only where they must.  A derived record has the header, body and property string of another one,
apart from the changes that the caller names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqlite.compiled import SPAN
from rmqlite.property_string import PropertyString
from rmqlite.records.record import BORN_HOST_V6, STORE_HOST_V6, NewRecord, body_crc
from rmqlite.records.stored import Record

_PAIR_END: Final = b"\x02"
_HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6
"""Bits of the sys flag for IPv6 hosts; encode() sets them."""


class Draft(NamedTuple):
    """A message that comes in, and the queue that it goes to.

    properties: a property string as it was sent.  born_host: 8 or 20 packed bytes.
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


@dataclass(frozen=True, slots=True)
class DraftBatch:
    """Messages of one call in one buffer; only flag, body and properties of them differ.

    shared: what they have in common; its body is the buffer, and its properties end those of each
    message.  spans: a SPAN of each, see rmqlite.compiled.
    """

    shared: Draft
    spans: bytes

    def __len__(self) -> int:
        return len(self.spans) // SPAN.size

    def parts(self, messages: int) -> Iterator[DraftBatch]:
        """The same in batches of so many messages."""
        for begin in range(0, len(self.spans), messages * SPAN.size):
            yield DraftBatch(self.shared, self.spans[begin : begin + messages * SPAN.size])

    def __iter__(self) -> Iterator[Draft]:
        topic, queue_id, common, buffer, born_ms, born_host, _, sys_flag, times = self.shared
        for flag, body_at, body_end, own_at, own_end in SPAN.iter_unpack(self.spans):
            own = buffer[own_at:own_end]
            if common:
                between = b"" if not own or own.endswith(_PAIR_END) else _PAIR_END
                own = own + between + common
            body = buffer[body_at:body_end]
            # Not _replace(): it takes three times as long, and runs once per message.
            yield Draft(topic, queue_id, own, body, born_ms, born_host, flag, sys_flag, times)


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
    own_topic, own_queue_id, own, body, born_timestamp_ms, born_host, flag, sys_flag, times = draft
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
