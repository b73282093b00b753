"""Consumer groups: settings, members, assignments, committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from rmqlite.requests.groups import (
    Assignment,
    GroupChange,
    GroupInfo,
    GroupStatus,
    HeartbeatRequest,
    LeaveRequest,
    MemberInfo,
    OffsetsCommit,
    OffsetsQuery,
)
from rmqlite.requests.topics import Queue
from rmqlite.server.front.part import Part
from rmqlite.server.turns import done_in_turns


class GroupCalls(Part):
    """Calls of consumers about their own group, and of administrators about any group."""

    async def all(self) -> tuple[GroupInfo, ...]:
        return self._broker.groups.all()

    async def status(self, group: str) -> GroupStatus:
        """Settings, members, and progress in every queue that the group reads or has read."""
        return await done_in_turns(self._broker.group_status(group))

    async def change(self, change: GroupChange) -> GroupInfo:
        """Change a group's settings, or create the group."""
        return self._broker.groups.change(change)

    async def offsets(self, query: OffsetsQuery) -> dict[Queue, int]:
        """The offsets that a group has committed; queues without one are left out."""
        return self._broker.query_offsets(query)

    async def commit(self, commit: OffsetsCommit) -> None:
        """Store all of these offsets, or none."""
        self._broker.commit_offsets(commit)

    async def heartbeat(self, request: HeartbeatRequest) -> Assignment:
        """The member's assignment; waits up to wait_ms while its epoch is request.known_epoch.

        Cancel the call when the caller's connection ends: then the member leaves at once.
        """
        self._check_open()
        self._check_wait(request.wait_ms)
        await done_in_turns(self._broker.membership.check_sql(request))
        assignment = self._broker.heartbeat(request)
        if assignment.epoch != request.known_epoch:
            return assignment
        try:
            await self._heartbeats.wait(request.group, request.wait_ms / 1000)
        except asyncio.CancelledError:
            # The connection is gone: other members get its queues now, not at the expiry.
            self._broker.membership.leave(request.group, request.client_id)
            raise
        return self._broker.heartbeat(request)

    async def check(self, request: HeartbeatRequest) -> None:
        """Do nothing but raise what heartbeat() would raise for these subscriptions."""
        await done_in_turns(self._broker.membership.check_sql(request))

    async def leave(self, request: LeaveRequest) -> None:
        """Remove the member; the others get its queues."""
        self._broker.membership.leave(request.group, request.client_id)

    def left(self, request: LeaveRequest) -> None:
        """Like leave(), for a caller that cannot wait: its connection is gone."""
        self._broker.membership.leave(request.group, request.client_id)

    async def lock(self, group: str, client_id: str, queues: Collection[Queue]) -> frozenset[Queue]:
        """Keep other members of the group from these queues; those that the member has now."""
        return self._broker.locks.lock(group, client_id, queues)

    async def unlock(self, group: str, client_id: str, queues: Collection[Queue]) -> None:
        """Give queues back; those of other members stay locked."""
        self._broker.locks.unlock(group, client_id, queues)

    async def members(self, group: str) -> tuple[MemberInfo, ...]:
        """The members of a group now; none if no such group exists."""
        return self._broker.membership.members(group)

    def listen(self, changed: Callable[[str], None]) -> None:
        """Call changed(group) after each change of a group's members or of their queues.

        It is called inside the request that made the change, so it must return at once.
        """
        self._broker.membership.on_change.append(changed)
