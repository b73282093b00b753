"""A codec for each message of rmqlite.v1 and the plain value that it carries.

Codecs on the hot path, and those that codec.py cannot make by field names, are written by hand.
Nothing outside of wire/ sees protobuf.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Final

from rmqlite import compiled
from rmqlite.message import Message, StoredMessage
from rmqlite.requests.finding import FoundMessage, FoundMessages, MessageState
from rmqlite.requests.groups import (
    Assignment,
    GroupInfo,
    GroupStatus,
    HeartbeatRequest,
    MemberInfo,
    OffsetsCommit,
    OffsetsQuery,
    QueueProgress,
    Subscription,
)
from rmqlite.requests.messages import PullResult, PullStatus, SendRequest, SendResult
from rmqlite.requests.status import BrokerStatus, LevelStatus
from rmqlite.requests.topics import Queue, QueueRange, Route, TimeQuery, TopicInfo
from rmqlite.wire.codec import Codec, flat, in_parts, nested, read
from rmqlite.wire.pb import rmqlite_pb2 as pb

MEMBERS_AT_ONCE: Final = 8
"""How many members of a group are written in one step: each may have hundreds of subscriptions."""

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


def send_to_pb(request: SendRequest) -> pb.SendRequest:
    return pb.SendRequest(
        producer_group=request.producer_group,
        messages=[message_to_pb(message) for message in request.messages],
        queue_id=request.queue_id,
        born_at_ms=request.born_at_ms,
    )


def send_bytes(request: SendRequest) -> bytes:
    """A request as bytes; the compiled form takes a fifth of the time."""
    data = None
    if compiled.is_on:
        data = compiled.loops.write_sends(
            request.messages, request.producer_group, request.queue_id, request.born_at_ms
        )
    return send_to_pb(request).SerializeToString() if data is None else data


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


def send_from_pb(request: pb.SendRequest) -> SendRequest:
    return SendRequest(
        tuple([message_from_pb(message) for message in request.messages]),
        request.producer_group,
        request.queue_id,
        request.born_at_ms,
    )


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


def commit_to_pb(request: OffsetsCommit) -> pb.CommitOffsetsRequest:
    return pb.CommitOffsetsRequest(
        group=request.group, offsets=queue_offsets_to_pb(request.offsets)
    )


def commit_from_pb(request: pb.CommitOffsetsRequest) -> OffsetsCommit:
    return OffsetsCommit(request.group, queue_offsets_from_pb(request.offsets))


# ---- groups


def group_status_to_pb(value: GroupStatus) -> pb.DescribeGroupResponse:
    return pb.DescribeGroupResponse(
        group=group.to_pb(value.info),
        members=[member.to_pb(each) for each in value.members],
        progress=[progress.to_pb(each) for each in value.progress],
    )


def group_status_from_pb(value: pb.DescribeGroupResponse) -> GroupStatus:
    return GroupStatus(
        group.from_pb(value.group),
        tuple(member.from_pb(each) for each in value.members),
        tuple(progress.from_pb(each) for each in value.progress),
    )


# ---- codecs that codec.py makes by field names

send_results = Codec(pb.SendResponse, send_results_to_pb, send_results_from_pb)
stored = Codec(pb.KeptMessage, stored_to_pb, stored_from_pb)
found = nested(FoundMessage, pb.FoundMessage, message=stored, state=MessageState)
all_found = nested(FoundMessages, pb.QueryMessagesResponse, messages=found)
queue = flat(Queue, pb.Queue)
offsets_query = nested(OffsetsQuery, pb.QueryOffsetsRequest, queues=queue)
queue_range = nested(QueueRange, pb.QueueRange, queue=Queue)
time_query = nested(TimeQuery, pb.SearchOffsetRequest, queue=Queue)
subscription = flat(Subscription, pb.Subscription)
heartbeat = nested(HeartbeatRequest, pb.HeartbeatRequest, subscriptions=subscription)
assignment = in_parts(nested(Assignment, pb.HeartbeatResponse, queues=queue), queues=queue)
member = nested(MemberInfo, pb.Member, subscriptions=subscription)
group = flat(GroupInfo, pb.Group)
progress = nested(QueueProgress, pb.QueueProgress, queue=Queue)
group_status = in_parts(
    Codec(pb.DescribeGroupResponse, group_status_to_pb, group_status_from_pb),
    MEMBERS_AT_ONCE,
    members=member,
    progress=progress,
)
pull_result = in_parts(
    nested(PullResult, pb.PullResponse, status=PullStatus, messages=stored), messages=stored
)
topic = flat(TopicInfo, pb.Topic)
route = nested(Route, pb.GetRouteResponse, topic=topic)
level_status = flat(LevelStatus, pb.LevelStatus)
status = nested(BrokerStatus, pb.GetBrokerStatusResponse, levels=level_status)
