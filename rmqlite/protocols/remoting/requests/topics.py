"""Topics: settings, queues, and who reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rmqlite.features.operating.service import DeletionCalls
from rmqlite.kernel.requests.topics import Queue, TopicExtras, TopicInfo
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.names import is_system
from rmqlite.protocols.remoting.bytes.command import Command
from rmqlite.protocols.remoting.bytes.fields import FieldError, Nothing
from rmqlite.protocols.remoting.bytes.requests import topics as codes
from rmqlite.protocols.remoting.bytes.requests.groups import MessageQueue, TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.topics import (
    GroupList,
    OfTopic,
    QueueEntry,
    QueueQuery,
    QueueRangeBody,
    QueueViewBody,
    TopicChange,
    TopicConfig,
    TopicConfigs,
    TopicList,
    TopicStats,
)
from rmqlite.protocols.remoting.calls import Call, answers, large_body
from rmqlite.protocols.remoting.requests.clients import RemotingClients

ENTRIES_MAX: Final = 1_000
"""How many entries of a queue one call gets."""


_IN_FORCE: Final = {
    "message.type": ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED"),
    "queue.type": ("SimpleCQ",),
    "cleanup.policy": ("DELETE",),
    "reserve.time": ("-1",),
}
"""Attributes of RocketMQ 5 with the values that say what a topic does here: it takes messages of
every type."""
OF_EVERY_TYPE: Final = {"message.type": "MIXED"}
"""What RocketMQ's proxy asks for, which refuses all sends to a topic that does not say it."""


class Topics:
    """Requests about topics."""

    def __init__(self, broker_name: str, service: Service, clients: RemotingClients) -> None:
        self._broker_name = broker_name
        self._service = service
        self._clients = clients

    @answers(codes.UPDATE_AND_CREATE_TOPIC)
    async def change(self, call: Call[TopicChange]) -> Command:
        """Create a topic, or give it other settings."""
        asked = call.asked()
        _check_attributes(asked.attributes)
        info = TopicInfo(asked.topic, asked.read_queue_nums, asked.write_queue_nums, asked.perm)
        await self._service.topics.change(info, TopicExtras(asked.order, asked.topic_sys_flag))
        return call.done()

    @answers(codes.DELETE_TOPIC_IN_BROKER)
    async def delete(self, call: Call[OfTopic]) -> Command:
        """Delete a topic; one that does not exist is no error."""
        asked = call.asked()
        await self._service[DeletionCalls].delete(asked.topic)
        return call.done()

    @answers(codes.GET_ALL_TOPIC_CONFIG)
    async def all(self, call: Call[Nothing]) -> Command:
        settings = await self._service.topics.settings()
        counter, changed_at_ms = await self._service.topics.version()
        body = await large_body(
            TopicConfigs({}, TableVersionBody(changed_at_ms, counter)),
            "topic_config_table",
            ((info.topic, _config(info, extras)) for info, extras in settings),
        )
        return call.done(body=body)

    @answers(codes.GET_TOPIC_CONFIG)
    async def one(self, call: Call[OfTopic]) -> Command:
        info, extras = await self._service.topics.settings_of(call.asked().topic)
        return call.done(body=replace(_config(info, extras), attributes=OF_EVERY_TYPE))

    @answers(codes.GET_TOPIC_STATS_INFO)
    async def ranges(self, call: Call[OfTopic]) -> Command:
        """Where each queue that producers send to begins and ends."""
        topic = call.asked().topic
        name = self._broker_name
        ranges = (
            (
                MessageQueue(topic, each.queue.queue_id, name),
                QueueRangeBody(each.min_offset, each.max_offset, each.newest_timestamp_ms),
            )
            for each in await self._service.topics.written_ranges(topic)
        )
        body = await large_body(TopicStats({}), "offset_table", ranges)
        return call.done(body=body)

    @answers(codes.QUERY_TOPIC_CONSUME_BY_WHO)
    async def readers(self, call: Call[OfTopic]) -> Command:
        topic = call.asked().topic
        groups = GroupList(await self._service.groups.readers(topic))
        return call.done(body=groups)

    @answers(codes.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    async def of_system(self, call: Call[Nothing]) -> Command:
        names = [info.topic for info in await self._service.topics.all() if is_system(info.topic)]
        return call.done(body=TopicList(tuple(names)))

    @answers(codes.QUERY_CONSUME_QUEUE)
    async def entries(self, call: Call[QueueQuery]) -> Command:
        """Entries of a queue: place, length, and hash of the tags or deliver time."""
        asked = call.asked()
        queue = Queue(asked.topic, asked.queue_id)
        count = min(asked.entries, ENTRIES_MAX)
        found = await self._service.topics.entries(queue, asked.first_index, count)
        subscription = None
        for consumer in self._clients.consumers(asked.consumer_group).values():
            for each in consumer.data.subscription_data_set:
                if each.topic == asked.topic:
                    subscription = each
        view = QueueViewBody(
            tuple(_entries(found.entries)),
            found.min_offset,
            found.max_offset,
            subscription,
            "null" if asked.consumer_group else None,
        )
        return call.done(body=view)

    @answers(codes.CLEAN_UNUSED_TOPIC)
    async def clean_unused(self, call: Call[Nothing]) -> Command:
        """Delete queues of topics that do not exist."""
        await self._service[DeletionCalls].delete_unused()
        return call.done()

    @answers(codes.CLEAN_EXPIRED_CONSUMEQUEUE, codes.DELETE_EXPIRED_COMMITLOG)
    async def clean(self, call: Call[Nothing]) -> Command:
        """Remove expired files with the next look at the disk, in whatever hour."""
        await self._service.topics.clean()
        return call.done()


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


def _check_attributes(attributes: str) -> None:
    """Raises FieldError for one that is not in force; a -name asks for the usual value."""
    for each in filter(None, attributes.split(",")):
        name, _, value = each.removeprefix("+").partition("=")
        if each.startswith("-") or value in _IN_FORCE.get(name, ()):
            continue
        known = " ".join([f"{name}={'|'.join(values)}" for name, values in _IN_FORCE.items()])
        raise FieldError("attributes", each, f"left out, or of {known}")
