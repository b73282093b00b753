"""Values by namespace and key, which clients ask of a name server."""

from __future__ import annotations

from collections.abc import Mapping

from rmqlite.features.name_server.key_values import KeyValues
from rmqlite.kernel.service.access import admin, anyone, view
from rmqlite.kernel.service.part import Part, ServiceParts


class KeyValueCalls(Part):
    """Calls about values by namespace and key."""

    def __init__(self, parts: ServiceParts) -> None:
        """Raises StoreDamaged for a table that cannot be read."""
        super().__init__(parts)
        self._values = KeyValues(parts.broker.store)

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
        """Do routes name the order configuration of topics?"""
        return self._values.has_order

    @admin
    async def set_order(self, has_order: bool) -> None:
        self._values.set_order(has_order)
        await self._saved()

    @anyone
    async def order_of(self, topic: str) -> str | None:
        """The order configuration that a topic's route names; None: there is none."""
        return self._values.order_of(topic)

    @anyone
    async def orders(self) -> Mapping[str, str] | None:
        """The order configurations of all topics; None: there has never been one."""
        orders = self._values.orders
        return None if orders is None else dict(orders)
