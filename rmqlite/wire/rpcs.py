"""The table of rmqlite.v1's calls: path, and how request and answer become bytes.

Server and client both build on this table, so neither needs generated service code and
neither sees protobuf: a call takes a value of requests.py and gives one back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from google.protobuf.descriptor import Descriptor

from rmqlite import (
    bulk_requests,
    letter_requests,
    log_requests,
    redrive_requests,
    requests,
    schedule_requests,
)
from rmqlite.wire import native, native_bulk, native_letters, native_log, native_schedule
from rmqlite.wire.codec import Codec, flat, not_a, nothing, parsed, sequence, wrapped
from rmqlite.wire.pb import rmqlite_pb2 as pb

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Q, A]):
    """One call: Q is the request's type, A the answer's.

    request: what its protobuf message has.  decode_request raises InvalidValue for bytes that
    are no such request.  response_parts: the bytes of an answer, which may be long, in parts.
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


def _reader(codec: Codec) -> Callable[[bytes], Any]:
    pb_class, from_pb = codec.pb_class, codec.from_pb

    def read(data: bytes) -> Any:
        message = parsed(pb_class, data)
        try:
            return from_pb(message)
        except ValueError as error:
            raise not_a(pb_class, data) from error

    return read


def _rpc(service: str, name: str, request: Codec, response: Codec) -> Rpc[Any, Any]:
    return Rpc(
        f"rmqlite.v1.{service}",
        name,
        cast(Descriptor, request.pb_class.DESCRIPTOR),
        _writer(request),
        _reader(request),
        _writer(response),
        _reader(response),
        _parts_writer(response),
    )


GET_ROUTE: Rpc[requests.RouteRequest, requests.Route] = _rpc(
    "Messaging",
    "GetRoute",
    flat(requests.RouteRequest, pb.GetRouteRequest),
    native.route,
)
SEND: Rpc[requests.SendRequest, tuple[requests.SendResult, ...]] = _rpc(
    "Messaging",
    "Send",
    Codec(pb.SendRequest, native.send_to_pb, native.send_from_pb),
    Codec(pb.SendResponse, native.send_results_to_pb, native.send_results_from_pb),
)
PULL: Rpc[requests.PullRequest, requests.PullResult] = _rpc(
    "Messaging",
    "Pull",
    flat(requests.PullRequest, pb.PullRequest),
    native.pull_result,
)
SEND_BACK: Rpc[requests.SendBackRequest, requests.SendBackResult] = _rpc(
    "Messaging",
    "SendBack",
    flat(requests.SendBackRequest, pb.SendBackRequest),
    flat(requests.SendBackResult, pb.SendBackResponse),
)
QUERY_OFFSETS: Rpc[requests.OffsetsQuery, dict[requests.Queue, int]] = _rpc(
    "Messaging",
    "QueryOffsets",
    native.offsets_query,
    Codec(
        pb.QueryOffsetsResponse,
        lambda offsets: pb.QueryOffsetsResponse(offsets=native.queue_offsets_to_pb(offsets)),
        lambda response: native.queue_offsets_from_pb(response.offsets),
    ),
)
COMMIT_OFFSETS: Rpc[requests.OffsetsCommit, None] = _rpc(
    "Messaging",
    "CommitOffsets",
    Codec(pb.CommitOffsetsRequest, native.commit_to_pb, native.commit_from_pb),
    nothing(pb.CommitOffsetsResponse),
)
SEARCH_OFFSET: Rpc[requests.TimeQuery, int] = _rpc(
    "Messaging",
    "SearchOffset",
    Codec(pb.SearchOffsetRequest, native.time_query_to_pb, native.time_query_from_pb),
    wrapped(pb.SearchOffsetResponse, "queue_offset"),
)
GET_QUEUE_RANGES: Rpc[str, tuple[requests.QueueRange, ...]] = _rpc(
    "Messaging",
    "GetQueueRanges",
    wrapped(pb.GetQueueRangesRequest, "topic"),
    sequence(
        pb.GetQueueRangesResponse,
        "ranges",
        native.queue_range,
    ),
)
HEARTBEAT: Rpc[requests.HeartbeatRequest, requests.Assignment] = _rpc(
    "Messaging",
    "Heartbeat",
    native.heartbeat,
    native.assignment,
)
LEAVE: Rpc[requests.LeaveRequest, None] = _rpc(
    "Messaging",
    "Leave",
    flat(requests.LeaveRequest, pb.LeaveRequest),
    nothing(pb.LeaveResponse),
)

