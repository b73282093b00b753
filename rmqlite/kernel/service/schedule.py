"""The delay levels: how far each is delivered, and which are in force.

A change is answered when it is on disk.
"""

from __future__ import annotations

from rmqlite.kernel.records.wait_queues import queue_of
from rmqlite.kernel.requests.schedule import LevelsChange, LevelsChanged, LevelsInForce
from rmqlite.kernel.service.access import admin, anyone, view
from rmqlite.kernel.service.part import Part


class ScheduleCalls(Part):
    """Calls about the schedule."""

    @view
    async def delivered(self) -> dict[int, int]:
        """The queue offset up to which each level is delivered."""
        return self._broker.store.progress.delay_offsets()

    @view
    async def positions(self) -> dict[int, tuple[int, int]]:
        """The same, and the end of each level's queue; without empty levels."""
        store = self._broker.store
        delivered = store.progress.delay_offsets()
        return {
            status.level: (delivered.get(status.level, 0), queue.max_offset)
            for status in self._broker.wait_queues.status()
            if (queue := store.queue(*queue_of(status.level))) is not None
        }

    @anyone
    async def levels(self) -> LevelsInForce:
        return self._broker.levels.in_force()

    @admin
    async def change_levels(self, change: LevelsChange) -> LevelsChanged:
        async with self._alone():
            return self._broker.levels.change(change)
