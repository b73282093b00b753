"""Requests about consumer groups: settings, how far they have read, and the queues that they read.

MessageQueue is also the key of maps; such a map is RocketMQ's odd JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple

from rmqlite.kernel.words.limits import QUEUES_MAX
from rmqlite.kernel.words.retry_policy import STEPS_MAX
from rmqlite.protocols.remoting.bytes.fields import (
    ENTRIES_MAX,
    I32,
    I64,
    LOCK_QUEUES_MAX,
    ClientId,
    Count,
    Group,
    Name,
    Topic,
    Wire,
)
from rmqlite.protocols.remoting.bytes.requests.request import request

RETRY_LENGTHS_MAX: Final = STEPS_MAX + 2
"""The lengths of a customized policy."""


class QueueOfTopic(NamedTuple):
    topic: Topic
    queue_id: I32


class QueueAtTime(NamedTuple):
    topic: Topic
    queue_id: I32
    timestamp: I64


class GroupQueue(NamedTuple):
    consumer_group: Group
    topic: Topic
    queue_id: I32


class OffsetCommit(NamedTuple):
    consumer_group: Group
    topic: Topic
    queue_id: I32
    commit_offset: I64


class OffsetAnswer(NamedTuple):
    offset: I64


class TimestampAnswer(NamedTuple):
    timestamp: I64


@dataclass(frozen=True, slots=True)
class MessageQueue:
    topic: Topic
    queue_id: I32
    broker_name: Name = ""


Queues = Annotated[tuple[MessageQueue, ...], Count(LOCK_QUEUES_MAX)]
QueueOffsets = Annotated[dict[MessageQueue, I64], Count(LOCK_QUEUES_MAX)]


@dataclass(frozen=True, slots=True)
class LockRequest:
    """Body of 41 and 42."""

    consumer_group: Group
    client_id: ClientId
    mq_set: Queues = ()


@dataclass(frozen=True, slots=True)
class LockedQueues:
    """Answer to 41."""

    locked: Annotated[Queues, Wire("lockOKMQSet")] = ()


QUERY_CONSUMER_OFFSET: Final = request(14, GroupQueue, OffsetAnswer)
UPDATE_CONSUMER_OFFSET: Final = request(15, OffsetCommit)
SEARCH_OFFSET_BY_TIMESTAMP: Final = request(29, QueueAtTime, OffsetAnswer)
GET_MAX_OFFSET: Final = request(30, QueueOfTopic, OffsetAnswer)
GET_MIN_OFFSET: Final = request(31, QueueOfTopic, OffsetAnswer)
GET_EARLIEST_MSG_STORETIME: Final = request(32, QueueOfTopic, TimestampAnswer)
LOCK_BATCH_MQ: Final = request(41, body=LockRequest, answer_body=LockedQueues)
UNLOCK_BATCH_MQ: Final = request(42, body=LockRequest)


class OfGroup(NamedTuple):
    consumer_group: Group


class SettingsQuery(NamedTuple):
    group: Group


class GroupAndTopic(NamedTuple):
    topic: Topic
    group: Group


class GroupDelete(NamedTuple):
    group_name: Group
    remove_offset: bool = False


class ConsumeStatsQuery(NamedTuple):
    """topic: if empty, all topics of the group."""

    consumer_group: Group
    topic: Topic = ""


class OffsetsCopy(NamedTuple):
    """topic: if empty, all topics of the group."""

    src_group: Group
    dest_group: Group
    topic: Topic = ""
    offline: bool = False


class BrokerConsumeStatsQuery(NamedTuple):
    is_order: bool = False


@dataclass(frozen=True, slots=True)
class TableVersionBody:
    """timestamp: when the table was changed last, in milliseconds."""

    timestamp: I64 = 0
    counter: I64 = 0
    state_version: I64 | None = None
    """Of RocketMQ 5."""


class RetryPolicyType(StrEnum):
    """Of RocketMQ 5."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


@dataclass(frozen=True, slots=True)
class ExponentialRetryPolicy:
    """Lengths in milliseconds; the defaults are RocketMQ's."""

    initial: I64 = 5_000
    max: I64 = 7_200_000
    multiplier: I64 = 2


