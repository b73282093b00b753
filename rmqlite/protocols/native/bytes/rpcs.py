"""The calls of rmqlite.v1 in bytes, and the rows of the kernel's own calls.

Server and client both ask here for the codecs of a row, so neither needs generated service code
and neither sees protobuf: a call takes a value of requests/ and returns one.  codec.py makes nearly
all codecs; those of sends, which are hot, of columns and of maps are written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from types import NoneType
from typing import Any, Final, Generic, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass

from rmqlite.features.rows import LIST_REQUEST_BYTES_MAX, A, Q, Row
from rmqlite.kernel.compiled import in_c
from rmqlite.kernel.records.record import read_head, to_message
from rmqlite.kernel.requests import broker, groups, messages, topics
from rmqlite.kernel.requests.groups import MemberInfo
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.protocols.native.bytes.messages import (
    Duplicate,
    EncodedBatch,
    PulledRecords,
    PullResult,
    SendAnswer,
    SendRequest,
)
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from rmqlite.protocols.shared.codec import Codec, Codecs, read

ADMIN: Final = "Admin"
"""The service of administrators' calls."""
_SLOTS: Final = tuple([vars(StoredMessage)[field.name] for field in fields(StoredMessage)])


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
        duplicates=[
            pb.Duplicate(position=position, queue_id=queue_id, message_id=message_id)
            for position, (queue_id, message_id) in answer.duplicates.items()
        ]
        if answer.duplicates
        else None,
    )


def sent_from_pb(answer: pb.SendResponse) -> SendAnswer:
    # A slice is a list at once; a tuple would ask for each item.
    return SendAnswer(
        tuple(answer.queue_ids[:]),
        tuple(answer.queue_offsets[:]),
        tuple(answer.physical_offsets[:]),
        tuple(answer.deliver_at_ms[:]),
        answer.store_host,
        {each.position: Duplicate(each.queue_id, each.message_id) for each in answer.duplicates},
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
    return PullResult(*bounds, messages_of(pulled.records))


def messages_of(records: bytes) -> tuple[StoredMessage, ...]:
    """The messages of records, one behind the other.  Raises InvalidValue for what is no record."""
    return read_messages(records, StoredMessage, _SLOTS)


@in_c
def read_messages(
    records: bytes, _kind: type[StoredMessage], _slots: tuple[Any, ...]
) -> tuple[StoredMessage, ...]:
    """messages_of(); the arguments behind are for C: the class, and the descriptors of its fields
    in their order."""
    messages: list[StoredMessage] = []
    at = 0
    while at < len(records):
        head = read_head(records, at)
        if head is None:
            raise InvalidValue("records", f"{len(records)} bytes", "whole records")
        messages.append(to_message(head, records))
        at += head.size
    return tuple(messages)


def queue_offsets_to_pb(offsets: Mapping[Queue, int]) -> list[pb.QueueOffset]:
    return [
        pb.QueueOffset(topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset)
        for queue, offset in offsets.items()
    ]


def queue_offsets_from_pb(offsets: Iterable[pb.QueueOffset]) -> dict[Queue, int]:
    return {Queue(each.topic, each.queue_id): each.queue_offset for each in offsets}


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


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Q, A]):
    """A call in bytes.

    request: the descriptor of the request's message.  decode_request raises InvalidValue for bytes
    that are no such request.  response_parts: the bytes of a long answer, in parts.
    """

    request: Descriptor
    encode_request: Callable[[Q], bytes]
    decode_request: Callable[[bytes], Q]
    encode_response: Callable[[A], bytes]
    decode_response: Callable[[bytes], A]
    response_parts: Callable[[A], Iterator[bytes]]


def _writer(codec: Codec) -> Callable[[Any], bytes]:
    to_pb = codec.to_pb
    return lambda value: cast(bytes, to_pb(value).SerializeToString())


