"""Topics: settings, queues, and who reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.names import is_system
from rmqlite.requests.topics import Queue, TopicExtras, TopicInfo
from rmqlite.server.protocols.remoting.administration.large_bodies import large_body
from rmqlite.server.protocols.remoting.calls import Call, Handler
from rmqlite.server.protocols.remoting.clients import Clients
from rmqlite.server.service.service import Service
from rmqlite.wire.remoting.bodies.clients import QueueView
from rmqlite.wire.remoting.bodies.queues import MessageQueue, QueueEntry, QueueRange, TopicStats
from rmqlite.wire.remoting.bodies.topics import (
    DataVersion,
    GroupList,
    TopicConfig,
    TopicConfigs,
    TopicList,
)
from rmqlite.wire.remoting.codes import administration as codes
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.command import Command
from rmqlite.wire.remoting.shapes import write_body

ENTRIES_MAX: Final = 1_000
"""How many entries of a queue one call gets."""


class Topics:
    """Requests about topics."""

    def __init__(self, broker_name: str, service: Service, clients: Clients) -> None:
        self._broker_name = broker_name
        self._service = service
        self._clients = clients

    def handlers(self) -> dict[int, Handler]:
        return {
            codes.UPDATE_AND_CREATE_TOPIC.code: self.change,
            codes.DELETE_TOPIC_IN_BROKER.code: self.delete,
            codes.GET_ALL_TOPIC_CONFIG.code: self.all,
            codes.GET_TOPIC_STATS_INFO.code: self.ranges,
            codes.QUERY_TOPIC_CONSUME_BY_WHO.code: self.readers,
            codes.GET_SYSTEM_TOPIC_LIST_FROM_BROKER.code: self.of_system,
            codes.QUERY_CONSUME_QUEUE.code: self.entries,
            codes.CLEAN_UNUSED_TOPIC.code: self.clean_unused,
            codes.CLEAN_EXPIRED_CONSUMEQUEUE.code: self.clean,
            codes.DELETE_EXPIRED_COMMITLOG.code: self.clean,
        }

    async def change(self, call: Call) -> Command:
        """Create a topic, or give it other settings."""
        asked = codes.UPDATE_AND_CREATE_TOPIC.fields.read(call.command.ext)
        info = TopicInfo(asked.topic, asked.read_queue_nums, asked.write_queue_nums, asked.perm)
        await self._service.topics.change(info, TopicExtras(asked.order, asked.topic_sys_flag))
        return call.command.answer(ResponseCode.SUCCESS)

    async def delete(self, call: Call) -> Command:
        """Delete a topic; one that does not exist is no error."""
        asked = codes.DELETE_TOPIC_IN_BROKER.fields.read(call.command.ext)
        await self._service.topics.delete(asked.topic)
        return call.command.answer(ResponseCode.SUCCESS)

    async def all(self, call: Call) -> Command:
        settings = await self._service.topics.settings()
        counter, changed_at_ms = await self._service.topics.version()
        body = await large_body(
            TopicConfigs({}, DataVersion(changed_at_ms, counter)),
            "topic_config_table",
            ((info.topic, _config(info, extras)) for info, extras in settings),
        )
        return call.command.answer(ResponseCode.SUCCESS, body=body)

    async def ranges(self, call: Call) -> Command:
        """Where each queue that producers send to begins and ends."""
        topic = codes.GET_TOPIC_STATS_INFO.fields.read(call.command.ext).topic
        name = self._broker_name
        ranges = (
            (
                MessageQueue(topic, each.queue.queue_id, name),
                QueueRange(each.min_offset, each.max_offset, each.newest_timestamp_ms),
            )
            for each in await self._service.topics.written_ranges(topic)
        )
        body = await large_body(TopicStats({}), "offset_table", ranges)
        return call.command.answer(ResponseCode.SUCCESS, body=body)

    async def readers(self, call: Call) -> Command:
        topic = codes.QUERY_TOPIC_CONSUME_BY_WHO.fields.read(call.command.ext).topic
        groups = GroupList(await self._service.groups.readers(topic))
        return call.command.answer(ResponseCode.SUCCESS, body=write_body(groups))

    async def of_system(self, call: Call) -> Command:
        names = [info.topic for info in await self._service.topics.all() if is_system(info.topic)]
        return call.command.answer(ResponseCode.SUCCESS, body=write_body(TopicList(tuple(names))))

    async def entries(self, call: Call) -> Command:
        """Entries of a queue: place, length, and hash of the tags or deliver time."""
        asked = codes.QUERY_CONSUME_QUEUE.fields.read(call.command.ext)
        queue = Queue(asked.topic, asked.queue_id)
        count = min(asked.entries, ENTRIES_MAX)
        found = await self._service.topics.entries(queue, asked.first_index, count)
        subscription = None
        for consumer in self._clients.consumers(asked.consumer_group).values():
            for each in consumer.data.subscription_data_set:
                if each.topic == asked.topic:
                    subscription = each
        view = QueueView(
            tuple(_entries(found.entries)),
            found.min_offset,
            found.max_offset,
            subscription,
            "null" if asked.consumer_group else None,
        )
        return call.command.answer(ResponseCode.SUCCESS, body=write_body(view))

    async def clean_unused(self, call: Call) -> Command:
        """Delete queues of topics that do not exist."""
        await self._service.topics.delete_unused()
        return call.command.answer(ResponseCode.SUCCESS)

    async def clean(self, call: Call) -> Command:
        """Remove expired files with the next look at the disk, in whatever hour."""
        await self._service.topics.clean()
        return call.command.answer(ResponseCode.SUCCESS)


def _config(info: TopicInfo, extras: TopicExtras) -> TopicConfig:
    return TopicConfig(
        info.topic,
        info.read_queues,
        info.write_queues,
        info.perm,
        topic_sys_flag=extras.sys_flag,
        order=extras.is_ordered,
    )


def _entries(found: Iterable[tuple[int, int, int]]) -> Iterable[QueueEntry]:
    for physical_offset, size, tags_code in found:
        yield QueueEntry(physical_offset, size, tags_code)
