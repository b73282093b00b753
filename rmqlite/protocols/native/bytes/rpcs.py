"""The calls of rmqlite.v1 in bytes, and the rows of the kernel's own calls.

Server and client both ask here for the codecs of a row, so neither needs generated service code
and neither sees protobuf: a call takes a value of requests/ and returns one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from types import NoneType
from typing import Any, Final, Generic, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass

from rmqlite.features.rows import LIST_REQUEST_BYTES_MAX, A, Q, Row
from rmqlite.kernel.requests import broker, groups, messages, topics
from rmqlite.protocols.native.bytes import native
from rmqlite.protocols.native.bytes.messages import (
    PulledRecords,
    PullResult,
    SendAnswer,
    SendRequest,
)
from rmqlite.protocols.pb import rmqlite_pb2 as pb
from rmqlite.protocols.shared.codec import Codec, read

ADMIN: Final = "Admin"
"""The service of administrators' calls."""


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
    asked = native.codecs.of(row.request, GetMessageClass(method.input_type))
    answered = native.codecs.of(row.answer, GetMessageClass(method.output_type))
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
        return replace(rpc, decode_response=cast("Any", native.pulled_from_bytes))
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
