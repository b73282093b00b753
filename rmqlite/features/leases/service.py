"""Leases: messages received one by one, acknowledged, held, failed.

A receive that finds nothing waits.  Of those that wait for messages of one group and topic, only
one is woken at a time: if it leaves messages behind, it wakes the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final, NamedTuple

from rmqlite.features.leases.leases import Leases
from rmqlite.features.leases.request_modes import RequestModes
from rmqlite.features.leases.requests import (
    AckRequest,
    Assigned,
    AssignmentQuery,
    FailRequest,
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
    view,
)
from rmqlite.kernel.service.messages import Looking
from rmqlite.kernel.service.part import Part, ServiceParts
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.names import retry_topic

EVERY_QUEUE: Final = -1


class _Key(NamedTuple):
    """What a call waits for; queue_id: EVERY_QUEUE, or one of each topic's."""

    group: str
    topics: tuple[str, ...]
    queue_id: int


def _rights(
    request: ReceiveRequest | AckRequest | InvisibleChange | FailRequest, *_: object
) -> list[Need]:
    return [topic_right(Right.SUB, request.topic), group_right(Right.SUB, request.group)]


def _rights_of_any(requests: Sequence[ReceiveRequest], *_: object) -> list[Need]:
    return [need for each in requests for need in _rights(each)]


class LeaseCalls(Part):
    """Calls of consumers that are given messages one by one."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._leases = parts.broker[Leases]
        self._waiting: dict[str, Counter[_Key]] = {}
        """How many calls wait for messages that lie in a topic, which may be a retry topic."""
        self._leases.table.on_visible = self._visible
        self._turn = 0

    @needs(_rights)
    async def receive(self, request: ReceiveRequest, looking: Looking = nullcontext) -> Received:
        """Lease messages; if there are none, wait for the next one.

        Cancel the call when the client is gone: then nothing is leased to it.
        """
        return await self._received([request], looking)

    @needs(_rights_of_any)
    async def receive_any(
        self, requests: Sequence[ReceiveRequest], looking: Looking = nullcontext
    ) -> Received:
        """receive() of the first request that finds messages; they differ in what they subscribe
        to, and another one is the first each time.
        """
        self._turn += 1
        at = self._turn % len(requests)
        known = self._leases.table.of_attempt(requests[0].group, requests[0].attempt_id)
        in_turn = [*requests[at:], *requests[:at]]
        if known is not None:
            in_turn.sort(key=lambda each: each.topic != known.topic)
        return await self._received(in_turn, looking)

    async def _received(self, requests: Sequence[ReceiveRequest], looking: Looking) -> Received:
        key, until_s = _key(*requests), self._until_s(requests[0])
        while True:
            limit: Hashable = None
            async with looking() as found:
                for request in requests:
                    received = await done_in_turns(self._leases.receive(request))
                    limit = limit or received.waits_for
                    if received.messages:
                        break
                if found is not None and received.messages:
                    found(sum([len(record.encoded) for record, *_ in received.messages]))
            if received.has_more or (limit is not None and until_s <= elapsed_s()):
                self._pulls.wake_one(key)
            if received.messages or not await self._waited(key, until_s, limit):
                return received
            self._access.check_again(_rights_of_any(requests), "LeaseCalls.receive")

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
            if found or not await self._waited(_key(request), until_s):
                return found
            self._access.check_again(_rights(request), "LeaseCalls.receive")

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
    async def fail(self, request: FailRequest) -> None:
        """A message is a retry, or a dead letter now.  Raises HandleInvalid."""
        self._leases.fail(request)
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

    async def _waited(self, key: _Key, until_s: float, limit: Hashable = None) -> bool:
        """Wait until there may be a message; False if the time is over."""
        if until_s <= elapsed_s() or self._pulls.is_closed:
            return False
        await self._wait(key, until_s, limit)
        return True

    async def _wait(self, key: _Key, until_s: float, limit: Hashable) -> None:
        """Wait for a message, or for a rate limit that holds it back.  Raises Overloaded."""
        topics = *key.topics, retry_topic(key.group)
        for name in topics:
            self._waiting.setdefault(name, Counter())[key] += 1
        self._pulls.on_wake = self._appended
        try:
            await self._wait_for(limit or key, until_s)
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
            if queue[0] not in key.topics or key.queue_id in (EVERY_QUEUE, queue[1])
        }
        for key in woken:
            self._pulls.wake_one(key)


def _key(*requests: ReceiveRequest) -> _Key:
    topics = tuple(sorted([each.topic for each in requests]))
    return _Key(requests[0].group, topics, max(requests[0].queue_id, EVERY_QUEUE))


def _assignment_rights(query: AssignmentQuery) -> list[Need]:
    return [group_right(Right.SUB, query.group), topic_right(Right.SUB, query.topic)]


class ModeCalls(Part):
    """How the members of a group get a topic's messages."""

    @admin
    async def change_mode(self, change: RequestModeChange) -> None:
        """How the members of a group get a topic's messages, from their next rebalancing on."""
        self._broker[RequestModes].change(change)
        await self._saved()

    @view
    async def modes(self) -> tuple[RequestModeChange, ...]:
        """The modes of all groups."""
        return self._broker[RequestModes].modes()

    @needs(_assignment_rights)
    async def assigned(self, query: AssignmentQuery) -> Assigned | None:
        """What a member reads of a topic, and how; None: there is no such topic or member."""
        return self._broker[RequestModes].assigned(query)
