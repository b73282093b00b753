"""The codecs of rmqlite.v1, each for a plain value and the message that carries it.

codec.py makes nearly all; those of sends, which are hot, of columns and of maps are written here.
Nothing outside of the protocols sees protobuf.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from rmqlite.kernel.compiled import in_c
from rmqlite.kernel.records.record import read_head, to_message
from rmqlite.kernel.requests.groups import MemberInfo
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.protocols.native.bytes.messages import (
    EncodedBatch,
    PulledRecords,
    PullResult,
    SendAnswer,
    SendRequest,
)
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from rmqlite.protocols.shared.codec import Codec, Codecs, read

_SLOTS: Final = tuple([vars(StoredMessage)[field.name] for field in fields(StoredMessage)])

# ---- messages


def send_to_pb(request: SendRequest) -> pb.SendRequest:
    group, queue_id, born_at_ms, batches = request
    sent = pb.SendRequest(producer_group=group, queue_id=queue_id, born_at_ms=born_at_ms)
    for topic, delay, encoded in batches:
        sent.batches.add(topic=topic, delay=delay, messages=encoded)
    return sent


def send_from_pb(request: pb.SendRequest) -> SendRequest:
    return SendRequest(
        request.producer_group,
        request.queue_id,
        request.born_at_ms,
        tuple([EncodedBatch(each.topic, each.delay, each.messages) for each in request.batches]),
    )


def sent_to_pb(answer: SendAnswer) -> pb.SendResponse:
    # Most answers lack what is None then; an empty list would cost as much as a full one.
    return pb.SendResponse(
        queue_ids=answer.queue_ids,
        queue_offsets=answer.queue_offsets,
        physical_offsets=answer.physical_offsets,
        deliver_at_ms=answer.deliver_at_ms or None,
        store_host=answer.store_host,
    )


def sent_from_pb(answer: pb.SendResponse) -> SendAnswer:
    # A slice is a list at once; a tuple would ask for each item.
    return SendAnswer(
        tuple(answer.queue_ids[:]),
        tuple(answer.queue_offsets[:]),
        tuple(answer.physical_offsets[:]),
        tuple(answer.deliver_at_ms[:]),
        answer.store_host,
    )


def stored_to_pb(message: StoredMessage) -> pb.StoredMessage:
    return pb.StoredMessage(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        store_size=message.store_size,
        body=message.body,
        properties=message.properties,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )


def stored_from_pb(message: pb.StoredMessage) -> StoredMessage:
    return StoredMessage(
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.store_size,
        message.body,
        dict(message.properties),
        message.flag,
        message.sys_flag,
        message.born_timestamp_ms,
        message.born_host,
        message.store_timestamp_ms,
        message.store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
    )


def pulled_from_bytes(data: bytes) -> PullResult:
    """An answer from bytes, with messages.  Raises InvalidValue."""
    pulled: PulledRecords = read(_pulled_records, data)
    bounds = (pulled.status, pulled.next_offset, pulled.min_offset, pulled.max_offset)
    return PullResult(*bounds, read_messages(pulled.records, StoredMessage, _SLOTS))


@in_c
def read_messages(
    records: bytes, _kind: type[StoredMessage], _slots: tuple[Any, ...]
) -> tuple[StoredMessage, ...]:
    """The messages of records, one behind the other.

    The arguments behind are for C: the class, and the descriptors of its fields in their order.
    Raises InvalidValue for what is no record.
    """
    messages: list[StoredMessage] = []
    at = 0
    while at < len(records):
        head = read_head(records, at)
        if head is None:
            raise InvalidValue("records", f"{len(records)} bytes", "whole records")
        messages.append(to_message(head, records))
        at += head.size
    return tuple(messages)


# ---- offsets


def queue_offsets_to_pb(offsets: Mapping[Queue, int]) -> list[pb.QueueOffset]:
    return [
        pb.QueueOffset(topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset)
        for queue, offset in offsets.items()
    ]


def queue_offsets_from_pb(offsets: Iterable[pb.QueueOffset]) -> dict[Queue, int]:
    return {Queue(each.topic, each.queue_id): each.queue_offset for each in offsets}


# ---- codecs

codecs = Codecs(
    by_hand={
        # For half of the time that made codecs take: a send has little else.
        SendRequest: Codec(pb.SendRequest, send_to_pb, send_from_pb),
        SendAnswer: Codec(pb.SendResponse, sent_to_pb, sent_from_pb),
        StoredMessage: Codec(pb.StoredMessage, stored_to_pb, stored_from_pb),
        dict[Queue, int]: Codec(pb.QueueOffset, queue_offsets_to_pb, queue_offsets_from_pb),
    },
    # Each member may have hundreds of subscriptions.
    at_once={MemberInfo: 8},
)
_pulled_records: Final = codecs.of(PulledRecords, pb.PullResponse)
