"""Topics and their queues."""

from __future__ import annotations

from rmqlite.requests.topics import QueueRange, Route, RouteRequest, TimeQuery, TopicInfo
from rmqlite.server.front.part import Part
from rmqlite.server.turns import done_in_turns


class TopicCalls(Part):
    """Calls about topics."""

    async def all(self) -> tuple[TopicInfo, ...]:
        return self._broker.topics.all()

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
