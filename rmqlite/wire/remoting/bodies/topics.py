"""Bodies about topics, routes and groups' settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from rmqlite.wire.remoting.limits import ENTRIES_MAX
from rmqlite.wire.remoting.names import I32, I64, Count, Group, Name, Topic, Value
from rmqlite.wire.remoting.shapes import write_body


@dataclass(frozen=True, slots=True)
class BrokerData:
    """broker_addrs: address by broker id; clients use that of id 0, the master.

    enable_acting_master: RocketMQ 5's; its client for Rust cannot read a route without it.
    """

    broker_name: Name
    broker_addrs: dict[int, Name]
    cluster: Name
    enable_acting_master: bool | None = None


@dataclass(frozen=True, slots=True)
class QueueData:
    broker_name: Name
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_sys_flag: I32 = 0


@dataclass(frozen=True, slots=True)
class Route:
    """Answer to 105.  Write it strict for clients from version 401 on; all clients read that."""

    broker_datas: tuple[BrokerData, ...]
    queue_datas: tuple[QueueData, ...]
    filter_server_table: dict[str, tuple[Name, ...]]
    order_topic_conf: Value | None = None


def written_route(
    brokers: Iterable[bytes], queues: Iterable[bytes], order_topic_conf: str | None
) -> bytes:
    """A strict Route whose parts are written already."""
    begin, _, rest = write_body(Route((), (), {}, order_topic_conf)).partition(b"[]")
    assert rest.endswith(b'"queueDatas":[]}'), "the fields are in order"
    parts = [begin, b"[", b",".join(brokers), b"]", rest[:-3], b"[", b",".join(queues), b"]}"]
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Answer to 106: brokers by name, and names of brokers by cluster."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, tuple[Name, ...]]


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
class KvTable:
    """Answer to 28 and 219."""

    table: dict[str, Value]


@dataclass(frozen=True, slots=True)
class DataVersion:
    """timestamp: when the table was changed last, in milliseconds."""

    timestamp: I64 = 0
    counter: I64 = 0
    state_version: I64 | None = None
    """Of RocketMQ 5."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    topic_name: Topic
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: Name = "SINGLE_TAG"
    topic_sys_flag: I32 = 0
    order: bool = False


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """Answer to 21."""

    topic_config_table: Annotated[dict[str, TopicConfig], Count(ENTRIES_MAX)]
    data_version: DataVersion


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


@dataclass(frozen=True, slots=True)
class SubscriptionGroups:
    """Answer to 201."""

    subscription_group_table: Annotated[dict[str, SubscriptionGroup], Count(ENTRIES_MAX)]
    data_version: DataVersion
