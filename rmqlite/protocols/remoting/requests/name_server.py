"""The name server: routes, clusters and topics of this broker and of those that have registered
(registering.py), and what tools ask and keep there."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from rmqlite.features.name_server.service import KeyValueCalls
from rmqlite.kernel import Steps
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.tables.topics import WRITE
from rmqlite.kernel.words.errors import InvalidValue, TopicUnknown
from rmqlite.kernel.words.names import AUTO_CREATE_TOPIC, is_system
from rmqlite.protocols.remoting.bytes.command import Command, ResponseCode
from rmqlite.protocols.remoting.bytes.fields import Nothing
from rmqlite.protocols.remoting.bytes.registration import RegisteredTopic
from rmqlite.protocols.remoting.bytes.requests import name_server as codes
from rmqlite.protocols.remoting.bytes.requests.broker import KvTable, read_settings, write_settings
from rmqlite.protocols.remoting.bytes.requests.name_server import (
    AddedAnswer,
    BrokerData,
    ClusterInfo,
    KvKey,
    KvNamespace,
    KvPair,
    OfBroker,
    OfCluster,
    QueueData,
    RouteQuery,
    TopicDelete,
    ValueAnswer,
    WipedAnswer,
    written_route,
)
from rmqlite.protocols.remoting.bytes.requests.topics import TopicList
from rmqlite.protocols.remoting.bytes.shapes import write_body
from rmqlite.protocols.remoting.calls import Call, CodeRefusal, answers
from rmqlite.protocols.remoting.large_bodies import large_body
from rmqlite.protocols.remoting.registry import BROKERS_MAX, Addresses, Registrant, Registry

_AUTO_CREATE_PERM = 7
"""Read, write, and inherit: producers may take its queues for a topic that does not exist yet."""
_ORDER: Final = "orderMessageEnable"
_SWITCH: Final = ("false", "true")
_TOPICS_A_STEP: Final = 20_000
"""Names that are added to others within 2 ms."""

log = logging.getLogger(__name__)


class NameServer:
    """Requests to the name server.  own: this broker."""

    def __init__(
        self, config: BrokerConfig, service: Service, own: Registrant, registry: Registry
    ) -> None:
        self._config = config
        self._service = service
        self._own = own
        self._registry = registry
        self._may_write = True
        """False: routes say to producers that they may not send here, until the next start."""
        self._about = own.name, own.cluster, ((own.broker_id, own.address),)

    @answers(codes.GET_ROUTEINFO_BY_TOPIC)
    async def route(self, call: Call[RouteQuery]) -> Command:
        topic = call.asked().topic
        info = await self._own_topic(topic)
        brokers, queues = [], []
        if info is not None:
            perm = info.perm if self._may_write else info.perm & ~WRITE
            row = RegisteredTopic(info.read_queues, info.write_queues, perm)
            brokers.append(_written_broker(*self._about))
            queues.append(_written_queues(self._own.name, row))
        for named in self._registry.named():
            found = named.topic(topic)
            if found is not None:
                brokers.append(_written_broker(named.name, named.cluster, named.addresses))
                queues.append(_written_queues(named.name, found))
        if not brokers:
            raise TopicUnknown(topic)
        order = await self._service[KeyValueCalls].order_of(topic)
        return call.done(body=written_route(brokers, queues, order))

    @answers(codes.GET_BROKER_CLUSTER_INFO)
    async def cluster(self, call: Call[Nothing]) -> Command:
        brokers = {self._own.name: _data_of(*self._about)}
        clusters = {self._own.cluster: [self._own.name]}
        for named in self._registry.named():
            brokers[named.name] = _data_of(named.name, named.cluster, named.addresses)
            clusters.setdefault(named.cluster, []).append(named.name)
        info = ClusterInfo(brokers, {cluster: tuple(names) for cluster, names in clusters.items()})
        return call.done(body=info)

    @answers(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    async def topics(self, call: Call[Nothing]) -> Command:
        return await self._topics_of(call, "")

    @answers(codes.GET_TOPICS_BY_CLUSTER)
    async def topics_of_cluster(self, call: Call[OfCluster]) -> Command:
        cluster = call.asked().cluster
        known = {self._own.cluster, *[named.cluster for named in self._registry.named()]}
        if cluster not in known:
            raise CodeRefusal(ResponseCode.SYSTEM_ERROR, f"no cluster named {cluster}")
        return await self._topics_of(call, cluster)

    @answers(codes.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    async def system_topics(self, call: Call[Nothing]) -> Command:
        """Of other brokers the clusters' and the brokers' names, as RocketMQ's name server does:
        tools ask each broker for its own."""
        names = [info.topic for info in await self._service.topics.all() if is_system(info.topic)]
        others = [name for each in self._registry.named() for name in (each.cluster, each.name)]
        known = tuple(dict.fromkeys([*names, *others]))
        return call.done(body=TopicList(known, self._own.address))

    @answers(codes.DELETE_TOPIC_IN_NAMESRV)
    async def forget_topic(self, call: Call[TopicDelete]) -> Command:
        """From the tables of other brokers: those of this one are its own topics."""
        asked = call.asked()
        self._registry.forget_topic(asked.topic, asked.cluster_name)
        return call.done()

    @answers(codes.WIPE_WRITE_PERM_OF_BROKER)
    async def wipe_write_perm(self, call: Call[OfBroker]) -> Command:
        """Keep producers away: routes have no permission to write any more."""
        name = call.asked().broker_name
        return call.done(WipedAnswer(await self._set_writable(name, may_write=False)))

    @answers(codes.ADD_WRITE_PERM_OF_BROKER)
    async def add_write_perm(self, call: Call[OfBroker]) -> Command:
        """Let producers come again."""
        name = call.asked().broker_name
        return call.done(AddedAnswer(await self._set_writable(name, may_write=True)))

    @answers(codes.GET_NAMESRV_CONFIG)
    async def settings(self, call: Call[Nothing]) -> Command:
        return call.done(body=write_settings(await self._settings()))

    @answers(codes.UPDATE_NAMESRV_CONFIG)
    async def change_settings(self, call: Call[Nothing]) -> Command:
        """Change orderMessageEnable, the one setting that takes effect at once."""
        wanted = read_settings(call.command.body)
        known = await self._settings()
        for key, value in wanted.items():
            if key not in known:
                raise CodeRefusal(ResponseCode.SYSTEM_ERROR, f"{key}={value}: no such key")
            if key != _ORDER and value != known[key]:
                remark = f"{key}={value}: it is {known[key]} until the next start"
                raise CodeRefusal(ResponseCode.NO_PERMISSION, remark)
        order = wanted.get(_ORDER)
        if order not in (None, *_SWITCH):
            raise InvalidValue(_ORDER, order, "true or false")
        if order is not None:
            await self._service[KeyValueCalls].set_order(order == _SWITCH[True])
        return call.done()

    async def _topics(self, call: Call[Any]) -> Command:
        names = tuple([info.topic for info in await self._service.topics.all()])
        return call.done(body=TopicList(names))

    async def _settings(self) -> dict[str, str]:
        return {
            "listenPort": str(self._config.name_server_port),
            "rocketmqHome": str(self._config.store_path),
            "kvConfigPath": str(self._config.store_path / "config" / "kvConfig.json"),
            "productEnvName": "center",
            "clusterTest": "false",
            _ORDER: _SWITCH[await self._service[KeyValueCalls].has_order()],
        }

    async def _set_writable(self, broker_name: str, *, may_write: bool) -> int:
        """The number of topics whose routes it concerns; 0 for a name that nobody has."""
        if broker_name != self._own.name:
            return self._registry.set_writable(broker_name, may_write=may_write)
        self._may_write = may_write
        log.info("routes let producers send here: %s", _SWITCH[may_write])
        return len(await self._service.topics.all())

    async def _own_topic(self, topic: str) -> TopicInfo | None:
        """A topic of this broker, as routes have it."""
        if topic != AUTO_CREATE_TOPIC:
            calls = self._service.topics
            return await calls.info(topic) or await calls.probed(topic)
        if not self._config.auto_create_topic:
            return None
        queues = self._config.default_topic_queues
        return TopicInfo(topic, queues, queues, _AUTO_CREATE_PERM)

    async def _topics_of(self, call: Call[Any], cluster: str) -> Command:
        """All topics, or those of a cluster's brokers."""
        tables: list[Iterable[str]] = []
        if cluster in ("", self._own.cluster):
            tables.append([info.topic for info in await self._service.topics.all()])
        named = self._registry.named()
        tables += [each.topics for each in named if cluster in ("", each.cluster)]
        names = await done_in_turns(_united(tables))
        return call.done(body=await large_body(TopicList(()), "topic_list", names))


