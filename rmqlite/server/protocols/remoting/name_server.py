"""The name server of a cluster that is one broker: routes, and what tools ask and keep there."""

from __future__ import annotations

import logging
from typing import Final

from rmqlite.broker.tables.topics import WRITE
from rmqlite.config import BrokerConfig
from rmqlite.errors import InvalidValue, TopicUnknown
from rmqlite.message import host_text
from rmqlite.names import AUTO_CREATE_TOPIC, is_system
from rmqlite.requests.topics import TopicInfo
from rmqlite.server.protocols.remoting.administration.large_bodies import large_body
from rmqlite.server.protocols.remoting.calls import Call, Handler, Refusal
from rmqlite.server.service.service import Service
from rmqlite.wire.remoting.bodies.topics import (
    BrokerData,
    ClusterInfo,
    KvTable,
    QueueData,
    Route,
    TopicList,
)
from rmqlite.wire.remoting.codes import name_server as codes
from rmqlite.wire.remoting.codes.name_server import AddedAnswer, ValueAnswer, WipedAnswer
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.command import Command
from rmqlite.wire.remoting.settings_text import read_settings, write_settings
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
        """False: routes tell producers that they may not send here, until the next start."""
        self._broker = BrokerData(
            config.broker_name, {0: self.address}, config.cluster_name, enable_acting_master=False
        )

    def handlers(self) -> dict[int, Handler]:
        return {
            codes.GET_ROUTEINFO_BY_TOPIC.code: self.route,
            codes.GET_BROKER_CLUSTER_INFO.code: self.cluster,
            codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER.code: self.topics,
            codes.GET_TOPICS_BY_CLUSTER.code: self.topics_of_cluster,
            codes.GET_SYSTEM_TOPIC_LIST_FROM_NS.code: self.system_topics,
            codes.DELETE_TOPIC_IN_NAMESRV.code: self.forget_topic,
            codes.WIPE_WRITE_PERM_OF_BROKER.code: self.wipe_write_perm,
            codes.ADD_WRITE_PERM_OF_BROKER.code: self.add_write_perm,
            codes.GET_NAMESRV_CONFIG.code: self.settings,
            codes.UPDATE_NAMESRV_CONFIG.code: self.change_settings,
        }

    async def route(self, call: Call) -> Command:
        topic = codes.GET_ROUTEINFO_BY_TOPIC.fields.read(call.command.ext).topic
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
        body = write_body(Route((self._broker,), (data,), {}, order), is_strict=True)
        return call.command.answer(ResponseCode.SUCCESS, body=body)

    async def cluster(self, call: Call) -> Command:
        name, cluster = self._config.broker_name, self._config.cluster_name
        info = ClusterInfo({name: self._broker}, {cluster: (name,)})
        return call.command.answer(ResponseCode.SUCCESS, body=write_body(info))

    async def topics(self, call: Call) -> Command:
        names = tuple([info.topic for info in await self._service.topics.all()])
        return call.command.answer(ResponseCode.SUCCESS, body=write_body(TopicList(names)))

    async def topics_of_cluster(self, call: Call) -> Command:
        cluster = codes.GET_TOPICS_BY_CLUSTER.fields.read(call.command.ext).cluster
        if cluster != self._config.cluster_name:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no cluster named {cluster}")
        return await self.topics(call)

    async def system_topics(self, call: Call) -> Command:
        names = [info.topic for info in await self._service.topics.all() if is_system(info.topic)]
        body = write_body(TopicList(tuple(names), self.address))
        return call.command.answer(ResponseCode.SUCCESS, body=body)

    async def forget_topic(self, call: Call) -> Command:
        """Nothing to do: routes are made of the broker's own topics."""
        codes.DELETE_TOPIC_IN_NAMESRV.fields.read(call.command.ext)
        return call.command.answer(ResponseCode.SUCCESS)

    async def wipe_write_perm(self, call: Call) -> Command:
        """Keep producers away: routes have no permission to write any more."""
        asked = codes.WIPE_WRITE_PERM_OF_BROKER.fields.read(call.command.ext)
        changed = await self._set_writable(asked.broker_name, may_write=False)
        ext = codes.WIPE_WRITE_PERM_OF_BROKER.answer.write(WipedAnswer(changed))
        return call.command.answer(ResponseCode.SUCCESS, ext)

    async def add_write_perm(self, call: Call) -> Command:
        """Let producers come again."""
        asked = codes.ADD_WRITE_PERM_OF_BROKER.fields.read(call.command.ext)
        changed = await self._set_writable(asked.broker_name, may_write=True)
        ext = codes.ADD_WRITE_PERM_OF_BROKER.answer.write(AddedAnswer(changed))
        return call.command.answer(ResponseCode.SUCCESS, ext)

    async def settings(self, call: Call) -> Command:
        body = write_settings(await self._settings())
        return call.command.answer(ResponseCode.SUCCESS, body=body)

    async def change_settings(self, call: Call) -> Command:
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
        return call.command.answer(ResponseCode.SUCCESS)

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

    def handlers(self) -> dict[int, Handler]:
        return {
            codes.PUT_KV_CONFIG.code: self.put,
            codes.GET_KV_CONFIG.code: self.get,
            codes.DELETE_KV_CONFIG.code: self.delete,
            codes.GET_KVLIST_BY_NAMESPACE.code: self.list,
        }

    async def put(self, call: Call) -> Command:
        asked = codes.PUT_KV_CONFIG.fields.read(call.command.ext)
        await self._service.key_values.put(asked.namespace, asked.key, asked.value)
        return call.command.answer(ResponseCode.SUCCESS)

    async def get(self, call: Call) -> Command:
        asked = codes.GET_KV_CONFIG.fields.read(call.command.ext)
        value = (await self._service.key_values.of(asked.namespace)).get(asked.key)
        if value is None:
            remark = f"No config item, Namespace: {asked.namespace} Key: {asked.key}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        ext = codes.GET_KV_CONFIG.answer.write(ValueAnswer(value))
        return call.command.answer(ResponseCode.SUCCESS, ext)

    async def delete(self, call: Call) -> Command:
        asked = codes.DELETE_KV_CONFIG.fields.read(call.command.ext)
        await self._service.key_values.delete(asked.namespace, asked.key)
        return call.command.answer(ResponseCode.SUCCESS)

    async def list(self, call: Call) -> Command:
        namespace = codes.GET_KVLIST_BY_NAMESPACE.fields.read(call.command.ext).namespace
        values = await self._service.key_values.of(namespace)
        if not values:
            remark = f"No config item, Namespace: {namespace}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        body = await large_body(KvTable({}), "table", values.items())
        return call.command.answer(ResponseCode.SUCCESS, body=body)
