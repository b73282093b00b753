"""Leases: messages received one by one, acknowledged, held, failed.

A receive that finds nothing waits.  Of those that wait for messages of one group and topic, only
one is woken at a time: if it leaves messages behind, it wakes the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final, NamedTuple

from rmqlite.features.leases.leases import Leases
from rmqlite.features.leases.request_modes import RequestModes
from rmqlite.features.leases.requests import (
    AckRequest,
    Assigned,
    AssignmentQuery,
    DeadRequest,
    Handle,
    InvisibleChange,
    ReceiveRequest,
    RequestModeChange,
)
from rmqlite.features.leases.taking import Received
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.service.access import (
    Need,
    Right,
    admin,
    group_right,
    needs,
    of_group,
    topic_right,
)
from rmqlite.kernel.service.messages import Looking
from rmqlite.kernel.service.part import Part, ServiceParts
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.names import retry_topic

EVERY_QUEUE: Final = -1


class _Key(NamedTuple):
    """What a call waits for; queue_id: EVERY_QUEUE, or one of the topic's."""

    group: str
    topic: str
    queue_id: int


def _rights(
    request: ReceiveRequest | AckRequest | InvisibleChange | DeadRequest, *_: object
) -> list[Need]:
    return [topic_right(Right.SUB, request.topic), group_right(Right.SUB, request.group)]


class LeaseCalls(Part):
    """Calls of consumers that are given messages one by one."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._leases = parts.broker[Leases]
        self._waiting: dict[str, Counter[_Key]] = {}
        """How many calls wait for messages that lie in a topic, which may be a retry topic."""
        self._leases.table.on_visible = self._visible

    @needs(_rights)
    async def receive(self, request: ReceiveRequest, looking: Looking = nullcontext) -> Received:
        """Lease messages; if there are none, wait for the next one.

        Cancel the call when the client is gone: then nothing is leased to it.
        """
        until_s = self._until_s(request)
        while True:
            async with looking() as found:
                received = await done_in_turns(self._leases.receive(request))
                if found is not None and received.messages:
                    found(sum([len(record.encoded) for record, *_ in received.messages]))
            if received.has_more:
                self._pulls.wake_one(_key(request))
            if received.messages or not await self._waited(request, until_s):
                return received

    @contextmanager
    def answering(self, received: Received) -> Iterator[None]:
        """Write the answer inside: if that fails, its messages are visible again at once."""
        try:
            yield
        except BaseException:
            self._leases.take_back(received)
            raise

    def doubt(self, group: str, client_id: str) -> None:
        """A client's connection is lost, and with it perhaps the newest answers."""
        self._leases.table.doubt(group, client_id)

    @needs(_rights)
    async def peek(self, request: ReceiveRequest) -> tuple[Record, ...]:
        """Messages that receive() would lease, if there are any in time; they stay visible."""
        until_s = self._until_s(request)
        while True:
            found = await done_in_turns(self._leases.peek(request))
            if found:
                # It may have been woken in place of a call that leases them.
                self._pulls.wake_one(_key(request))
            if found or not await self._waited(request, until_s):
                return found

    @needs(_rights)
    async def waiting(self, request: ReceiveRequest) -> int:
        """How many calls wait now for what this one asks for."""
        return self._pulls.count_of(_key(request))

    @needs(_rights)
    async def ack(self, request: AckRequest) -> tuple[bool, ...]:
        """Messages are done; False for each handle that is not valid.  On disk when it returns."""
        found = self._leases.ack(request)
        if any(found):
            await self._durable()
        return found

    @needs(_rights)
    async def change(self, request: InvisibleChange) -> Handle:
        """A message is visible again at another time; its new handle.  Raises HandleInvalid."""
        handle = self._leases.change(request)
        await self._durable()
        return handle

    @needs(_rights)
    async def forward(self, request: DeadRequest) -> None:
        """A message is a dead letter now.  Raises HandleInvalid."""
        self._leases.forward(request)
        await self._durable()

    @of_group(Right.SUB)
    async def release(self, group: str, client_id: str) -> None:
        """What a client has leased is visible again at once, and has not failed."""
        await done_in_turns(self._leases.release(group, client_id))

    # ---- inside

    def _until_s(self, request: ReceiveRequest) -> float:
        """When a call ends that finds nothing.  Raises BrokerClosing, InvalidValue."""
        self._check_open()
        return self._wait_end_s(request.wait_ms)

    async def _waited(self, request: ReceiveRequest, until_s: float) -> bool:
        """Wait until there may be a message; False if the time is over."""
        if until_s <= elapsed_s() or self._pulls.is_closed:
            return False
        await self._wait(_key(request), until_s)
        self._access.check_again(_rights(request), "LeaseCalls.receive")
        return True

    async def _wait(self, key: _Key, until_s: float) -> None:
        """Wait for a message.  Raises Overloaded."""
        topics = key.topic, retry_topic(key.group)
        for name in topics:
            self._waiting.setdefault(name, Counter())[key] += 1
        self._pulls.on_wake = self._appended
        try:
            await self._wait_for(key, until_s)
        except asyncio.CancelledError:
            # It may have been woken: then the next one has to look.
            self._pulls.wake_one(key)
            raise
        finally:
            for name in topics:
                self._waiting[name] -= Counter([key])
                if not self._waiting[name]:
                    del self._waiting[name]
            if not self._waiting:
                self._pulls.on_wake = None

    def _visible(self, group: str, topic: str) -> None:
        for key in self._waiting.get(topic, ()):
            if key.group == group:
                self._pulls.wake_one(key)

    def _appended(self, keys: Collection[Hashable]) -> None:
        """Queues have new messages: one call of each group looks, and one for each queue."""
        woken = {
            key
            for queue in keys
            if isinstance(queue, tuple)
            for key in self._waiting.get(queue[0], ())
            if key.topic != queue[0] or key.queue_id in (EVERY_QUEUE, queue[1])
        }
        for key in woken:
            self._pulls.wake_one(key)


def _key(request: ReceiveRequest) -> _Key:
    return _Key(request.group, request.topic, max(request.queue_id, EVERY_QUEUE))


def _assignment_rights(query: AssignmentQuery) -> list[Need]:
    return [group_right(Right.SUB, query.group), topic_right(Right.SUB, query.topic)]


class ModeCalls(Part):
    """How the members of a group get a topic's messages."""

    @admin
    async def change_mode(self, change: RequestModeChange) -> None:
        """How the members of a group get a topic's messages, from their next rebalancing on."""
        self._broker[RequestModes].change(change)
        await self._saved()

    @needs(_assignment_rights)
    async def assigned(self, query: AssignmentQuery) -> Assigned | None:
        """What a member reads of a topic, and how; None: there is no such topic or member."""
        return self._broker[RequestModes].assigned(query)
