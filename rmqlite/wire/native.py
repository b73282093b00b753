"""The codecs of rmqlite.v1, each for a plain value and the message that carries it.

codec.py makes nearly all; those of messages, which are hot, and those of columns are written here.
Nothing outside of wire/ sees protobuf.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Final

from rmqlite import compiled
from rmqlite.message import Message, StoredMessage
from rmqlite.requests.groups import GroupStatus, MemberInfo
from rmqlite.requests.messages import PullResult, PullStatus, SendRequest, SendResult
from rmqlite.requests.topics import Queue
from rmqlite.wire.codec import Codec, Codecs, read
from rmqlite.wire.pb import rmqlite_pb2 as pb

_SLOTS: Final = tuple([vars(StoredMessage)[field.name] for field in fields(StoredMessage)])
_PULL_STATUSES: Final = {status.value: status for status in PullStatus}

# ---- messages


def message_to_pb(message: Message) -> pb.OutgoingMessage:
    sent = pb.OutgoingMessage(
        topic=message.topic,
        body=message.body,
        tags=message.tags,
        keys=message.keys,
        properties=message.properties,
        delay_level=message.delay_level,
        flag=message.flag,
        message_id=message.message_id,
        deliver_at_ms=message.deliver_at_ms,
        deliver_after_ms=message.deliver_after_ms,
    )
    if message.delay is not None:
        sent.delay = str(message.delay)
    if message.max_reconsume_times is not None:
        sent.max_reconsume_times = message.max_reconsume_times
    return sent


def message_from_pb(message: pb.OutgoingMessage) -> Message:
    properties = message.properties
    delay, after_ms = message.delay, message.deliver_after_ms
    return Message(
        message.topic,
        message.body,
        message.tags,
        tuple(message.keys),
        dict(properties) if properties else {},
        0 if delay else message.delay_level,
        delay or None,
        message.flag,
        message.message_id,
        message.max_reconsume_times if message.HasField("max_reconsume_times") else None,
        message.deliver_at_ms or None,
        f"{after_ms}ms" if after_ms else None,
    )


def stored_to_pb(message: StoredMessage) -> pb.KeptMessage:
    return pb.KeptMessage(
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


def stored_from_pb(message: pb.KeptMessage) -> StoredMessage:
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


def send_bytes(request: SendRequest) -> bytes:
    """A request as bytes; the compiled form takes a fifth of the time."""
    data = None
    if compiled.is_on:
        data = compiled.loops.write_sends(
            request.messages, request.producer_group, request.queue_id, request.born_at_ms
        )
    return send_request.to_pb(request).SerializeToString() if data is None else data


def sent_from_bytes(data: bytes) -> tuple[SendResult, ...]:
    """An answer from bytes; the compiled form takes a quarter of the time.  Raises InvalidValue."""
    found = compiled.loops.read_results(data, SendResult) if compiled.is_on else None
    if found is None:
        results: tuple[SendResult, ...] = read(send_results, data)
        return results
    return found


def pull_from_bytes(data: bytes) -> PullResult:
    """An answer from bytes; the compiled form takes a sixth of the time.  Raises InvalidValue."""
    found = compiled.loops.read_pull(data, StoredMessage, _SLOTS) if compiled.is_on else None
    if found is None or found[0] not in _PULL_STATUSES:
        result: PullResult = read(pull_result, data)
        return result
    return PullResult(_PULL_STATUSES[found[0]], *found[1:])


def send_results_to_pb(results: Sequence[SendResult]) -> pb.SendResponse:
    if not results:
        return pb.SendResponse()
    topics, queue_ids, queue_offsets, message_ids, physical_offsets, deliver_at_ms, hosts = zip(
        *results, strict=True
    )
    return pb.SendResponse(
        topics=topics,
        queue_ids=queue_ids,
        queue_offsets=queue_offsets,
        message_ids=message_ids,
        physical_offsets=physical_offsets,
        deliver_at_ms=deliver_at_ms,
        store_host=hosts[0],
    )


def send_results_from_pb(response: pb.SendResponse) -> tuple[SendResult, ...]:
    columns = (
        response.topics,
        response.queue_ids,
        response.queue_offsets,
        response.message_ids,
        response.physical_offsets,
        response.deliver_at_ms,
        [response.store_host] * len(response.topics),
    )
    return tuple([SendResult._make(row) for row in zip(*columns, strict=True)])


# ---- offsets


def queue_offsets_to_pb(offsets: Mapping[Queue, int]) -> list[pb.QueueOffset]:
    return [
        pb.QueueOffset(topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset)
        for queue, offset in offsets.items()
    ]


def queue_offsets_from_pb(offsets: Iterable[pb.QueueOffset]) -> dict[Queue, int]:
    return {Queue(each.topic, each.queue_id): each.queue_offset for each in offsets}


# ---- codecs

send_results = Codec(pb.SendResponse, send_results_to_pb, send_results_from_pb)

codecs = Codecs(
    by_hand={
        Message: Codec(pb.OutgoingMessage, message_to_pb, message_from_pb),
        StoredMessage: Codec(pb.KeptMessage, stored_to_pb, stored_from_pb),
        tuple[SendResult, ...]: send_results,
        dict[Queue, int]: Codec(pb.QueueOffset, queue_offsets_to_pb, queue_offsets_from_pb),
    },
    names={(GroupStatus, "info"): "group"},
    # Each member may have hundreds of subscriptions.
    at_once={MemberInfo: 8},
)
send_request = codecs.of(SendRequest, pb.SendRequest)
pull_result = codecs.of(PullResult, pb.PullResponse)
