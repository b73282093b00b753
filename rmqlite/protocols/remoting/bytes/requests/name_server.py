"""Requests to the name server: routes, clusters, topics, the key-value table, its settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from rmqlite.protocols.remoting.bytes.fields import I32, I64, Name, Topic, Value, Wire
from rmqlite.protocols.remoting.bytes.requests.broker import KvTable
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.request import NAME_SERVER, Body, request
from rmqlite.protocols.remoting.bytes.requests.topics import TopicList
from rmqlite.protocols.remoting.bytes.shapes import write_body


class KvPair(NamedTuple):
    namespace: Name
    key: Name
    value: Value


class KvKey(NamedTuple):
    namespace: Name
    key: Name


class KvNamespace(NamedTuple):
    namespace: Name


class ValueAnswer(NamedTuple):
    value: Value


class RouteQuery(NamedTuple):
    """A missing topic is answered as one that nobody knows, with code 17."""

    topic: Topic = ""
    is_strict: Annotated[bool, Wire("acceptStandardJsonOnly")] = False


class OfBroker(NamedTuple):
    broker_name: Name


class WipedAnswer(NamedTuple):
    wipe_topic_count: I32


class AddedAnswer(NamedTuple):
    add_topic_count: I32


class TopicDelete(NamedTuple):
    topic: Topic
    cluster_name: Name = ""


class BrokerAtName(NamedTuple):
    """A broker and its address, which others connect to.  broker_id: 0 is the master's."""

    broker_name: Name
    broker_addr: Name
    cluster_name: Name
    broker_id: I64


class RegistrationFields(NamedTuple):
    """body_crc32: registration.crc_of() of the body as it is sent; 0: nobody checks it."""

    broker_name: Name
    broker_addr: Name
    cluster_name: Name
    ha_server_addr: Name
    broker_id: I64
    compressed: bool = False
    body_crc32: I32 = 0


class RegisteredAnswer(NamedTuple):
    """Both only for a broker that is no master, while its master lives."""

    ha_server_addr: Name | None = None
    master_addr: Name | None = None


class TopicsVersion(NamedTuple):
    changed: bool


class OfCluster(NamedTuple):
    cluster: Name


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
class RouteBody:
    """Answer to 105.  Write it strict for clients from version 401 on; all clients read that."""

    broker_datas: tuple[BrokerData, ...]
    queue_datas: tuple[QueueData, ...]
    filter_server_table: dict[str, tuple[Name, ...]]
    order_topic_conf: Value | None = None


def written_route(
    brokers: Iterable[bytes], queues: Iterable[bytes], order_topic_conf: str | None
) -> bytes:
    """A strict Route whose parts are written already."""
    begin, _, rest = write_body(RouteBody((), (), {}, order_topic_conf)).partition(b"[]")
    assert rest.endswith(b'"queueDatas":[]}'), "the fields are in order"
    parts = [begin, b"[", b",".join(brokers), b"]", rest[:-3], b"[", b",".join(queues), b"]}"]
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Answer to 106: brokers by name, and names of brokers by cluster."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, tuple[Name, ...]]


PUT_KV_CONFIG: Final = request(100, KvPair, asked=NAME_SERVER)
GET_KV_CONFIG: Final = request(101, KvKey, ValueAnswer, asked=NAME_SERVER)
DELETE_KV_CONFIG: Final = request(102, KvKey, asked=NAME_SERVER)
REGISTER_BROKER: Final = request(
    103,
    RegistrationFields,
    RegisteredAnswer,
    body=Body.REGISTRATION,
    answer_body=KvTable,
    asked=NAME_SERVER,
)
UNREGISTER_BROKER: Final = request(104, BrokerAtName, asked=NAME_SERVER)
GET_ROUTEINFO_BY_TOPIC: Final = request(105, RouteQuery, answer_body=RouteBody, asked=NAME_SERVER)
GET_BROKER_CLUSTER_INFO: Final = request(106, answer_body=ClusterInfo, asked=NAME_SERVER)
WIPE_WRITE_PERM_OF_BROKER: Final = request(205, OfBroker, WipedAnswer, asked=NAME_SERVER)
GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Final = request(206, answer_body=TopicList, asked=NAME_SERVER)
DELETE_TOPIC_IN_NAMESRV: Final = request(216, TopicDelete, asked=NAME_SERVER)
GET_KVLIST_BY_NAMESPACE: Final = request(219, KvNamespace, answer_body=KvTable, asked=NAME_SERVER)
GET_TOPICS_BY_CLUSTER: Final = request(224, OfCluster, answer_body=TopicList, asked=NAME_SERVER)
GET_SYSTEM_TOPIC_LIST_FROM_NS: Final = request(304, answer_body=TopicList, asked=NAME_SERVER)
UPDATE_NAMESRV_CONFIG: Final = request(318, body=Body.SETTINGS, asked=NAME_SERVER)
GET_NAMESRV_CONFIG: Final = request(319, answer_body=Body.SETTINGS, asked=NAME_SERVER)
QUERY_DATA_VERSION: Final = request(
    322,
    BrokerAtName,
    TopicsVersion,
    body=TableVersionBody,
    answer_body=TableVersionBody,
    asked=NAME_SERVER,
)
ADD_WRITE_PERM_OF_BROKER: Final = request(327, OfBroker, AddedAnswer, asked=NAME_SERVER)
