"""Requests to the name server: routes, clusters, topics, the key-value table, its settings."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from rmqlite.wire.remoting.bodies.topics import (
    ClusterInfo,
    DataVersion,
    KvTable,
    Route,
    TopicList,
)
from rmqlite.wire.remoting.codes.request import A, Body, Party, Q, Request
from rmqlite.wire.remoting.codes.request import request as asked_of
from rmqlite.wire.remoting.fields import Nothing
from rmqlite.wire.remoting.names import I32, I64, Name, Topic, Value, Wire


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


class RegisteredBroker(NamedTuple):
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


class VersionAnswer(NamedTuple):
    changed: bool


class OfCluster(NamedTuple):
    cluster: Name


def _request(
    code: int,
    name: str,
    fields: type[Q],
    answer: type[A],
    *,
    body: Body | type = Body.NONE,
    answer_body: Body | type = Body.NONE,
) -> Request[Q, A]:
    asked = (Party.NAME_SERVER,)
    return asked_of(code, name, fields, answer, asked=asked, body=body, answer_body=answer_body)


PUT_KV_CONFIG: Final = _request(100, "PUT_KV_CONFIG", KvPair, Nothing)
GET_KV_CONFIG: Final = _request(101, "GET_KV_CONFIG", KvKey, ValueAnswer)
DELETE_KV_CONFIG: Final = _request(102, "DELETE_KV_CONFIG", KvKey, Nothing)
REGISTER_BROKER: Final = _request(
    103,
    "REGISTER_BROKER",
    RegisteredBroker,
    RegisteredAnswer,
    body=Body.REGISTRATION,
    answer_body=KvTable,
)
UNREGISTER_BROKER: Final = _request(104, "UNREGISTER_BROKER", BrokerAtName, Nothing)
GET_ROUTEINFO_BY_TOPIC: Final = _request(
    105, "GET_ROUTEINFO_BY_TOPIC", RouteQuery, Nothing, answer_body=Route
)
GET_BROKER_CLUSTER_INFO: Final = _request(
    106, "GET_BROKER_CLUSTER_INFO", Nothing, Nothing, answer_body=ClusterInfo
)
WIPE_WRITE_PERM_OF_BROKER: Final = _request(205, "WIPE_WRITE_PERM_OF_BROKER", OfBroker, WipedAnswer)
GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Final = _request(
    206, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER", Nothing, Nothing, answer_body=TopicList
)
DELETE_TOPIC_IN_NAMESRV: Final = _request(216, "DELETE_TOPIC_IN_NAMESRV", TopicDelete, Nothing)
GET_KVLIST_BY_NAMESPACE: Final = _request(
    219, "GET_KVLIST_BY_NAMESPACE", KvNamespace, Nothing, answer_body=KvTable
)
GET_TOPICS_BY_CLUSTER: Final = _request(
    224, "GET_TOPICS_BY_CLUSTER", OfCluster, Nothing, answer_body=TopicList
)
GET_SYSTEM_TOPIC_LIST_FROM_NS: Final = _request(
    304, "GET_SYSTEM_TOPIC_LIST_FROM_NS", Nothing, Nothing, answer_body=TopicList
)
UPDATE_NAMESRV_CONFIG: Final = _request(
    318, "UPDATE_NAMESRV_CONFIG", Nothing, Nothing, body=Body.SETTINGS
)
GET_NAMESRV_CONFIG: Final = _request(
    319, "GET_NAMESRV_CONFIG", Nothing, Nothing, answer_body=Body.SETTINGS
)
QUERY_DATA_VERSION: Final = _request(
    322,
    "QUERY_DATA_VERSION",
    BrokerAtName,
    VersionAnswer,
    body=DataVersion,
    answer_body=DataVersion,
)
ADD_WRITE_PERM_OF_BROKER: Final = _request(327, "ADD_WRITE_PERM_OF_BROKER", OfBroker, AddedAnswer)
ROWS: Final[tuple[Request[Any, Any], ...]] = (
    PUT_KV_CONFIG,
    GET_KV_CONFIG,
    DELETE_KV_CONFIG,
    REGISTER_BROKER,
    UNREGISTER_BROKER,
    GET_ROUTEINFO_BY_TOPIC,
    GET_BROKER_CLUSTER_INFO,
    WIPE_WRITE_PERM_OF_BROKER,
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    DELETE_TOPIC_IN_NAMESRV,
    GET_KVLIST_BY_NAMESPACE,
    GET_TOPICS_BY_CLUSTER,
    GET_SYSTEM_TOPIC_LIST_FROM_NS,
    UPDATE_NAMESRV_CONFIG,
    GET_NAMESRV_CONFIG,
    QUERY_DATA_VERSION,
    ADD_WRITE_PERM_OF_BROKER,
)
