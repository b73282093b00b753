"""The messages of rmqlite.v1 and the plain values they carry: one pair of functions each.

Those on the hot path, and those that codec.py cannot make by field name, are written out.
Nothing outside wire/ sees protobuf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from rmqlite import requests
from rmqlite.message import Message, StoredMessage
from rmqlite.wire.codec import flat
from rmqlite.wire.pb import rmqlite_pb2 as pb

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
    )
    if message.delay is not None:
        sent.delay = message.delay
    if message.max_reconsume_times is not None:
        sent.max_reconsume_times = message.max_reconsume_times
    return sent


def message_from_pb(message: pb.OutgoingMessage) -> Message:
    properties = message.properties
    delay = message.delay
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


def send_to_pb(request: requests.SendRequest) -> pb.SendRequest:
    return pb.SendRequest(
        producer_group=request.producer_group,
        messages=[message_to_pb(message) for message in request.messages],
        queue_id=request.queue_id,
        born_at_ms=request.born_at_ms,
    )


def send_from_pb(request: pb.SendRequest) -> requests.SendRequest:
    return requests.SendRequest(
        tuple([message_from_pb(message) for message in request.messages]),
        request.producer_group,
        request.queue_id,
        request.born_at_ms,
    )


def send_results_to_pb(results: Sequence[requests.SendResult]) -> pb.SendResponse:
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


def send_results_from_pb(response: pb.SendResponse) -> tuple[requests.SendResult, ...]:
    columns = (
        response.topics,
        response.queue_ids,
        response.queue_offsets,
        response.message_ids,
        response.physical_offsets,
        response.deliver_at_ms,
        [response.store_host] * len(response.topics),
    )
    return tuple([requests.SendResult._make(row) for row in zip(*columns, strict=True)])


def pull_result_to_pb(result: requests.PullResult) -> pb.PullResponse:
    return pb.PullResponse(
        status=int(result.status),  # type: ignore[arg-type]
        next_offset=result.next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        messages=[stored_to_pb(message) for message in result.messages],
    )


def pull_result_from_pb(response: pb.PullResponse) -> requests.PullResult:
    return requests.PullResult(
        requests.PullStatus(response.status),
        response.next_offset,
        response.min_offset,
        response.max_offset,
        tuple([stored_from_pb(message) for message in response.messages]),
    )


# ---- finding


def found_to_pb(value: requests.FoundMessage) -> pb.FoundMessage:
    return pb.FoundMessage(
        message=stored_to_pb(value.message),
        state=int(value.state),  # type: ignore[arg-type]
        deliver_at_ms=value.deliver_at_ms,
        is_pending=value.is_pending,
        ended=value.ended,
    )


def found_from_pb(value: pb.FoundMessage) -> requests.FoundMessage:
    return requests.FoundMessage(
        stored_from_pb(value.message),
        requests.MessageState(value.state),
        value.deliver_at_ms,
        value.is_pending,
        value.ended,
    )


def all_found_to_pb(value: requests.FoundMessages) -> pb.QueryMessagesResponse:
    messages = [found_to_pb(each) for each in value.messages]
    return pb.QueryMessagesResponse(messages=messages, is_cut=value.is_cut)


def all_found_from_pb(value: pb.QueryMessagesResponse) -> requests.FoundMessages:
    return requests.FoundMessages(
        tuple(found_from_pb(each) for each in value.messages), value.is_cut
    )


# ---- offsets


def queue_offsets_to_pb(offsets: Mapping[requests.Queue, int]) -> list[pb.QueueOffset]:
    return [
        pb.QueueOffset(topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset)
        for queue, offset in offsets.items()
    ]


def queue_offsets_from_pb(offsets: Iterable[pb.QueueOffset]) -> dict[requests.Queue, int]:
    return {requests.Queue(each.topic, each.queue_id): each.queue_offset for each in offsets}


def commit_to_pb(request: requests.OffsetsCommit) -> pb.CommitOffsetsRequest:
    return pb.CommitOffsetsRequest(
        group=request.group, offsets=queue_offsets_to_pb(request.offsets)
    )


def commit_from_pb(request: pb.CommitOffsetsRequest) -> requests.OffsetsCommit:
    return requests.OffsetsCommit(request.group, queue_offsets_from_pb(request.offsets))


def offsets_query_to_pb(request: requests.OffsetsQuery) -> pb.QueryOffsetsRequest:
    return pb.QueryOffsetsRequest(
        group=request.group, queues=[queue.to_pb(each) for each in request.queues]
    )


def offsets_query_from_pb(request: pb.QueryOffsetsRequest) -> requests.OffsetsQuery:
    return requests.OffsetsQuery(
        request.group, tuple(queue.from_pb(each) for each in request.queues)
    )


def time_query_to_pb(request: requests.TimeQuery) -> pb.SearchOffsetRequest:
    topic, queue_id = request.queue.topic, request.queue.queue_id
    return pb.SearchOffsetRequest(topic=topic, queue_id=queue_id, timestamp_ms=request.timestamp_ms)


def time_query_from_pb(request: pb.SearchOffsetRequest) -> requests.TimeQuery:
    return requests.TimeQuery(requests.Queue(request.topic, request.queue_id), request.timestamp_ms)


def queue_range_to_pb(value: requests.QueueRange) -> pb.QueueRange:
    return pb.QueueRange(
        topic=value.queue.topic,
        queue_id=value.queue.queue_id,
        min_offset=value.min_offset,
        max_offset=value.max_offset,
        newest_timestamp_ms=value.newest_timestamp_ms,
    )


def queue_range_from_pb(value: pb.QueueRange) -> requests.QueueRange:
    return requests.QueueRange(
        requests.Queue(value.topic, value.queue_id),
        value.min_offset,
        value.max_offset,
        value.newest_timestamp_ms,
    )


# ---- groups


def heartbeat_to_pb(request: requests.HeartbeatRequest) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        group=request.group,
        client_id=request.client_id,
        subscriptions=[subscription.to_pb(each) for each in request.subscriptions],
        known_epoch=request.known_epoch,
        wait_ms=request.wait_ms,
    )


def heartbeat_from_pb(request: pb.HeartbeatRequest) -> requests.HeartbeatRequest:
    return requests.HeartbeatRequest(
        request.group,
        request.client_id,
        tuple(subscription.from_pb(each) for each in request.subscriptions),
        request.known_epoch,
        request.wait_ms,
    )


def assignment_to_pb(value: requests.Assignment) -> pb.HeartbeatResponse:
    return pb.HeartbeatResponse(
        epoch=value.epoch,
        queues=[queue.to_pb(each) for each in value.queues],
        members=value.members,
    )


def assignment_from_pb(value: pb.HeartbeatResponse) -> requests.Assignment:
    return requests.Assignment(
        value.epoch, tuple(queue.from_pb(each) for each in value.queues), tuple(value.members)
    )


def member_to_pb(value: requests.MemberInfo) -> pb.Member:
    return pb.Member(
        client_id=value.client_id,
        subscriptions=[subscription.to_pb(each) for each in value.subscriptions],
        last_seen_ms=value.last_seen_ms,
    )


def member_from_pb(value: pb.Member) -> requests.MemberInfo:
    return requests.MemberInfo(
        value.client_id,
        tuple(subscription.from_pb(each) for each in value.subscriptions),
        value.last_seen_ms,
    )


def progress_to_pb(value: requests.QueueProgress) -> pb.QueueProgress:
    return pb.QueueProgress(
        topic=value.queue.topic,
        queue_id=value.queue.queue_id,
        min_offset=value.min_offset,
        max_offset=value.max_offset,
        committed_offset=value.committed_offset,
        client_id=value.client_id,
    )


def progress_from_pb(value: pb.QueueProgress) -> requests.QueueProgress:
    return requests.QueueProgress(
        requests.Queue(value.topic, value.queue_id),
        value.min_offset,
        value.max_offset,
        value.committed_offset if value.HasField("committed_offset") else None,
        value.client_id,
    )


def group_status_to_pb(value: requests.GroupStatus) -> pb.DescribeGroupResponse:
    return pb.DescribeGroupResponse(
        group=group.to_pb(value.info),
        members=[member_to_pb(each) for each in value.members],
        progress=[progress_to_pb(each) for each in value.progress],
    )


def group_status_from_pb(value: pb.DescribeGroupResponse) -> requests.GroupStatus:
    return requests.GroupStatus(
        group.from_pb(value.group),
        tuple(member_from_pb(each) for each in value.members),
        tuple(progress_from_pb(each) for each in value.progress),
    )


# ---- topics and the broker


def route_to_pb(value: requests.Route) -> pb.GetRouteResponse:
    return pb.GetRouteResponse(
        topic=topic.to_pb(value.topic),
        broker_name=value.broker_name,
        message_delay_level=value.message_delay_level,
        max_message_bytes=value.max_message_bytes,
    )


def route_from_pb(value: pb.GetRouteResponse) -> requests.Route:
    return requests.Route(
        topic.from_pb(value.topic),
        value.broker_name,
        value.message_delay_level,
        value.max_message_bytes,
    )


def status_to_pb(value: requests.BrokerStatus) -> pb.GetBrokerStatusResponse:
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    fields["levels"] = [level_status.to_pb(level) for level in value.levels]
    return pb.GetBrokerStatusResponse(**fields)


def status_from_pb(value: pb.GetBrokerStatusResponse) -> requests.BrokerStatus:
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(requests.BrokerStatus)}
    fields["levels"] = tuple(level_status.from_pb(level) for level in value.levels)
    return requests.BrokerStatus(**fields)


queue = flat(requests.Queue, pb.Queue)
subscription = flat(requests.Subscription, pb.Subscription)
group = flat(requests.GroupInfo, pb.Group)
level_status = flat(requests.LevelStatus, pb.LevelStatus)
topic = flat(requests.TopicInfo, pb.Topic)
