"""The part of rmqlite.v1.Admin that sees and changes the schedule.

What takes long is done in steps, and between two of them every other call gets its turn.  A
change is answered when it is on disk.
"""

from __future__ import annotations

from typing import TypeVar

from rmqlite.broker.broker import Broker
from rmqlite.broker.steps import Steps
from rmqlite.requests.schedule import (
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    ChangedPage,
    LevelTimeline,
    PendingCount,
    PendingPage,
    PendingQuery,
    TimelineRequest,
)
from rmqlite.server.front import Context, Methods
from rmqlite.server.group_commit import GroupCommit
from rmqlite.server.turns import done_in_turns
from rmqlite.wire import rpcs

T = TypeVar("T")


class ScheduleService:
    """What waits, and what becomes of it."""

    def __init__(self, broker: Broker, commit: GroupCommit) -> None:
        self._broker = broker
        self._commit = commit

    def methods(self) -> Methods:
        return {
            rpcs.LIST_PENDING: self.list_pending,
            rpcs.COUNT_PENDING: self.count_pending,
            rpcs.GET_TIMELINE: self.get_timeline,
            rpcs.CHANGE_BY_IDS: self.change_by_ids,
            rpcs.CHANGE_BY_FILTER: self.change_by_filter,
        }

    async def list_pending(self, query: PendingQuery, _: Context) -> PendingPage:
        return await done_in_turns(self._broker.pending.pages(query))

    async def count_pending(self, _: None, __: Context) -> tuple[PendingCount, ...]:
        return await done_in_turns(self._broker.pending.counts())

    async def get_timeline(self, request: TimelineRequest, _: Context) -> tuple[LevelTimeline, ...]:
        return await done_in_turns(self._broker.pending.timeline(request))

    async def change_by_ids(self, request: ChangeByIds, _: Context) -> tuple[ChangedId, ...]:
        return await self._durably(self._broker.changes.by_ids(request))

    async def change_by_filter(self, request: ChangeByFilter, _: Context) -> ChangedPage:
        return await self._durably(self._broker.changes.by_filter(request))

    async def _durably(self, steps: Steps[T]) -> T:
        answer = await done_in_turns(steps)
        await self._commit.durable(self._broker.store.end)
        return answer
