"""Requests of mqadmin and other tools to the broker: topics, groups, offsets, settings, figures."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from rmqlite.names import AUTO_CREATE_TOPIC
from rmqlite.wire.remoting.bodies.clients import (
    ConsumerConnections,
    ProducerConnections,
    Producers,
    QueueView,
)
from rmqlite.wire.remoting.bodies.queues import (
    BrokerConsumeStats,
    BrokerStats,
    ClientsOffsets,
    ConsumeStats,
    DelayOffsets,
    GroupOffsets,
    OffsetTable,
    TimerMetrics,
    TimeSpans,
    TopicStats,
)
from rmqlite.wire.remoting.bodies.topics import (
    GroupList,
    KvTable,
    SubscriptionGroup,
    SubscriptionGroups,
    TopicConfigs,
    TopicList,
)
from rmqlite.wire.remoting.codes.consuming import GroupAndTopic, OfGroup, ResetOffset
from rmqlite.wire.remoting.codes.request import Body, Request, request
from rmqlite.wire.remoting.fields import Nothing
from rmqlite.wire.remoting.names import I32, I64, ClientId, Group, Name, Topic, Wire


class TopicChange(NamedTuple):
    topic: Topic
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    default_topic: Topic = AUTO_CREATE_TOPIC
    topic_filter_type: Name = "SINGLE_TAG"
    topic_sys_flag: I32 = 0
    order: bool = False


class OfTopic(NamedTuple):
    topic: Topic


class OfProducerGroup(NamedTuple):
    producer_group: Group


class GroupDelete(NamedTuple):
    group_name: Group
    remove_offset: bool = False


class ConsumeStatsQuery(NamedTuple):
    """topic: if empty, all topics of the group."""

    consumer_group: Group
    topic: Topic = ""


class ConsumerStatusQuery(NamedTuple):
    """client_addr: if empty, all clients."""

    topic: Topic
    group: Group
    client_addr: ClientId = ""


class OffsetsCopy(NamedTuple):
    """topic: if empty, all topics of the group."""

    src_group: Group
    dest_group: Group
    topic: Topic = ""
    offline: bool = False


class StatsQuery(NamedTuple):
    """stats_key: a topic, or topic@group."""

    stats_name: Name
    stats_key: str


class BrokerConsumeStatsQuery(NamedTuple):
    is_order: bool = False


class QueueQuery(NamedTuple):
    topic: Topic
    queue_id: I32
    first_index: Annotated[I64, Wire("index")]
    entries: Annotated[I32, Wire("count")]
    consumer_group: Group = ""


class VersionAnswer(NamedTuple):
    """version: the JSON of a DataVersion."""

    version: str


UPDATE_AND_CREATE_TOPIC: Final = request(17, "UPDATE_AND_CREATE_TOPIC", TopicChange, Nothing)
GET_ALL_TOPIC_CONFIG: Final = request(
    21, "GET_ALL_TOPIC_CONFIG", Nothing, Nothing, answer_body=TopicConfigs
)
UPDATE_BROKER_CONFIG: Final = request(
    25, "UPDATE_BROKER_CONFIG", Nothing, Nothing, body=Body.SETTINGS
)
GET_BROKER_CONFIG: Final = request(
    26, "GET_BROKER_CONFIG", Nothing, VersionAnswer, answer_body=Body.SETTINGS
)
GET_BROKER_RUNTIME_INFO: Final = request(
    28, "GET_BROKER_RUNTIME_INFO", Nothing, Nothing, answer_body=KvTable
)
GET_ALL_CONSUMER_OFFSET: Final = request(
    43, "GET_ALL_CONSUMER_OFFSET", Nothing, Nothing, answer_body=GroupOffsets
)
GET_ALL_DELAY_OFFSET: Final = request(
    45, "GET_ALL_DELAY_OFFSET", Nothing, Nothing, answer_body=DelayOffsets
)
GET_TIMER_CHECK_POINT: Final = request(
    60, "GET_TIMER_CHECK_POINT", Nothing, Nothing, answer_body=Body.LONGS
)
GET_TIMER_METRICS: Final = request(
    61, "GET_TIMER_METRICS", Nothing, Nothing, answer_body=TimerMetrics
)
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Final = request(
    200, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", Nothing, Nothing, body=SubscriptionGroup
)
GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Final = request(
    201, "GET_ALL_SUBSCRIPTIONGROUP_CONFIG", Nothing, Nothing, answer_body=SubscriptionGroups
)
GET_TOPIC_STATS_INFO: Final = request(
    202, "GET_TOPIC_STATS_INFO", OfTopic, Nothing, answer_body=TopicStats
)
GET_CONSUMER_CONNECTION_LIST: Final = request(
    203, "GET_CONSUMER_CONNECTION_LIST", OfGroup, Nothing, answer_body=ConsumerConnections
)
GET_PRODUCER_CONNECTION_LIST: Final = request(
    204, "GET_PRODUCER_CONNECTION_LIST", OfProducerGroup, Nothing, answer_body=ProducerConnections
)
DELETE_SUBSCRIPTIONGROUP: Final = request(207, "DELETE_SUBSCRIPTIONGROUP", GroupDelete, Nothing)
GET_CONSUME_STATS: Final = request(
    208, "GET_CONSUME_STATS", ConsumeStatsQuery, Nothing, answer_body=ConsumeStats
)
DELETE_TOPIC_IN_BROKER: Final = request(215, "DELETE_TOPIC_IN_BROKER", OfTopic, Nothing)
INVOKE_BROKER_TO_RESET_OFFSET: Final = request(
    222, "INVOKE_BROKER_TO_RESET_OFFSET", ResetOffset, Nothing, answer_body=OffsetTable
)
INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Final = request(
    223,
    "INVOKE_BROKER_TO_GET_CONSUMER_STATUS",
    ConsumerStatusQuery,
    Nothing,
    answer_body=ClientsOffsets,
)
QUERY_TOPIC_CONSUME_BY_WHO: Final = request(
    300, "QUERY_TOPIC_CONSUME_BY_WHO", OfTopic, Nothing, answer_body=GroupList
)
QUERY_CONSUME_TIME_SPAN: Final = request(
    303, "QUERY_CONSUME_TIME_SPAN", GroupAndTopic, Nothing, answer_body=TimeSpans
)
GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Final = request(
    305, "GET_SYSTEM_TOPIC_LIST_FROM_BROKER", Nothing, Nothing, answer_body=TopicList
)
CLEAN_EXPIRED_CONSUMEQUEUE: Final = request(306, "CLEAN_EXPIRED_CONSUMEQUEUE", Nothing, Nothing)
CLONE_GROUP_OFFSET: Final = request(314, "CLONE_GROUP_OFFSET", OffsetsCopy, Nothing)
VIEW_BROKER_STATS_DATA: Final = request(
    315, "VIEW_BROKER_STATS_DATA", StatsQuery, Nothing, answer_body=BrokerStats
)
CLEAN_UNUSED_TOPIC: Final = request(316, "CLEAN_UNUSED_TOPIC", Nothing, Nothing)
GET_BROKER_CONSUME_STATS: Final = request(
    317,
    "GET_BROKER_CONSUME_STATS",
    BrokerConsumeStatsQuery,
    Nothing,
    answer_body=BrokerConsumeStats,
)
QUERY_CONSUME_QUEUE: Final = request(
    321, "QUERY_CONSUME_QUEUE", QueueQuery, Nothing, answer_body=QueueView
)
GET_ALL_PRODUCER_INFO: Final = request(
    328, "GET_ALL_PRODUCER_INFO", Nothing, Nothing, answer_body=Producers
)
DELETE_EXPIRED_COMMITLOG: Final = request(329, "DELETE_EXPIRED_COMMITLOG", Nothing, Nothing)
ROWS: Final[tuple[Request[Any, Any], ...]] = (
    UPDATE_AND_CREATE_TOPIC,
    GET_ALL_TOPIC_CONFIG,
    UPDATE_BROKER_CONFIG,
    GET_BROKER_CONFIG,
    GET_BROKER_RUNTIME_INFO,
    GET_ALL_CONSUMER_OFFSET,
    GET_ALL_DELAY_OFFSET,
    GET_TIMER_CHECK_POINT,
    GET_TIMER_METRICS,
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    GET_TOPIC_STATS_INFO,
    GET_CONSUMER_CONNECTION_LIST,
    GET_PRODUCER_CONNECTION_LIST,
    DELETE_SUBSCRIPTIONGROUP,
    GET_CONSUME_STATS,
    DELETE_TOPIC_IN_BROKER,
    INVOKE_BROKER_TO_RESET_OFFSET,
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    QUERY_TOPIC_CONSUME_BY_WHO,
    QUERY_CONSUME_TIME_SPAN,
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    CLEAN_EXPIRED_CONSUMEQUEUE,
    CLONE_GROUP_OFFSET,
    VIEW_BROKER_STATS_DATA,
    CLEAN_UNUSED_TOPIC,
    GET_BROKER_CONSUME_STATS,
    QUERY_CONSUME_QUEUE,
    GET_ALL_PRODUCER_INFO,
    DELETE_EXPIRED_COMMITLOG,
)
