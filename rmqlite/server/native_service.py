"""rmqlite.v1.Messaging: convert, call the broker, wait if there is something to wait for."""

from __future__ import annotations

import asyncio

from rmqlite.broker.broker import Broker
from rmqlite.clock import elapsed_s
from rmqlite.config import BrokerConfig
from rmqlite.errors import BrokerClosing, InvalidValue
from rmqlite.requests.bulk import BulkAnswer, BulkRequest
from rmqlite.requests.groups import (
    Assignment,
    HeartbeatRequest,
    LeaveRequest,
    OffsetsCommit,
    OffsetsQuery,
)
from rmqlite.requests.messages import (
    PullRequest,
    PullResult,
    PullStatus,
    SendBackRequest,
    SendBackResult,
    SendRequest,
    SendResult,
)
from rmqlite.requests.topics import Queue, QueueRange, Route, RouteRequest, TimeQuery
from rmqlite.server.calls import peer_host
from rmqlite.server.front import Context, Methods
from rmqlite.server.group_commit import GroupCommit
from rmqlite.server.turns import done_in_turns
from rmqlite.server.waiting import Waiting
from rmqlite.wire import rpcs


class NativeService:
    """What producers and consumers call."""

    def __init__(
        self,
        config: BrokerConfig,
        broker: Broker,
        commit: GroupCommit,
        pulls: Waiting,
        heartbeats: Waiting,
    ) -> None:
        self._config = config
        self._broker = broker
        self._commit = commit
        self._pulls = pulls
        self._heartbeats = heartbeats

    def methods(self) -> Methods:
        return {
            rpcs.GET_ROUTE: self.get_route,
            rpcs.SEND: self.send,
            rpcs.SCHEDULE_BULK: self.schedule_bulk,
            rpcs.PULL: self.pull,
            rpcs.SEND_BACK: self.send_back,
            rpcs.QUERY_OFFSETS: self.query_offsets,
            rpcs.COMMIT_OFFSETS: self.commit_offsets,
            rpcs.SEARCH_OFFSET: self.search_offset,
            rpcs.GET_QUEUE_RANGES: self.get_queue_ranges,
            rpcs.HEARTBEAT: self.heartbeat,
            rpcs.LEAVE: self.leave,
        }

    async def get_route(self, request: RouteRequest, _: Context) -> Route:
        return self._broker.route(request)

    async def send(self, request: SendRequest, context: Context) -> tuple[SendResult, ...]:
        self._check_open()
        results = await done_in_turns(self._broker.send(request, peer_host(context.peer())))
        await self._commit.durable(self._broker.store.end)
        return results

    async def schedule_bulk(self, request: BulkRequest, context: Context) -> BulkAnswer:
        self._check_open()
        answer = await done_in_turns(self._broker.schedule_bulk(request, peer_host(context.peer())))
        # Also for duplicates: what they repeat may not be on disk yet.
        await self._commit.durable(self._broker.store.end)
        return answer

    async def send_back(self, request: SendBackRequest, _: Context) -> SendBackResult:
        self._check_open()
        result = self._broker.send_back(request)
        await self._commit.durable(self._broker.store.end)
        return result

    async def pull(self, request: PullRequest, _: Context) -> PullResult:
        """Messages; while there are none, wait for the queue's next message and look again."""
        self._check_wait(request.wait_ms)
        until_s = elapsed_s() + request.wait_ms / 1000
        while True:
            result = await done_in_turns(self._broker.pull(request))
            left_s = until_s - elapsed_s()
            if result.messages or result.status is PullStatus.OFFSET_MOVED or left_s <= 0:
                return result
            if self._pulls.is_closed:
                return result
            if result.status is PullStatus.NO_NEW_MESSAGE:
                await self._pulls.wait((request.topic, request.queue_id), left_s)
                continue
            if result.next_offset - request.queue_offset >= self._config.filter_scan_max:
                # The consumer learns how far its filter has looked, and can commit that.
                return result
            await self._pulls.wait((request.topic, request.queue_id), left_s)

    async def query_offsets(self, request: OffsetsQuery, _: Context) -> dict[Queue, int]:
        return self._broker.query_offsets(request)

    async def commit_offsets(self, request: OffsetsCommit, _: Context) -> None:
        self._broker.commit_offsets(request)

    async def search_offset(self, request: TimeQuery, _: Context) -> int:
        return self._broker.search_offset(request)

    async def get_queue_ranges(self, topic: str, _: Context) -> tuple[QueueRange, ...]:
        return await done_in_turns(self._broker.queue_ranges(topic))

    async def heartbeat(self, request: HeartbeatRequest, _: Context) -> Assignment:
        """The member's assignment; waits while it is the one the member knows."""
        self._check_open()
        self._check_wait(request.wait_ms)
        assignment = self._broker.heartbeat(request)
        if assignment.epoch != request.known_epoch:
            return assignment
        try:
            await self._heartbeats.wait(request.group, request.wait_ms / 1000)
        except asyncio.CancelledError:
            # The connection is gone: its queues go to the others now, not at the expiry.
            self._broker.membership.leave(request.group, request.client_id)
            raise
        return self._broker.heartbeat(request)

    async def leave(self, request: LeaveRequest, _: Context) -> None:
        self._broker.membership.leave(request.group, request.client_id)

    def _check_wait(self, wait_ms: int) -> None:
        if not 0 <= wait_ms <= self._config.pull_wait_ms_max:
            rule = f"0 to {self._config.pull_wait_ms_max} (maxPullWait)"
            raise InvalidValue("wait_ms", wait_ms, rule)

    def _check_open(self) -> None:
        if self._pulls.is_closed:
            raise BrokerClosing