def _parts_writer(codec: Codec) -> Callable[[Any], Iterator[bytes]]:
    to_pb, parts = codec.to_pb, codec.parts
    if parts is None:
        return lambda value: iter((to_pb(value).SerializeToString(),))
    return lambda value: (part.SerializeToString() for part in parts(value))


def rpc_of(row: Row[Q, A]) -> Rpc[Q, A]:
    """A call in bytes; the proto says which messages carry its request and its answer."""
    return _made(row)


@cache
def _made(row: Row[Any, Any]) -> Rpc[Any, Any]:
    method = pb.DESCRIPTOR.services_by_name[row.service].methods_by_name[row.name]
    asked = codecs.of(row.request, GetMessageClass(method.input_type))
    answered = codecs.of(row.answer, GetMessageClass(method.output_type))
    rpc: Rpc[Any, Any] = Rpc(
        method.input_type,
        _writer(asked),
        partial(read, asked),
        _writer(answered),
        partial(read, answered),
        _parts_writer(answered),
    )
    if row is PULL:
        # A broker answers with records, of which a client makes messages.
        return replace(rpc, decode_response=cast("Any", pulled_from_bytes))
    return rpc


GET_ROUTE: Final = Row("Messaging", "GetRoute", topics.RouteRequest, topics.Route)
SEND: Final = Row(
    "Messaging",
    "Send",
    SendRequest,
    SendAnswer,
    bytes_max=None,
    is_short=True,
    has_host=True,
)
PULL: Final[Row[messages.PullRequest, PullResult]] = Row(
    "Messaging",
    "Pull",
    messages.PullRequest,
    cast("Any", PulledRecords),
    may_park=True,
    looks=True,
)
SEND_BACK: Final = Row(
    "Messaging", "SendBack", messages.SendBackRequest, messages.SendBackResult, is_short=True
)
QUERY_OFFSETS: Final = Row(
    "Messaging",
    "QueryOffsets",
    groups.OffsetsQuery,
    dict[topics.Queue, int],
    bytes_max=LIST_REQUEST_BYTES_MAX,
)
COMMIT_OFFSETS: Final = Row(
    "Messaging",
    "CommitOffsets",
    groups.OffsetsCommit,
    NoneType,
    bytes_max=LIST_REQUEST_BYTES_MAX,
    is_short=True,
)
SEARCH_OFFSET: Final = Row("Messaging", "SearchOffset", topics.TimeQuery, int)
GET_QUEUE_RANGES: Final = Row("Messaging", "GetQueueRanges", str, tuple[topics.QueueRange, ...])
HEARTBEAT: Final = Row(
    "Messaging",
    "Heartbeat",
    groups.HeartbeatRequest,
    groups.Assignment,
    bytes_max=LIST_REQUEST_BYTES_MAX,
    may_park=True,
)
LEAVE: Final = Row("Messaging", "Leave", groups.LeaveRequest, NoneType, is_short=True)

LIST_TOPICS: Final = Row(ADMIN, "ListTopics", NoneType, tuple[topics.TopicInfo, ...])
CREATE_TOPIC: Final = Row(ADMIN, "CreateTopic", topics.TopicInfo, topics.TopicInfo, is_short=True)
LIST_GROUPS: Final = Row(ADMIN, "ListGroups", NoneType, tuple[groups.GroupInfo, ...])
SET_GROUP: Final = Row(ADMIN, "SetGroup", groups.GroupChange, groups.GroupInfo, is_short=True)
GET_BROKER_STATUS: Final = Row(ADMIN, "GetBrokerStatus", NoneType, broker.BrokerStatus)
GET_LEVELS: Final = Row(ADMIN, "GetLevels", NoneType, broker.LevelsInForce)
CHANGE_LEVELS: Final = Row(ADMIN, "ChangeLevels", broker.LevelsChange, broker.LevelsChanged)


def native_services() -> set[str]:
    """The full names of the proto's services."""
    return {service.full_name for service in pb.DESCRIPTOR.services_by_name.values()}
