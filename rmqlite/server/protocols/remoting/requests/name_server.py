"""The name server of a cluster that is one broker: routes, and what tools ask and keep there."""

from __future__ import annotations

import logging
from typing import Any, Final

from rmqlite.broker.tables.topics import WRITE
from rmqlite.config import BrokerConfig
from rmqlite.errors import InvalidValue, TopicUnknown
from rmqlite.message import host_text
from rmqlite.names import AUTO_CREATE_TOPIC, is_system
from rmqlite.requests.topics import TopicInfo
from rmqlite.server.protocols.remoting.calls import Call, Refusal, answers
from rmqlite.server.protocols.remoting.large_bodies import large_body
from rmqlite.server.service.service import Service
from rmqlite.wire.remoting.command import Command, ResponseCode
from rmqlite.wire.remoting.fields import Nothing
from rmqlite.wire.remoting.requests import name_server as codes
from rmqlite.wire.remoting.requests.broker import KvTable, read_settings, write_settings
from rmqlite.wire.remoting.requests.name_server import (
    AddedAnswer,
    BrokerData,
    ClusterInfo,
    KvKey,
    KvNamespace,
    KvPair,
    OfBroker,
    OfCluster,
    QueueData,
    Route,
    RouteQuery,
    TopicDelete,
    ValueAnswer,
    WipedAnswer,
)
from rmqlite.wire.remoting.requests.topics import TopicList
from rmqlite.wire.remoting.shapes import write_body

_AUTO_CREATE_PERM = 7
"""Read, write, and inherit: producers may take its queues for a topic that does not exist yet."""
_ORDER: Final = "orderMessageEnable"
_SWITCH: Final = ("false", "true")

log = logging.getLogger(__name__)


class NameServer:
    """Requests to the name server."""

    def __init__(self, config: BrokerConfig, service: Service) -> None:
        self._config = config
        self._service = service
        self.address = host_text(config.broker_ip, config.listen_port)
        self._may_write = True
        """False: routes say to producers that they may not send here, until the next start."""
        self._broker = BrokerData(
            config.broker_name, {0: self.address}, config.cluster_name, enable_acting_master=False
        )

    @answers(codes.GET_ROUTEINFO_BY_TOPIC)
    async def route(self, call: Call[RouteQuery]) -> Command:
        topic = call.asked().topic
        info = await self._service.topics.info(topic) or await self._service.topics.probed(topic)
        if topic == AUTO_CREATE_TOPIC:
            if not self._config.auto_create_topic:
                raise TopicUnknown(topic)
            queues = self._config.default_topic_queues
            info = TopicInfo(topic, queues, queues, _AUTO_CREATE_PERM)
        if info is None:
            raise TopicUnknown(topic)
        perm = info.perm if self._may_write else info.perm & ~WRITE
        data = QueueData(self._config.broker_name, info.read_queues, info.write_queues, perm)
        order = await self._service.key_values.order_of(topic)
        # All clients read strict JSON, the old ones too.
        route = Route((self._broker,), (data,), {}, order)
        return call.done(body=write_body(route, is_strict=True))

    @answers(codes.GET_BROKER_CLUSTER_INFO)
    async def cluster(self, call: Call[Nothing]) -> Command:
        name, cluster = self._config.broker_name, self._config.cluster_name
        return call.done(body=ClusterInfo({name: self._broker}, {cluster: (name,)}))

    @answers(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    async def topics(self, call: Call[Nothing]) -> Command:
        return await self._topics(call)

    @answers(codes.GET_TOPICS_BY_CLUSTER)
    async def topics_of_cluster(self, call: Call[OfCluster]) -> Command:
        cluster = call.asked().cluster
        if cluster != self._config.cluster_name:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no cluster named {cluster}")
        return await self._topics(call)

    @answers(codes.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    async def system_topics(self, call: Call[Nothing]) -> Command:
        names = [info.topic for info in await self._service.topics.all() if is_system(info.topic)]
        return call.done(body=TopicList(tuple(names), self.address))

    @answers(codes.DELETE_TOPIC_IN_NAMESRV)
    async def forget_topic(self, call: Call[TopicDelete]) -> Command:
        """Nothing to do: routes are made of the broker's own topics."""
        call.asked()
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
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"{key}={value}: no such key")
            if key != _ORDER and value != known[key]:
                remark = f"{key}={value}: it is {known[key]} until the next start"
                raise Refusal(ResponseCode.NO_PERMISSION, remark)
        order = wanted.get(_ORDER)
        if order not in (None, *_SWITCH):
            raise InvalidValue(_ORDER, order, "true or false")
        if order is not None:
            await self._service.key_values.set_order(order == _SWITCH[True])
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
            _ORDER: _SWITCH[await self._service.key_values.has_order()],
        }

    async def _set_writable(self, broker_name: str, *, may_write: bool) -> int:
        """The number of topics whose routes it concerns; 0 for another broker's name."""
        if broker_name != self._config.broker_name:
            return 0
        self._may_write = may_write
        log.info("routes let producers send here: %s", _SWITCH[may_write])
        return len(await self._service.topics.all())


class KeyValues:
    """Requests about values that tools keep at the name server."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @answers(codes.PUT_KV_CONFIG)
    async def put(self, call: Call[KvPair]) -> Command:
        asked = call.asked()
        await self._service.key_values.put(asked.namespace, asked.key, asked.value)
        return call.done()

    @answers(codes.GET_KV_CONFIG)
    async def get(self, call: Call[KvKey]) -> Command:
        asked = call.asked()
        value = (await self._service.key_values.of(asked.namespace)).get(asked.key)
        if value is None:
            remark = f"No config item, Namespace: {asked.namespace} Key: {asked.key}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return call.done(ValueAnswer(value))

    @answers(codes.DELETE_KV_CONFIG)
    async def delete(self, call: Call[KvKey]) -> Command:
        asked = call.asked()
        await self._service.key_values.delete(asked.namespace, asked.key)
        return call.done()

    @answers(codes.GET_KVLIST_BY_NAMESPACE)
    async def list(self, call: Call[KvNamespace]) -> Command:
        namespace = call.asked().namespace
        values = await self._service.key_values.of(namespace)
        if not values:
            remark = f"No config item, Namespace: {namespace}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return call.done(body=await large_body(KvTable({}), "table", values.items()))
