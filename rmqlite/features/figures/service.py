"""Calls about what the broker does, and how full its disk is."""

from __future__ import annotations

from rmqlite.features.figures.requests import Rate, Rates, TrafficFigures
from rmqlite.features.figures.traffic import Traffic
from rmqlite.kernel.counts import Histogram
from rmqlite.kernel.service.access import view
from rmqlite.kernel.service.part import Part


class FigureCalls(Part):
    """Calls about what the broker does, and how full its disk is."""

    @view
    async def traffic(self) -> TrafficFigures:
        """What the whole broker does."""
        return self._broker[Traffic].now()

    @view
    async def of_topic(self, topic: str) -> Rates:
        """Records stored under a topic.  Raises TopicUnknown."""
        self._broker.topics.existing(topic)
        return self._broker[Traffic].of_topic(topic)

    @view
    async def of_timers(self) -> tuple[Rate, Rate]:
        """Timers that were stored, and timers that were completed, in the last minute."""
        return self._broker[Traffic].of_timers()

    @view
    async def of_group(self, topic: str, group: str) -> Rates:
        """Messages of a topic that a group has taken.  Raises GroupUnknown, TopicUnknown."""
        self._broker.topics.existing(topic)
        self._broker.groups.existing(group)
        return self._broker[Traffic].of_group(topic, group)

    @view
    async def appends(self) -> Histogram:
        """How long the appends of calls and jobs took."""
        return self._broker.counts.appends.histogram()

    @view
    async def refused_sends(self) -> int:
        """How many sends were refused since the start because the disk was full."""
        return self._broker.retention.sends_refused

    @view
    async def unsynced_bytes(self) -> int:
        """Bytes of the log that are not on disk yet."""
        return self._broker.store.end - self._broker.store.durable_end

    @view
    async def disk(self) -> tuple[int, int]:
        """Bytes of the store's disk, and how many of them are free."""
        return self._broker.store.disk_bytes()

    @view
    async def first_stored_ms(self) -> int | None:
        """When the first record that the log still has was stored; None if there is none."""
        store = self._broker.store
        return store.store_timestamp_ms(store.min_offset)
