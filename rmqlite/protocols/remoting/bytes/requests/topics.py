"""Requests about topics: settings, queues, and who reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from rmqlite.kernel.words.names import AUTO_CREATE_TOPIC
from rmqlite.protocols.remoting.bytes.fields import (
    ENTRIES_MAX,
    I32,
    I64,
    Count,
    Group,
    Name,
    Topic,
    Wire,
)
from rmqlite.protocols.remoting.bytes.requests.clients import SubscriptionBody
from rmqlite.protocols.remoting.bytes.requests.groups import MessageQueue, TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.request import request


class TopicChange(NamedTuple):
    topic: Topic
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    default_topic: Topic = AUTO_CREATE_TOPIC
    topic_filter_type: Name = "SINGLE_TAG"
    topic_sys_flag: I32 = 0
    order: bool = False
    attributes: str = ""
    """Of RocketMQ 5: +name=value to set one, -name to go back to the usual value."""


class OfTopic(NamedTuple):
    topic: Topic


class QueueQuery(NamedTuple):
    topic: Topic
    queue_id: I32
    first_index: Annotated[I64, Wire("index")]
    entries: Annotated[I32, Wire("count")]
    consumer_group: Group = ""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    topic_name: Topic
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: Name = "SINGLE_TAG"
    topic_sys_flag: I32 = 0
    order: bool = False
    attributes: Annotated[dict[str, str], Count(ENTRIES_MAX)] | None = None
    """Of RocketMQ 5; in an answer to 351 only."""


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """Answer to 21."""

    topic_config_table: Annotated[dict[str, TopicConfig], Count(ENTRIES_MAX)]
    data_version: TableVersionBody


@dataclass(frozen=True, slots=True)
class TopicList:
    """Answer to 206, 224, 304 and 305."""

    topic_list: Annotated[tuple[Topic, ...], Count(ENTRIES_MAX)]
    broker_addr: Name | None = None


@dataclass(frozen=True, slots=True)
class GroupList:
    """Answer to 300."""

    group_list: Annotated[tuple[Group, ...], Count(ENTRIES_MAX)]


@dataclass(frozen=True, slots=True)
class QueueRangeBody:
    min_offset: I64
    max_offset: I64
    last_update_timestamp: I64


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Answer to 202: one entry for each write queue, or mqadmin says that there is none."""

    offset_table: Annotated[dict[MessageQueue, QueueRangeBody], Count(ENTRIES_MAX)]


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """msg: the body of the record, as text."""

    physic_offset: I64
    physic_size: I32
    tags_code: I64
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@dataclass(frozen=True, slots=True)
class QueueViewBody:
    """Answer to 321.  filter_data: "null" if there is a group and no filter."""

    queue_data: Annotated[tuple[QueueEntry, ...], Count(ENTRIES_MAX)]
    min_queue_index: I64
    max_queue_index: I64
    subscription_data: SubscriptionBody | None = None
    filter_data: str | None = None


UPDATE_AND_CREATE_TOPIC: Final = request(17, TopicChange)
DELETE_TOPIC_IN_BROKER: Final = request(215, OfTopic)
GET_ALL_TOPIC_CONFIG: Final = request(21, answer_body=TopicConfigs)
GET_TOPIC_CONFIG: Final = request(351, OfTopic, answer_body=TopicConfig)
"""Of RocketMQ 5."""
GET_TOPIC_STATS_INFO: Final = request(202, OfTopic, answer_body=TopicStats)
QUERY_TOPIC_CONSUME_BY_WHO: Final = request(300, OfTopic, answer_body=GroupList)
GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Final = request(305, answer_body=TopicList)
QUERY_CONSUME_QUEUE: Final = request(321, QueueQuery, answer_body=QueueViewBody)
CLEAN_UNUSED_TOPIC: Final = request(316)
CLEAN_EXPIRED_CONSUMEQUEUE: Final = request(306)
DELETE_EXPIRED_COMMITLOG: Final = request(329)
