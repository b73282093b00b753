"""What tools and administrators ask: figures, the configuration, values at the name server."""

from __future__ import annotations

from collections.abc import Mapping

from rmqlite.broker.counts import Histogram
from rmqlite.broker.settings import Settings
from rmqlite.broker.tables.key_values import KeyValues
from rmqlite.requests.figures import Rate, Rates, Traffic
from rmqlite.server.service.access import admin, anyone, view
from rmqlite.server.service.part import Behind, Part


class FigureCalls(Part):
    """Calls about what the broker does, and how full its disk is."""

    @view
    async def traffic(self) -> Traffic:
        """What the whole broker does."""
        return self._broker.traffic.now()

    @view
    async def of_topic(self, topic: str) -> Rates:
        """Records stored under a topic.  Raises TopicUnknown."""
        self._broker.topics.existing(topic)
        return self._broker.traffic.of_topic(topic)

    @view
    async def of_timers(self) -> tuple[Rate, Rate]:
        """Timers that were stored, and timers that were completed, in the last minute."""
        return self._broker.traffic.of_timers()

    @view
    async def of_group(self, topic: str, group: str) -> Rates:
        """Messages of a topic that a group has taken.  Raises GroupUnknown, TopicUnknown."""
        self._broker.topics.existing(topic)
        self._broker.groups.existing(group)
        return self._broker.traffic.of_group(topic, group)

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


class SettingCalls(Part):
    """Calls about the broker's configuration."""

    def __init__(self, behind: Behind) -> None:
        super().__init__(behind)
        self._settings = Settings(behind.config, behind.broker.levels)

    @view
    async def all(self) -> dict[str, str]:
        """The value in force of each key of broker.conf."""
        return self._settings.all()

    @admin
    async def change(self, wanted: Mapping[str, str]) -> None:
        """Change keys at once, all or none; only messageDelayLevel needs no restart."""
        self._settings.change(wanted)


class KeyValueCalls(Part):
    """Calls about values by namespace and key."""

    def __init__(self, behind: Behind) -> None:
        """Raises StoreDamaged for a table that cannot be read."""
        super().__init__(behind)
        self._values = KeyValues(behind.broker.store)

    @view
    async def of(self, namespace: str) -> Mapping[str, str]:
        return dict(self._values.of(namespace))

    @admin
    async def put(self, namespace: str, key: str, value: str) -> None:
        self._values.put(namespace, key, value)
        await self._saved()

    @admin
    async def delete(self, namespace: str, key: str) -> None:
        self._values.delete(namespace, key)
        await self._saved()

    @anyone
    async def has_order(self) -> bool:
        """Do routes tell the order configuration of topics?"""
        return self._values.has_order

    @admin
    async def set_order(self, has_order: bool) -> None:
        self._values.set_order(has_order)
        await self._saved()

    @anyone
    async def order_of(self, topic: str) -> str | None:
        """The order configuration that a topic's route tells; None: there is none."""
        return self._values.order_of(topic)

    @anyone
    async def orders(self) -> Mapping[str, str] | None:
        """The order configurations of all topics; None: there has never been one."""
        orders = self._values.orders
        return None if orders is None else dict(orders)
