"""Topics and their queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqlite.kernel.pulling import earliest_ms, queue_range, queue_ranges
from rmqlite.kernel.requests.figures import TableVersion
from rmqlite.kernel.requests.topics import (
    Queue,
    QueueEntries,
    QueueRange,
    Route,
    RouteRequest,
    TimeQuery,
    TopicExtras,
    TopicInfo,
)
from rmqlite.kernel.service.access import admin, needs, of_topic, topic_right, view
from rmqlite.kernel.service.part import Part, ServiceParts
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.tables.topics import check_queue
from rmqlite.kernel.words.rights import Need, Right


def _route_rights(request: RouteRequest) -> list[Need]:
    right = Right.PUB if request.create else Right.VIEW
    return [topic_right(right, request.topic)]


_of_queue = needs(lambda queue, *_: [topic_right(Right.VIEW, queue.topic)])


class TopicCalls(Part):
    """Calls about topics."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._other_queues = parts.other_queues

    @view
    async def all(self) -> tuple[TopicInfo, ...]:
        return self._broker.topics.all()

    @of_topic(Right.VIEW)
    async def info(self, topic: str) -> TopicInfo | None:
        """A topic's settings; None if there is no such topic."""
        return self._broker.topics.get(topic)

    @of_topic(Right.SUB)
    async def elsewhere(self, topic: str) -> Mapping[str, int] | None:
        """How many queues of a topic other brokers have, by their names; None: not known now."""
        return await self._other_queues(topic)

    @of_topic(Right.VIEW)
    async def probed(self, topic: str) -> TopicInfo | None:
        """The topic that a send of RocketMQ's tools would make to measure this broker."""
        return self._broker.topics.probed(topic)

    @admin
    async def create(self, topic: TopicInfo) -> TopicInfo:
        """Create a topic, or change it."""
        made = self._broker.topics.create(topic)
        await self._saved()
        return made

    @admin
    async def change(self, topic: TopicInfo, extras: TopicExtras) -> None:
        """Give a topic other settings, or create it."""
        self._broker.topics.change(topic, extras)
        await self._saved()

    @of_topic(Right.VIEW)
    async def extras(self, topic: str) -> TopicExtras:
        """The settings of a topic that only RocketMQ's own tools read."""
        return self._broker.topics.extras(topic)

    @admin
    async def clean(self) -> None:
        """Let the next look at the disk remove old files, in whatever hour."""
        self._broker.retention.is_asked = True

    @needs(lambda queue, *_: [topic_right(Right.VIEW, queue.topic)])
    async def entries(self, queue: Queue, queue_offset: int, count: int) -> QueueEntries:
        """Entries of a queue.  Raises TopicUnknown, QueueUnknown."""
        topic = self._broker.topics.existing(queue.topic)
        check_queue(topic, queue.queue_id, max(topic.read_queues, topic.write_queues))
        stored = self._broker.store.queue(queue.topic, queue.queue_id)
        if stored is None:
            return QueueEntries(0, 0, ())
        begin = max(queue_offset, stored.min_offset)
        return QueueEntries(
            stored.min_offset, stored.max_offset, tuple(stored.read(begin, max(0, count)))
        )

    @of_topic(Right.VIEW)
    async def settings_of(self, topic: str) -> tuple[TopicInfo, TopicExtras]:
        """All settings of a topic.  Raises TopicUnknown."""
        return self._broker.topics.existing(topic), self._broker.topics.extras(topic)

    @view
    async def settings(self) -> Iterator[tuple[TopicInfo, TopicExtras]]:
        """All settings of all topics; take some at a time."""
        topics = self._broker.topics
        return ((info, topics.extras(info.topic)) for info in topics.all())

    @view
    async def version(self) -> TableVersion:
        """The version of the table of topics."""
        return self._broker.topics.version

    @needs(_route_rights)
    async def route(self, request: RouteRequest) -> Route:
        """The settings that a client needs before it sends to a topic or reads it."""
        route = self._broker.route(request)
        await self._saved()
        return route

    @of_topic(Right.VIEW)
    async def queue_ranges(self, topic: str) -> tuple[QueueRange, ...]:
        """The first and the end offset of each queue of a topic."""
        return await done_in_turns(self._broker.queue_ranges(topic))

    @of_topic(Right.VIEW)
    async def written_ranges(self, topic: str) -> tuple[QueueRange, ...]:
        """The same of the queues that producers send to.  Raises TopicUnknown."""
        queues = self._broker.topics.existing(topic).write_queues
        return await done_in_turns(queue_ranges(self._broker.store, topic, queues))

    @needs(lambda query: [topic_right(Right.VIEW, query.queue.topic)])
    async def search_offset(self, query: TimeQuery) -> int:
        """The first queue offset stored at or after a time; the queue's end if there is none."""
        return self._broker.search_offset(query)

    @_of_queue
    async def first_offset(self, queue: Queue) -> int:
        """The first queue offset that a queue still has; 0 for an unknown queue."""
        return queue_range(self._broker.store, queue).min_offset

    @_of_queue
    async def end_offset(self, queue: Queue) -> int:
        """The queue offset of the next message of a queue; 0 for an unknown queue."""
        return queue_range(self._broker.store, queue).max_offset

    @_of_queue
    async def earliest_ms(self, queue: Queue) -> int | None:
        """When the first message that a queue still has was stored; None if it is empty."""
        return earliest_ms(self._broker.store, queue)
