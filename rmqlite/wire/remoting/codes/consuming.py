"""Requests of consumers: pulls, offsets, membership, locks, and looking for messages."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from rmqlite.wire.remoting.bodies.clients import (
    ClientConfigCheck,
    ConsumerIds,
    DirectResult,
    Heartbeat,
    RunningInfo,
)
from rmqlite.wire.remoting.bodies.queues import (
    ClientOffsets,
    LockedQueues,
    LockRequest,
    OffsetList,
    OffsetTable,
)
from rmqlite.wire.remoting.codes.request import Body, Party, Request, request
from rmqlite.wire.remoting.fields import Nothing
from rmqlite.wire.remoting.names import (
    I32,
    I64,
    ClientId,
    Expression,
    Group,
    Key,
    MessageId,
    Name,
    Topic,
    Wire,
)


class PullMessage(NamedTuple):
    """sys_flag: 1 commit_offset counts, 2 the broker may wait, 4 subscription counts, 16 lite.

    max_msg_nums: 0, from Go, means 1.
    """

    consumer_group: Group
    topic: Topic
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    sub_version: I64
    subscription: Expression = ""
    expression_type: Name = "TAG"


class PullAnswer(NamedTuple):
    """Of codes 0, 19, 20 and 21; other codes have no fields."""

    next_begin_offset: I64
    min_offset: I64
    max_offset: I64
    suggest_which_broker_id: I64 = 0


class QueryMessage(NamedTuple):
    topic: Topic
    key: Key
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    is_unique_key: Annotated[bool, Wire("_UNIQUE_KEY_QUERY")] = False


class QueryAnswer(NamedTuple):
    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


class GroupQueue(NamedTuple):
    consumer_group: Group
    topic: Topic
    queue_id: I32


class OffsetCommit(NamedTuple):
    consumer_group: Group
    topic: Topic
    queue_id: I32
    commit_offset: I64


class QueueOfTopic(NamedTuple):
    topic: Topic
    queue_id: I32


class QueueAtTime(NamedTuple):
    topic: Topic
    queue_id: I32
    timestamp: I64


class OffsetAnswer(NamedTuple):
    offset: I64


class TimestampAnswer(NamedTuple):
    timestamp: I64


class PhysicalOffset(NamedTuple):
    offset: I64


class UnregisterClient(NamedTuple):
    client_id: Annotated[ClientId, Wire("clientID")]
    producer_group: Group = ""
    consumer_group: Group = ""


class OfGroup(NamedTuple):
    consumer_group: Group


class ResetOffset(NamedTuple):
    """timestamp: in milliseconds; -1 is now."""

    topic: Topic
    group: Group
    timestamp: I64
    is_force: bool


class GroupAndTopic(NamedTuple):
    topic: Topic
    group: Group


class RunningInfoQuery(NamedTuple):
    consumer_group: Group
    client_id: ClientId
    jstack_enable: bool = False


class ConsumeDirectly(NamedTuple):
    """msg_id: an offset id.  The broker adds its name when it asks the client."""

    consumer_group: Group
    client_id: ClientId
    msg_id: MessageId
    broker_name: Name | None = None


_CLIENT: Final = (Party.CLIENT,)
_RELAYED: Final = (Party.BROKER, Party.CLIENT)

PULL_MESSAGE: Final = request(11, "PULL_MESSAGE", PullMessage, PullAnswer, answer_body=Body.RECORDS)
LITE_PULL_MESSAGE: Final = request(
    361, "LITE_PULL_MESSAGE", PullMessage, PullAnswer, answer_body=Body.RECORDS
)
"""The same, of the lite pull consumer from RocketMQ 5 on."""
QUERY_MESSAGE: Final = request(
    12, "QUERY_MESSAGE", QueryMessage, QueryAnswer, answer_body=Body.RECORDS
)
QUERY_CONSUMER_OFFSET: Final = request(14, "QUERY_CONSUMER_OFFSET", GroupQueue, OffsetAnswer)
UPDATE_CONSUMER_OFFSET: Final = request(15, "UPDATE_CONSUMER_OFFSET", OffsetCommit, Nothing)
SEARCH_OFFSET_BY_TIMESTAMP: Final = request(
    29, "SEARCH_OFFSET_BY_TIMESTAMP", QueueAtTime, OffsetAnswer
)
GET_MAX_OFFSET: Final = request(30, "GET_MAX_OFFSET", QueueOfTopic, OffsetAnswer)
GET_MIN_OFFSET: Final = request(31, "GET_MIN_OFFSET", QueueOfTopic, OffsetAnswer)
GET_EARLIEST_MSG_STORETIME: Final = request(
    32, "GET_EARLIEST_MSG_STORETIME", QueueOfTopic, TimestampAnswer
)
VIEW_MESSAGE_BY_ID: Final = request(
    33, "VIEW_MESSAGE_BY_ID", PhysicalOffset, Nothing, answer_body=Body.RECORD
)
HEART_BEAT: Final = request(34, "HEART_BEAT", Nothing, Nothing, body=Heartbeat)
UNREGISTER_CLIENT: Final = request(35, "UNREGISTER_CLIENT", UnregisterClient, Nothing)
GET_CONSUMER_LIST_BY_GROUP: Final = request(
    38, "GET_CONSUMER_LIST_BY_GROUP", OfGroup, Nothing, answer_body=ConsumerIds
)
NOTIFY_CONSUMER_IDS_CHANGED: Final = request(
    40, "NOTIFY_CONSUMER_IDS_CHANGED", OfGroup, Nothing, asked=_CLIENT
)
LOCK_BATCH_MQ: Final = request(
    41, "LOCK_BATCH_MQ", Nothing, Nothing, body=LockRequest, answer_body=LockedQueues
)
UNLOCK_BATCH_MQ: Final = request(42, "UNLOCK_BATCH_MQ", Nothing, Nothing, body=LockRequest)
CHECK_CLIENT_CONFIG: Final = request(
    46, "CHECK_CLIENT_CONFIG", Nothing, Nothing, body=ClientConfigCheck
)
RESET_CONSUMER_CLIENT_OFFSET: Final = request(
    220,
    "RESET_CONSUMER_CLIENT_OFFSET",
    ResetOffset,
    Nothing,
    asked=_CLIENT,
    body=(OffsetTable, OffsetList),
)
GET_CONSUMER_STATUS_FROM_CLIENT: Final = request(
    221,
    "GET_CONSUMER_STATUS_FROM_CLIENT",
    GroupAndTopic,
    Nothing,
    asked=_CLIENT,
    answer_body=ClientOffsets,
)
GET_CONSUMER_RUNNING_INFO: Final = request(
    307,
    "GET_CONSUMER_RUNNING_INFO",
    RunningInfoQuery,
    Nothing,
    asked=_RELAYED,
    answer_body=RunningInfo,
)
CONSUME_MESSAGE_DIRECTLY: Final = request(
    309,
    "CONSUME_MESSAGE_DIRECTLY",
    ConsumeDirectly,
    Nothing,
    asked=_RELAYED,
    body=Body.RECORD,
    answer_body=DirectResult,
)
ROWS: Final[tuple[Request[Any, Any], ...]] = (
    PULL_MESSAGE,
    LITE_PULL_MESSAGE,
    QUERY_MESSAGE,
    QUERY_CONSUMER_OFFSET,
    UPDATE_CONSUMER_OFFSET,
    SEARCH_OFFSET_BY_TIMESTAMP,
    GET_MAX_OFFSET,
    GET_MIN_OFFSET,
    GET_EARLIEST_MSG_STORETIME,
    VIEW_MESSAGE_BY_ID,
    HEART_BEAT,
    UNREGISTER_CLIENT,
    GET_CONSUMER_LIST_BY_GROUP,
    NOTIFY_CONSUMER_IDS_CHANGED,
    LOCK_BATCH_MQ,
    UNLOCK_BATCH_MQ,
    CHECK_CLIENT_CONFIG,
    RESET_CONSUMER_CLIENT_OFFSET,
    GET_CONSUMER_STATUS_FROM_CLIENT,
    GET_CONSUMER_RUNNING_INFO,
    CONSUME_MESSAGE_DIRECTLY,
)
