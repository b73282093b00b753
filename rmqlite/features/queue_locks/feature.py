"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from rmqlite.features.queue_locks.queue_locks import QueueLocks
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.service.access import Right, account_of_caller, of_group
from rmqlite.kernel.service.part import Part
from rmqlite.kernel.service.service import Feature


def _make(broker: Broker) -> Iterable[object]:
    yield QueueLocks(broker.parts.config, broker.parts.clock)


class QueueLockCalls(Part):
    """Calls of ordered consumers."""

    @of_group(Right.SUB)
    async def lock(self, group: str, client_id: str, queues: Collection[Queue]) -> frozenset[Queue]:
        """Keep other members of the group from these queues; those that the member has now."""
        return self._broker[QueueLocks].lock(group, client_id, queues, account_of_caller())

    @of_group(Right.SUB)
    async def unlock(self, group: str, client_id: str, queues: Collection[Queue]) -> None:
        """Give queues back; those of other members stay locked."""
        self._broker[QueueLocks].unlock(group, client_id, queues)


FEATURE: Final = Feature(make=_make, calls=(QueueLockCalls,))
