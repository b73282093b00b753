"""Works out assignments of large consumer groups in steps, and wakes their members a few at a time.

The members of a small group are all woken at once.
"""

from __future__ import annotations

import asyncio

from rmqlite.broker.tables.membership import SMALL_MEMBERS_MAX, Membership
from rmqlite.clock import WAKE_MS_MAX, Clock
from rmqlite.server.turns import done_in_turns, set_or_late
from rmqlite.server.waiting import Waiting


class Rebalancing:
    """Run by the server until it is cancelled.  heartbeats: the parked heartbeats, by group."""

    def __init__(self, membership: Membership, heartbeats: Waiting, clock: Clock) -> None:
        self._membership = membership
        self._heartbeats = heartbeats
        self._clock = clock
        self._wake = asyncio.Event()
        self._to_tell: set[str] = set()
        membership.on_change.append(self._tell)
        membership.on_stale = self._wake.set

    async def run(self) -> None:
        while True:
            self._wake.clear()
            await self._tell_in_turns()
            due_ms = self._membership.due_ms()
            if due_ms is None:
                await self._wake.wait()
                continue
            wait_ms = due_ms - self._clock.now_ms()
            if wait_ms > 0:
                await set_or_late(self._wake, min(wait_ms, WAKE_MS_MAX) / 1000)
            else:
                await done_in_turns(self._membership.rebalance())

    def _tell(self, group: str) -> None:
        """Wake the members of a group that has a new assignment."""
        if self._heartbeats.count_of(group) <= SMALL_MEMBERS_MAX:
            self._heartbeats.wake((group,))
        else:
            self._to_tell.add(group)
            self._wake.set()

    async def _tell_in_turns(self) -> None:
        while self._to_tell:
            await self._heartbeats.wake_in_turns(self._to_tell.pop())