LIST_TOPICS: Rpc[None, tuple[requests.TopicInfo, ...]] = _rpc(
    "Admin",
    "ListTopics",
    nothing(pb.ListTopicsRequest),
    sequence(pb.ListTopicsResponse, "topics", native.topic),
)
CREATE_TOPIC: Rpc[requests.TopicInfo, requests.TopicInfo] = _rpc(
    "Admin",
    "CreateTopic",
    wrapped(pb.CreateTopicRequest, "topic", native.topic),
    wrapped(pb.CreateTopicResponse, "topic", native.topic),
)
LIST_GROUPS: Rpc[None, tuple[requests.GroupInfo, ...]] = _rpc(
    "Admin",
    "ListGroups",
    nothing(pb.ListGroupsRequest),
    sequence(pb.ListGroupsResponse, "groups", native.group),
)
DESCRIBE_GROUP: Rpc[str, requests.GroupStatus] = _rpc(
    "Admin",
    "DescribeGroup",
    wrapped(pb.DescribeGroupRequest, "group"),
    native.group_status,
)
GET_BROKER_STATUS: Rpc[None, requests.BrokerStatus] = _rpc(
    "Admin",
    "GetBrokerStatus",
    nothing(pb.GetBrokerStatusRequest),
    native.status,
)
QUERY_MESSAGES: Rpc[requests.MessageQuery, requests.FoundMessages] = _rpc(
    "Admin",
    "QueryMessages",
    flat(requests.MessageQuery, pb.QueryMessagesRequest),
    native.all_found,
)
GET_MESSAGE: Rpc[str, requests.FoundMessage] = _rpc(
    "Admin",
    "GetMessage",
    wrapped(pb.GetMessageRequest, "offset_message_id"),
    wrapped(
        pb.GetMessageResponse,
        "message",
        native.found,
    ),
)
LIST_PENDING: Rpc[schedule_requests.PendingQuery, schedule_requests.PendingPage] = _rpc(
    "Admin",
    "ListPending",
    native_schedule.query,
    native_schedule.page,
)
COUNT_PENDING: Rpc[None, tuple[schedule_requests.PendingCount, ...]] = _rpc(
    "Admin",
    "CountPending",
    nothing(pb.CountPendingRequest),
    sequence(pb.CountPendingResponse, "counts", native_schedule.count),
)
GET_TIMELINE: Rpc[
    schedule_requests.TimelineRequest, tuple[schedule_requests.LevelTimeline, ...]
] = _rpc(
    "Admin",
    "GetTimeline",
    native_schedule.timeline_request,
    sequence(pb.GetTimelineResponse, "levels", native_schedule.level_timeline),
)
CHANGE_BY_IDS: Rpc[schedule_requests.ChangeByIds, tuple[schedule_requests.ChangedId, ...]] = _rpc(
    "Admin",
    "ChangeByIds",
    native_schedule.by_ids,
    native_schedule.changed_ids,
)
CHANGE_BY_FILTER: Rpc[schedule_requests.ChangeByFilter, schedule_requests.ChangedPage] = _rpc(
    "Admin",
    "ChangeByFilter",
    native_schedule.by_filter,
    flat(schedule_requests.ChangedPage, pb.ChangeByFilterResponse),
)
GET_LEVELS: Rpc[None, schedule_requests.LevelsInForce] = _rpc(
    "Admin",
    "GetLevels",
    nothing(pb.GetLevelsRequest),
    native_schedule.in_force,
)
CHANGE_LEVELS: Rpc[schedule_requests.LevelsChange, schedule_requests.LevelsChanged] = _rpc(
    "Admin",
    "ChangeLevels",
    flat(schedule_requests.LevelsChange, pb.ChangeLevelsRequest),
    native_schedule.levels_changed,
)
SCHEDULE_BULK: Rpc[bulk_requests.BulkRequest, bulk_requests.BulkAnswer] = _rpc(
    "Messaging",
    "ScheduleBulk",
    native_bulk.request,
    native_bulk.answer,
)
GET_BULK_JOB: Rpc[str, bulk_requests.BulkJob] = _rpc(
    "Admin",
    "GetBulkJob",
    wrapped(pb.GetBulkJobRequest, "job_id"),
    wrapped(pb.GetBulkJobResponse, "job", native_bulk.job),
)
LIST_BULK_JOBS: Rpc[None, tuple[bulk_requests.BulkJob, ...]] = _rpc(
    "Admin",
    "ListBulkJobs",
    nothing(pb.ListBulkJobsRequest),
    sequence(pb.ListBulkJobsResponse, "jobs", native_bulk.job),
)
LIST_DEAD_LETTER_GROUPS: Rpc[None, tuple[letter_requests.DeadLetterGroup, ...]] = _rpc(
    "Admin",
    "ListDeadLetterGroups",
    nothing(pb.ListDeadLetterGroupsRequest),
    sequence(pb.ListDeadLetterGroupsResponse, "groups", native_letters.group),
)
LIST_DEAD_LETTERS: Rpc[letter_requests.LettersQuery, letter_requests.LetterPage] = _rpc(
    "Admin", "ListDeadLetters", native_letters.query, native_letters.page
)
PURGE_DEAD_LETTERS: Rpc[letter_requests.PurgeRequest, letter_requests.Purged] = _rpc(
    "Admin", "PurgeDeadLetters", native_letters.purge, native_letters.purged
)
LIST_RETRIES: Rpc[letter_requests.LettersQuery, letter_requests.LetterPage] = _rpc(
    "Admin", "ListRetries", native_letters.query, native_letters.page
)
GET_LIFE: Rpc[letter_requests.LifeQuery, letter_requests.Life] = _rpc(
    "Admin", "GetLife", native_letters.life_query, native_letters.life
)
SET_GROUP: Rpc[letter_requests.GroupChange, requests.GroupInfo] = _rpc(
    "Admin",
    "SetGroup",
    native_letters.group_change,
    wrapped(pb.SetGroupResponse, "group", native.group),
)
PREVIEW_REDRIVE: Rpc[redrive_requests.RedrivePreviewRequest, redrive_requests.RedrivePreview] = (
    _rpc("Admin", "PreviewRedrive", native_letters.preview_request, native_letters.preview)
)
START_REDRIVE: Rpc[redrive_requests.RedriveRequest, redrive_requests.RedriveJob] = _rpc(
    "Admin",
    "StartRedrive",
    native_letters.start,
    wrapped(pb.StartRedriveResponse, "job", native_letters.job),
)
GET_REDRIVE_JOB: Rpc[str, redrive_requests.RedriveJob] = _rpc(
    "Admin",
    "GetRedriveJob",
    wrapped(pb.GetRedriveJobRequest, "job_id"),
    wrapped(pb.GetRedriveJobResponse, "job", native_letters.job),
)
LIST_REDRIVE_JOBS: Rpc[None, tuple[redrive_requests.RedriveJob, ...]] = _rpc(
    "Admin",
    "ListRedriveJobs",
    nothing(pb.ListRedriveJobsRequest),
    sequence(pb.ListRedriveJobsResponse, "jobs", native_letters.job),
)
CHANGE_REDRIVE_JOB: Rpc[redrive_requests.JobChange, redrive_requests.RedriveJob] = _rpc(
    "Admin",
    "ChangeRedriveJob",
    native_letters.change,
    wrapped(pb.ChangeRedriveJobResponse, "job", native_letters.job),
)
LIST_REDRIVE_OUTCOMES: Rpc[redrive_requests.OutcomesQuery, redrive_requests.OutcomesPage] = _rpc(
    "Admin", "ListRedriveOutcomes", native_letters.outcomes_query, native_letters.outcomes
)
GET_LOG_SNAPSHOT: Rpc[log_requests.LogSnapshotRequest, log_requests.LogSnapshot] = _rpc(
    "Log", "GetLogSnapshot", native_log.snapshot_request, native_log.snapshot
)
READ_LOG: Rpc[log_requests.LogReadRequest, log_requests.LogRead] = _rpc(
    "Log",
    "ReadLog",
    flat(log_requests.LogReadRequest, pb.ReadLogRequest),
    flat(log_requests.LogRead, pb.ReadLogResponse),
)
READ_QUEUE: Rpc[log_requests.QueueReadRequest, log_requests.QueueRead] = _rpc(
    "Log",
    "ReadQueue",
    flat(log_requests.QueueReadRequest, pb.ReadQueueRequest),
    flat(log_requests.QueueRead, pb.ReadQueueResponse),
)

ALL: tuple[Rpc[Any, Any], ...] = tuple(
    value for value in list(vars().values()) if isinstance(value, Rpc)
)
