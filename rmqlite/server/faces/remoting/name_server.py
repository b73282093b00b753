"""The name server of a cluster that is one broker: routes, and what mqadmin asks about it."""

from __future__ import annotations

from rmqlite.config import BrokerConfig
from rmqlite.errors import TopicUnknown
from rmqlite.message import host_text
from rmqlite.names import AUTO_CREATE_TOPIC, is_system
from rmqlite.requests.topics import TopicInfo
from rmqlite.server.faces.remoting.calls import Call, Handler, Refusal
from rmqlite.server.front.front import Front
from rmqlite.wire.remoting.bodies.topics import (
    BrokerData,
    ClusterInfo,
    QueueData,
    Route,
    TopicList,
)
from rmqlite.wire.remoting.codes import name_server as codes
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.command import Command
from rmqlite.wire.remoting.shapes import write_body

_AUTO_CREATE_PERM = 7
"""Read, write, and inherit: producers may take its queues for a topic that does not exist yet."""


class NameServer:
    """Requests to the name server."""

    def __init__(self, config: BrokerConfig, front: Front) -> None:
        self._config = config
        self._front = front
        self.address = host_text(config.broker_ip, config.listen_port)
        self._broker = BrokerData(config.broker_name, {0: self.address}, config.cluster_name)

    def handlers(self) -> dict[int, Handler]:
        return {
            codes.GET_ROUTEINFO_BY_TOPIC.code: self.route,
            codes.GET_BROKER_CLUSTER_INFO.code: self.cluster,
            codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER.code: self.topics,
            codes.GET_TOPICS_BY_CLUSTER.code: self.topics_of_cluster,
            codes.GET_SYSTEM_TOPIC_LIST_FROM_NS.code: self.system_topics,
        }

    async def route(self, call: Call) -> Command:
        topic = codes.GET_ROUTEINFO_BY_TOPIC.fields.read(call.command.ext).topic
        info = await self._front.topics.info(topic)
        if topic == AUTO_CREATE_TOPIC:
            if not self._config.auto_create_topic:
                raise TopicUnknown(topic)
            queues = self._config.default_topic_queues
            info = TopicInfo(topic, queues, queues, _AUTO_CREATE_PERM)
        if info is None:
            raise TopicUnknown(topic)
        data = QueueData(self._config.broker_name, info.read_queues, info.write_queues, info.perm)
        # All clients read strict JSON, the old ones too.
        body = write_body(Route((self._broker,), (data,), {}), is_strict=True)
        return call.command.answer(ResponseCode.SUCCESS, body=body)

    async def cluster(self, call: Call) -> Command:
        name, cluster = self._config.broker_name, self._config.cluster_name
        info = ClusterInfo({name: self._broker}, {cluster: (name,)})
        return call.command.answer(ResponseCode.SUCCESS, body=write_body(info))

    async def topics(self, call: Call) -> Command:
        names = tuple([info.topic for info in await self._front.topics.all()])
        return call.command.answer(ResponseCode.SUCCESS, body=write_body(TopicList(names)))

    async def topics_of_cluster(self, call: Call) -> Command:
        cluster = codes.GET_TOPICS_BY_CLUSTER.fields.read(call.command.ext).cluster
        if cluster != self._config.cluster_name:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no cluster named {cluster}")
        return await self.topics(call)

    async def system_topics(self, call: Call) -> Command:
        names = [info.topic for info in await self._front.topics.all() if is_system(info.topic)]
        body = write_body(TopicList(tuple(names), self.address))
        return call.command.answer(ResponseCode.SUCCESS, body=body)