@dataclass(frozen=True, slots=True)
class CustomizedRetryPolicy:
    """next: lengths in milliseconds, those of the first retry from the third on."""

    next: Annotated[tuple[I64, ...], Count(RETRY_LENGTHS_MAX)]


@dataclass(frozen=True, slots=True)
class GroupRetryPolicy:
    """Without the policy that its type names it asks for the usual one."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionGroup:
    """Body of 200, and part of the answer to 201; the defaults are RocketMQ's."""

    group_name: Group
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: I32 = 1
    retry_max_times: I32 = 16
    broker_id: I64 = 0
    which_broker_when_consume_slowly: I64 = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = None
    """Of RocketMQ 5."""
    group_retry_policy: GroupRetryPolicy | None = None
    """Of RocketMQ 5."""


USUAL_SETTINGS: Final = MappingProxyType({"consumeTimeoutMinute": 15, "groupSysFlag": 0})
"""What RocketMQ 5 sends of a group whose other settings nobody has changed."""


@dataclass(frozen=True, slots=True)
class SubscriptionGroups:
    """Answer to 201."""

    subscription_group_table: Annotated[dict[str, SubscriptionGroup], Count(ENTRIES_MAX)]
    data_version: TableVersionBody


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Answer to 43: by "topic@group", then by queue id.  data_version: a slave of RocketMQ 5 stores
    no offset without one."""

    offset_table: Annotated[
        dict[str, Annotated[dict[int, I64], Count(QUEUES_MAX)]], Count(ENTRIES_MAX)
    ]
    data_version: TableVersionBody | None = None


@dataclass(frozen=True, slots=True)
class ConsumeOffset:
    """last_timestamp: the store time of the last message that was consumed, 0 if unknown."""

    broker_offset: I64
    consumer_offset: I64
    last_timestamp: I64 = 0


@dataclass(frozen=True, slots=True)
class ConsumeStats:
    """Answer to 208."""

    offset_table: Annotated[dict[MessageQueue, ConsumeOffset], Count(ENTRIES_MAX)]
    consume_tps: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokerConsumeStats:
    """Answer to 317: for each group a map with one name, and its stats by topic."""

    broker_addr: Name
    consume_stats_list: Annotated[
        tuple[dict[str, tuple[ConsumeStats, ...]], ...], Count(ENTRIES_MAX)
    ]
    total_diff: I64


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Times in milliseconds; the texts are RocketMQ's, 1969-12-31#23:59:59:999 for -1."""

    message_queue: MessageQueue
    min_time_stamp: I64
    max_time_stamp: I64
    consume_time_stamp: I64
    delay_time: I64
    min_time_stamp_str: Name | None = None
    max_time_stamp_str: Name | None = None
    consume_time_stamp_str: Name | None = None


@dataclass(frozen=True, slots=True)
class TimeSpans:
    """Answer to 303."""

    consume_time_span_set: Annotated[tuple[TimeSpan, ...], Count(ENTRIES_MAX)]


GET_ALL_CONSUMER_OFFSET: Final = request(43, answer_body=GroupOffsets)
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Final = request(200, body=SubscriptionGroup)
GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Final = request(201, answer_body=SubscriptionGroups)
DELETE_SUBSCRIPTIONGROUP: Final = request(207, GroupDelete)
GET_CONSUME_STATS: Final = request(208, ConsumeStatsQuery, answer_body=ConsumeStats)
QUERY_CONSUME_TIME_SPAN: Final = request(303, GroupAndTopic, answer_body=TimeSpans)
GET_SUBSCRIPTIONGROUP_CONFIG: Final = request(352, SettingsQuery, answer_body=SubscriptionGroup)
"""Of RocketMQ 5."""
CLONE_GROUP_OFFSET: Final = request(314, OffsetsCopy)
GET_BROKER_CONSUME_STATS: Final = request(
    317, BrokerConsumeStatsQuery, answer_body=BrokerConsumeStats
)
