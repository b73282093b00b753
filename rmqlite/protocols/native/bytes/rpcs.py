"""The table of rmqlite.v1's calls: the name of each, and the types of its request and answer.

Server and client both use this table, so neither needs generated service code and neither
sees protobuf: a call takes a value of requests/ and returns one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import NoneType
from typing import Any, Final, Generic, TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass

from rmqlite.features.bulk import requests as bulk
from rmqlite.features.changes import requests as changes
from rmqlite.features.dead_letters import requests as dead_letters
from rmqlite.features.finding import requests as finding
from rmqlite.features.operating import requests as operating
from rmqlite.features.raw_log import requests as log
from rmqlite.features.redrive import requests as redrive
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

Q = TypeVar("Q")
A = TypeVar("A")


ADMIN: Final = "rmqlite.v1.Admin"
"""The service of administrators' calls."""


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Q, A]):
    """One call: Q is the request's type, A the answer's.

    kinds: these two types.  request: the descriptor of the request's message.  decode_request
    raises InvalidValue for bytes that are no such request.  response_parts: the bytes of a long
    answer, in parts.
    """

    service: str
    name: str
    kinds: tuple[Any, Any]
    request: Descriptor
    encode_request: Callable[[Q], bytes]
    decode_request: Callable[[bytes], Q]
    encode_response: Callable[[A], bytes]
    decode_response: Callable[[bytes], A]
    response_parts: Callable[[A], Iterator[bytes]]

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


def _writer(codec: Codec) -> Callable[[Any], bytes]:
    to_pb = codec.to_pb
    return lambda value: cast(bytes, to_pb(value).SerializeToString())


def _parts_writer(codec: Codec) -> Callable[[Any], Iterator[bytes]]:
    to_pb, parts = codec.to_pb, codec.parts
    if parts is None:
        return lambda value: iter((to_pb(value).SerializeToString(),))
    return lambda value: (part.SerializeToString() for part in parts(value))


def _rpc(service: str, name: str, request: type[Q], answer: type[A]) -> Rpc[Q, A]:
    """The call of this name; the proto says which messages carry its request and its answer."""
    method = pb.DESCRIPTOR.services_by_name[service].methods_by_name[name]
    asked = native.codecs.of(request, GetMessageClass(method.input_type))
    answered = native.codecs.of(answer, GetMessageClass(method.output_type))
    return Rpc(
        f"rmqlite.v1.{service}",
        name,
        (request, answer),
        method.input_type,
        _writer(asked),
        partial(read, asked),
        _writer(answered),
        partial(read, answered),
        _parts_writer(answered),
    )


GET_ROUTE = _rpc("Messaging", "GetRoute", topics.RouteRequest, topics.Route)
SEND = _rpc("Messaging", "Send", SendRequest, SendAnswer)
PULL: Rpc[messages.PullRequest, PullResult] = replace(
    # A broker answers with records, of which a client makes messages.
    cast("Any", _rpc("Messaging", "Pull", messages.PullRequest, PulledRecords)),
    decode_response=native.pulled_from_bytes,
)
SEND_BACK = _rpc("Messaging", "SendBack", messages.SendBackRequest, messages.SendBackResult)
QUERY_OFFSETS = _rpc("Messaging", "QueryOffsets", groups.OffsetsQuery, dict[topics.Queue, int])
COMMIT_OFFSETS = _rpc("Messaging", "CommitOffsets", groups.OffsetsCommit, NoneType)
SEARCH_OFFSET = _rpc("Messaging", "SearchOffset", topics.TimeQuery, int)
GET_QUEUE_RANGES = _rpc("Messaging", "GetQueueRanges", str, tuple[topics.QueueRange, ...])
HEARTBEAT = _rpc("Messaging", "Heartbeat", groups.HeartbeatRequest, groups.Assignment)
LEAVE = _rpc("Messaging", "Leave", groups.LeaveRequest, NoneType)

