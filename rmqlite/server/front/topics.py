"""Topics and their queues."""

from __future__ import annotations

from rmqlite.broker.pulling import earliest_ms, queue_range
from rmqlite.requests.topics import Queue, QueueRange, Route, RouteRequest, TimeQuery, TopicInfo
from rmqlite.server.front.part import Part
from rmqlite.server.turns import done_in_turns


class TopicCalls(Part):
    """Calls about topics."""

    async def all(self) -> tuple[TopicInfo, ...]:
        return self._broker.topics.all()

    async def info(self, topic: str) -> TopicInfo | None:
        """A topic's settings; None if there is no such topic."""
        return self._broker.topics.get(topic)

    async def create(self, topic: TopicInfo) -> TopicInfo:
        """Create a topic, or change it."""
        return self._broker.topics.create(topic)

    async def route(self, request: RouteRequest) -> Route:
        """The settings that a client needs before it sends to a topic or reads it."""
        return self._broker.route(request)

    async def queue_ranges(self, topic: str) -> tuple[QueueRange, ...]:
        """The first and the end offset of each queue of a topic."""
        return await done_in_turns(self._broker.queue_ranges(topic))

    async def search_offset(self, query: TimeQuery) -> int:
        """The first queue offset stored at or after a time; the queue's end if there is none."""
        return self._broker.search_offset(query)

    async def first_offset(self, queue: Queue) -> int:
        """The first queue offset that a queue still has; 0 for an unknown queue."""
        return queue_range(self._broker.store, queue).min_offset

    async def end_offset(self, queue: Queue) -> int:
        """The queue offset of the next message of a queue; 0 for an unknown queue."""
        return queue_range(self._broker.store, queue).max_offset

    async def earliest_ms(self, queue: Queue) -> int | None:
        """When the first message that a queue still has was stored; None if it is empty."""
        return earliest_ms(self._broker.store, queue)
