"""The table of rmqlite.v1's calls: the path and the codecs of each.

Server and client both use this table, so neither needs generated service code and neither
sees protobuf: a call takes a value of requests/ and returns one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

from google.protobuf.descriptor import Descriptor

from rmqlite.requests.bulk import BulkAnswer, BulkJob, BulkRequest
from rmqlite.requests.finding import FoundMessage, FoundMessages, MessageQuery
from rmqlite.requests.groups import (
    Assignment,
    GroupChange,
    GroupInfo,
    GroupStatus,
    HeartbeatRequest,
    LeaveRequest,
    OffsetsCommit,
    OffsetsQuery,
)
from rmqlite.requests.letters import (
    DeadLetterGroup,
    LetterPage,
    LettersQuery,
    Life,
    LifeQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.requests.levels import LevelsChange, LevelsChanged, LevelsInForce
from rmqlite.requests.log import (
    LogRead,
    LogReadRequest,
    LogSnapshot,
    LogSnapshotRequest,
    QueueRead,
    QueueReadRequest,
)
from rmqlite.requests.messages import (
    PullRequest,
    PullResult,
    SendBackRequest,
    SendBackResult,
    SendRequest,
    SendResult,
)
from rmqlite.requests.redrive import (
    ImportAnswer,
    ImportRequest,
    JobChange,
    OutcomesPage,
    OutcomesQuery,
    RedriveJob,
    RedriveJobQuery,
    RedrivePreview,
    RedrivePreviewRequest,
    RedriveRequest,
)
from rmqlite.requests.schedule import (
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    ChangedPage,
    LevelTimeline,
    PendingCount,
    PendingPage,
    PendingQuery,
    TimelineRequest,
)
from rmqlite.requests.status import BrokerStatus
from rmqlite.requests.topics import Queue, QueueRange, Route, RouteRequest, TimeQuery, TopicInfo
from rmqlite.wire import native, native_bulk, native_letters, native_log, native_schedule
from rmqlite.wire.codec import Codec, flat, nothing, read, sequence, wrapped
from rmqlite.wire.pb import rmqlite_pb2 as pb

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Q, A]):
    """One call: Q is the request's type, A the answer's.

    request: the descriptor of its protobuf message.  decode_request raises InvalidValue for
    bytes that are no such request.  response_parts: the bytes of a long answer, in parts.
    """

    service: str
    name: str
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


def _rpc(service: str, name: str, request: Codec, response: Codec) -> Rpc[Any, Any]:
    return Rpc(
        f"rmqlite.v1.{service}",
        name,
        cast(Descriptor, request.pb_class.DESCRIPTOR),
        _writer(request),
        partial(read, request),
        _writer(response),
        partial(read, response),
        _parts_writer(response),
    )


GET_ROUTE: Rpc[RouteRequest, Route] = _rpc(
    "Messaging",
    "GetRoute",
    flat(RouteRequest, pb.GetRouteRequest),
    native.route,
)
SEND: Rpc[SendRequest, tuple[SendResult, ...]] = replace(
    _rpc(
        "Messaging",
        "Send",
        Codec(pb.SendRequest, native.send_to_pb, native.send_from_pb),
        native.send_results,
    ),
    encode_request=native.send_bytes,
    decode_response=native.sent_from_bytes,
)
PULL: Rpc[PullRequest, PullResult] = replace(
    _rpc(
        "Messaging",
        "Pull",
        flat(PullRequest, pb.PullRequest),
        native.pull_result,
    ),
    decode_response=native.pull_from_bytes,
)
SEND_BACK: Rpc[SendBackRequest, SendBackResult] = _rpc(
    "Messaging",
    "SendBack",
    flat(SendBackRequest, pb.SendBackRequest),
    flat(SendBackResult, pb.SendBackResponse),
)
QUERY_OFFSETS: Rpc[OffsetsQuery, dict[Queue, int]] = _rpc(
    "Messaging",
    "QueryOffsets",
    native.offsets_query,
    Codec(
        pb.QueryOffsetsResponse,
        lambda offsets: pb.QueryOffsetsResponse(offsets=native.queue_offsets_to_pb(offsets)),
        lambda response: native.queue_offsets_from_pb(response.offsets),
    ),
)
COMMIT_OFFSETS: Rpc[OffsetsCommit, None] = _rpc(
    "Messaging",
    "CommitOffsets",
    Codec(pb.CommitOffsetsRequest, native.commit_to_pb, native.commit_from_pb),
    nothing(pb.CommitOffsetsResponse),
)
SEARCH_OFFSET: Rpc[TimeQuery, int] = _rpc(
    "Messaging",
    "SearchOffset",
    native.time_query,
    wrapped(pb.SearchOffsetResponse, "queue_offset"),
)
GET_QUEUE_RANGES: Rpc[str, tuple[QueueRange, ...]] = _rpc(
    "Messaging",
    "GetQueueRanges",
    wrapped(pb.GetQueueRangesRequest, "topic"),
    sequence(
        pb.GetQueueRangesResponse,
        "ranges",
        native.queue_range,
    ),
)
HEARTBEAT: Rpc[HeartbeatRequest, Assignment] = _rpc(
    "Messaging",
    "Heartbeat",
    native.heartbeat,
    native.assignment,
)
LEAVE: Rpc[LeaveRequest, None] = _rpc(
    "Messaging",
    "Leave",
    flat(LeaveRequest, pb.LeaveRequest),
    nothing(pb.LeaveResponse),
)

LIST_TOPICS: Rpc[None, tuple[TopicInfo, ...]] = _rpc(
    "Admin",
    "ListTopics",
    nothing(pb.ListTopicsRequest),
    sequence(pb.ListTopicsResponse, "topics", native.topic),
)
CREATE_TOPIC: Rpc[TopicInfo, TopicInfo] = _rpc(
    "Admin",
    "CreateTopic",
    wrapped(pb.CreateTopicRequest, "topic", native.topic),
    wrapped(pb.CreateTopicResponse, "topic", native.topic),
)
LIST_GROUPS: Rpc[None, tuple[GroupInfo, ...]] = _rpc(
    "Admin",
    "ListGroups",
    nothing(pb.ListGroupsRequest),
    sequence(pb.ListGroupsResponse, "groups", native.group),
)
DESCRIBE_GROUP: Rpc[str, GroupStatus] = _rpc(
    "Admin",
    "DescribeGroup",
    wrapped(pb.DescribeGroupRequest, "group"),
    native.group_status,
)
GET_BROKER_STATUS: Rpc[None, BrokerStatus] = _rpc(
    "Admin",
    "GetBrokerStatus",
    nothing(pb.GetBrokerStatusRequest),
    native.status,
)
QUERY_MESSAGES: Rpc[MessageQuery, FoundMessages] = _rpc(
    "Admin",
    "QueryMessages",
    flat(MessageQuery, pb.QueryMessagesRequest),
    native.all_found,
)
GET_MESSAGE: Rpc[str, FoundMessage] = _rpc(
    "Admin",
    "GetMessage",
    wrapped(pb.GetMessageRequest, "offset_message_id"),
    wrapped(
        pb.GetMessageResponse,
        "message",
        native.found,
    ),
)
LIST_PENDING: Rpc[PendingQuery, PendingPage] = _rpc(
    "Admin",
    "ListPending",
    native_schedule.query,
    native_schedule.page,
)
COUNT_PENDING: Rpc[None, tuple[PendingCount, ...]] = _rpc(
    "Admin",
    "CountPending",
    nothing(pb.CountPendingRequest),
    sequence(pb.CountPendingResponse, "counts", native_schedule.count),
)
GET_TIMELINE: Rpc[TimelineRequest, tuple[LevelTimeline, ...]] = _rpc(
    "Admin",
    "GetTimeline",
    native_schedule.timeline_request,
    sequence(pb.GetTimelineResponse, "levels", native_schedule.level_timeline),
)
CHANGE_BY_IDS: Rpc[ChangeByIds, tuple[ChangedId, ...]] = _rpc(
    "Admin",
    "ChangeByIds",
    native_schedule.by_ids,
    native_schedule.changed_ids,
)
CHANGE_BY_FILTER: Rpc[ChangeByFilter, ChangedPage] = _rpc(
    "Admin",
    "ChangeByFilter",
    native_schedule.by_filter,
    flat(ChangedPage, pb.ChangeByFilterResponse),
)
GET_LEVELS: Rpc[None, LevelsInForce] = _rpc(
    "Admin",
    "GetLevels",
    nothing(pb.GetLevelsRequest),
    native_schedule.in_force,
)
CHANGE_LEVELS: Rpc[LevelsChange, LevelsChanged] = _rpc(
    "Admin",
    "ChangeLevels",
    flat(LevelsChange, pb.ChangeLevelsRequest),
    native_schedule.levels_changed,
)
SCHEDULE_BULK: Rpc[BulkRequest, BulkAnswer] = _rpc(
    "Messaging",
    "ScheduleBulk",
    native_bulk.request,
    native_bulk.answer,
)
GET_BULK_JOB: Rpc[str, BulkJob] = _rpc(
    "Admin",
    "GetBulkJob",
    wrapped(pb.GetBulkJobRequest, "job_id"),
    wrapped(pb.GetBulkJobResponse, "job", native_bulk.job),
)
LIST_BULK_JOBS: Rpc[None, tuple[BulkJob, ...]] = _rpc(
    "Admin",
    "ListBulkJobs",
    nothing(pb.ListBulkJobsRequest),
    sequence(pb.ListBulkJobsResponse, "jobs", native_bulk.job),
)
LIST_DEAD_LETTER_GROUPS: Rpc[None, tuple[DeadLetterGroup, ...]] = _rpc(
    "Admin",
    "ListDeadLetterGroups",
    nothing(pb.ListDeadLetterGroupsRequest),
    sequence(pb.ListDeadLetterGroupsResponse, "groups", native_letters.group),
)
LIST_DEAD_LETTERS: Rpc[LettersQuery, LetterPage] = _rpc(
    "Admin", "ListDeadLetters", native_letters.query, native_letters.page
)
PURGE_DEAD_LETTERS: Rpc[PurgeRequest, Purged] = _rpc(
    "Admin", "PurgeDeadLetters", native_letters.purge, native_letters.purged
)
LIST_RETRIES: Rpc[LettersQuery, LetterPage] = _rpc(
    "Admin", "ListRetries", native_letters.query, native_letters.page
)
GET_LIFE: Rpc[LifeQuery, Life] = _rpc(
    "Admin", "GetLife", native_letters.life_query, native_letters.life
)
SET_GROUP: Rpc[GroupChange, GroupInfo] = _rpc(
    "Admin",
    "SetGroup",
    native_letters.group_change,
    wrapped(pb.SetGroupResponse, "group", native.group),
)
PREVIEW_REDRIVE: Rpc[RedrivePreviewRequest, RedrivePreview] = _rpc(
    "Admin", "PreviewRedrive", native_letters.preview_request, native_letters.preview
)
START_REDRIVE: Rpc[RedriveRequest, RedriveJob] = _rpc(
    "Admin",
    "StartRedrive",
    native_letters.start,
    wrapped(pb.StartRedriveResponse, "job", native_letters.job),
)
GET_REDRIVE_JOB: Rpc[RedriveJobQuery, RedriveJob] = _rpc(
    "Admin",
    "GetRedriveJob",
    native_letters.job_query,
    wrapped(pb.GetRedriveJobResponse, "job", native_letters.job),
)
LIST_REDRIVE_JOBS: Rpc[None, tuple[RedriveJob, ...]] = _rpc(
    "Admin",
    "ListRedriveJobs",
    nothing(pb.ListRedriveJobsRequest),
    sequence(pb.ListRedriveJobsResponse, "jobs", native_letters.job),
)
CHANGE_REDRIVE_JOB: Rpc[JobChange, RedriveJob] = _rpc(
    "Admin",
    "ChangeRedriveJob",
    native_letters.change,
    wrapped(pb.ChangeRedriveJobResponse, "job", native_letters.job),
)
IMPORT_LETTERS: Rpc[ImportRequest, ImportAnswer] = _rpc(
    "Admin", "ImportLetters", native_letters.import_request, native_letters.import_answer
)
LIST_REDRIVE_OUTCOMES: Rpc[OutcomesQuery, OutcomesPage] = _rpc(
    "Admin", "ListRedriveOutcomes", native_letters.outcomes_query, native_letters.outcomes
)
GET_LOG_SNAPSHOT: Rpc[LogSnapshotRequest, LogSnapshot] = _rpc(
    "Log", "GetLogSnapshot", native_log.snapshot_request, native_log.snapshot
)
READ_LOG: Rpc[LogReadRequest, LogRead] = _rpc(
    "Log",
    "ReadLog",
    flat(LogReadRequest, pb.ReadLogRequest),
    flat(LogRead, pb.ReadLogResponse),
)
READ_QUEUE: Rpc[QueueReadRequest, QueueRead] = _rpc(
    "Log",
    "ReadQueue",
    flat(QueueReadRequest, pb.ReadQueueRequest),
    flat(QueueRead, pb.ReadQueueResponse),
)

ALL: tuple[Rpc[Any, Any], ...] = tuple(
    value for value in list(vars().values()) if isinstance(value, Rpc)
)