LIST_TOPICS = _rpc("Admin", "ListTopics", NoneType, tuple[topics.TopicInfo, ...])
CREATE_TOPIC = _rpc("Admin", "CreateTopic", topics.TopicInfo, topics.TopicInfo)
PREVIEW_TOPIC_DELETION = _rpc("Admin", "PreviewTopicDeletion", str, operating.TopicLoss)
DELETE_TOPIC = _rpc("Admin", "DeleteTopic", str, NoneType)
LIST_GROUPS = _rpc("Admin", "ListGroups", NoneType, tuple[groups.GroupInfo, ...])
DESCRIBE_GROUP = _rpc("Admin", "DescribeGroup", str, operating.GroupStatus)
GET_BROKER_STATUS = _rpc("Admin", "GetBrokerStatus", NoneType, broker.BrokerStatus)
QUERY_MESSAGES = _rpc("Admin", "QueryMessages", finding.MessageQuery, finding.FoundMessages)
GET_MESSAGE = _rpc("Admin", "GetMessage", str, finding.FoundMessage)
LIST_PENDING = _rpc("Admin", "ListPending", changes.PendingQuery, changes.PendingPage)
COUNT_PENDING = _rpc("Admin", "CountPending", NoneType, tuple[changes.PendingCount, ...])
GET_TIMELINE = _rpc(
    "Admin", "GetTimeline", changes.TimelineRequest, tuple[changes.LevelTimeline, ...]
)
CHANGE_BY_IDS = _rpc("Admin", "ChangeByIds", changes.ChangeByIds, tuple[changes.ChangedId, ...])
CHANGE_BY_FILTER = _rpc("Admin", "ChangeByFilter", changes.ChangeByFilter, changes.ChangedPage)
GET_LEVELS = _rpc("Admin", "GetLevels", NoneType, broker.LevelsInForce)
CHANGE_LEVELS = _rpc("Admin", "ChangeLevels", broker.LevelsChange, broker.LevelsChanged)

SCHEDULE_BULK = _rpc("Messaging", "ScheduleBulk", bulk.BulkRequest, bulk.BulkAnswer)

GET_BULK_JOB = _rpc("Admin", "GetBulkJob", str, bulk.BulkJob)
LIST_BULK_JOBS = _rpc("Admin", "ListBulkJobs", NoneType, tuple[bulk.BulkJob, ...])
LIST_DEAD_LETTER_GROUPS = _rpc(
    "Admin", "ListDeadLetterGroups", NoneType, tuple[dead_letters.DeadLetterGroup, ...]
)
LIST_REASONS = _rpc("Admin", "ListReasons", str, dead_letters.DeadLetterGroup)
LIST_DEAD_LETTERS = _rpc(
    "Admin", "ListDeadLetters", dead_letters.DeadLettersQuery, dead_letters.DeadLetterPage
)
PURGE_DEAD_LETTERS = _rpc(
    "Admin", "PurgeDeadLetters", dead_letters.PurgeRequest, dead_letters.Purged
)
LIST_RETRIES = _rpc(
    "Admin", "ListRetries", dead_letters.DeadLettersQuery, dead_letters.DeadLetterPage
)
GET_HISTORY = _rpc("Admin", "GetLife", dead_letters.HistoryQuery, dead_letters.History)
SET_GROUP = _rpc("Admin", "SetGroup", groups.GroupChange, groups.GroupInfo)
DELETE_GROUP = _rpc("Admin", "DeleteGroup", operating.GroupDeletion, NoneType)
PREVIEW_OFFSET_RESET = _rpc(
    "Admin", "PreviewOffsetReset", operating.OffsetReset, tuple[operating.QueueReset, ...]
)
RESET_OFFSETS = _rpc(
    "Admin", "ResetOffsets", operating.OffsetReset, tuple[operating.QueueReset, ...]
)
PREVIEW_REDRIVE = _rpc(
    "Admin", "PreviewRedrive", redrive.RedrivePreviewRequest, redrive.RedrivePreview
)
START_REDRIVE = _rpc("Admin", "StartRedrive", redrive.RedriveRequest, redrive.RedriveJob)
GET_REDRIVE_JOB = _rpc("Admin", "GetRedriveJob", redrive.RedriveJobQuery, redrive.RedriveJob)
LIST_REDRIVE_JOBS = _rpc("Admin", "ListRedriveJobs", NoneType, tuple[redrive.RedriveJob, ...])
CHANGE_REDRIVE_JOB = _rpc("Admin", "ChangeRedriveJob", redrive.JobChange, redrive.RedriveJob)
IMPORT_LETTERS = _rpc("Admin", "ImportLetters", redrive.ImportRequest, redrive.ImportAnswer)
LIST_REDRIVE_OUTCOMES = _rpc(
    "Admin", "ListRedriveOutcomes", redrive.OutcomesQuery, redrive.OutcomesPage
)

GET_LOG_SNAPSHOT = _rpc("Log", "GetLogSnapshot", log.LogSnapshotRequest, log.LogSnapshot)
READ_LOG = _rpc("Log", "ReadLog", log.LogReadRequest, log.LogRead)
READ_QUEUE = _rpc("Log", "ReadQueue", log.QueueReadRequest, log.QueueRead)

ALL: tuple[Rpc[Any, Any], ...] = tuple(
    value for value in list(vars().values()) if isinstance(value, Rpc)
)