def _united(tables: Iterable[Iterable[str]]) -> Steps[list[str]]:
    """Each name once."""
    found: dict[str, None] = {}
    looked = 0
    for names in tables:
        added = dict.fromkeys(names)
        found |= added
        looked += len(added)
        if looked > _TOPICS_A_STEP:
            looked = 0
            yield
    return list(found)


def _data_of(name: str, cluster: str, addresses: Addresses) -> BrokerData:
    return BrokerData(name, dict(addresses), cluster, enable_acting_master=False)


# A route may have 500 of each: kept as they were written they take 0.4 ms, and else 8.
@lru_cache(maxsize=2 * BROKERS_MAX)
def _written_broker(name: str, cluster: str, addresses: Addresses) -> bytes:
    return write_body(_data_of(name, cluster, addresses), is_strict=True)


@lru_cache(maxsize=8 * BROKERS_MAX)
def _written_queues(name: str, topic: RegisteredTopic) -> bytes:
    read, write, perm, sys_flag = topic
    return write_body(QueueData(name, read, write, perm, sys_flag))


class KeyValueRequests:
    """Requests about values that tools keep at the name server."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @answers(codes.PUT_KV_CONFIG)
    async def put(self, call: Call[KvPair]) -> Command:
        asked = call.asked()
        await self._service[KeyValueCalls].put(asked.namespace, asked.key, asked.value)
        return call.done()

    @answers(codes.GET_KV_CONFIG)
    async def get(self, call: Call[KvKey]) -> Command:
        asked = call.asked()
        value = (await self._service[KeyValueCalls].of(asked.namespace)).get(asked.key)
        if value is None:
            remark = f"No config item, Namespace: {asked.namespace} Key: {asked.key}"
            raise CodeRefusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return call.done(ValueAnswer(value))

    @answers(codes.DELETE_KV_CONFIG)
    async def delete(self, call: Call[KvKey]) -> Command:
        asked = call.asked()
        await self._service[KeyValueCalls].delete(asked.namespace, asked.key)
        return call.done()

    @answers(codes.GET_KVLIST_BY_NAMESPACE)
    async def list(self, call: Call[KvNamespace]) -> Command:
        namespace = call.asked().namespace
        values = await self._service[KeyValueCalls].of(namespace)
        if not values:
            remark = f"No config item, Namespace: {namespace}"
            raise CodeRefusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return call.done(body=await large_body(KvTable({}), "table", values.items()))
