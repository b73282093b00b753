"""Leases: messages received one by one, acknowledged, held, failed.

A receive that finds nothing waits.  Of those that wait for messages of one group and topic, only
one is woken at a time: if it leaves messages behind, it wakes the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Hashable

from rmqlite.access.accounts import Right
from rmqlite.access.decision import Need
from rmqlite.broker.leases.deliveries import Received
from rmqlite.clock import elapsed_s
from rmqlite.names import retry_topic
from rmqlite.requests.leases import (
    AckRequest,
    DeadRequest,
    Handle,
    InvisibleChange,
    ReceiveRequest,
)
from rmqlite.server.service.access import CALLER, group_right, needs, of_group, topic_right
from rmqlite.server.service.part import Part, ServiceParts
from rmqlite.server.turns import done_in_turns

_Key = tuple[str, str]
"""Group and topic."""


def _rights(
    request: ReceiveRequest | AckRequest | InvisibleChange | DeadRequest, *_: object
) -> list[Need]:
    return [topic_right(Right.SUB, request.topic), group_right(Right.SUB, request.group)]


class LeaseCalls(Part):
    """Calls of consumers that are given messages one by one."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._leases = parts.broker.leases
        self._waiting: dict[str, Counter[_Key]] = {}
        """How many calls wait for messages that lie in a topic, which may be a retry topic."""
        self._leases.table.on_visible = self._visible

    @needs(_rights)
    async def receive(self, request: ReceiveRequest) -> Received:
        """Lease messages; if there are none, wait for the next one.

        Cancel the call when the client is gone: then nothing is leased to it.
        """
        self._check_open()
        self._check_wait(request.wait_ms)
        until_s = elapsed_s() + request.wait_ms / 1000
        key = (request.group, request.topic)
        while True:
            received = await done_in_turns(self._leases.receive(request))
            if received.has_more:
                self._pulls.wake_one(key)
            left_s = until_s - elapsed_s()
            if received.messages or left_s <= 0 or self._pulls.is_closed:
                return received
            await self._wait(key, left_s)
            self._access.check_again(_rights(request), "LeaseCalls.receive")

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

    async def _wait(self, key: _Key, seconds: float) -> None:
        """Wait for a message.  Raises Overloaded."""
        group, topic = key
        for name in (topic, retry_topic(group)):
            self._waiting.setdefault(name, Counter())[key] += 1
        self._pulls.on_wake = self._appended
        try:
            caller = CALLER.get()
            if self._limits is None or caller is None:
                await self._pulls.wait(key, seconds)
            else:
                with self._limits.parked(caller.access_key):
                    await self._pulls.wait(key, seconds)
        except asyncio.CancelledError:
            # It may have been woken: then the next one has to look.
            self._pulls.wake_one(key)
            raise
        finally:
            for name in (topic, retry_topic(group)):
                self._waiting[name] -= Counter([key])
                if not self._waiting[name]:
                    del self._waiting[name]
            if not self._waiting:
                self._pulls.on_wake = None

    def _visible(self, group: str, topic: str) -> None:
        self._pulls.wake_one((group, topic))

    def _appended(self, keys: Collection[Hashable]) -> None:
        """Queues have new messages: one call of each group looks."""
        for topic in {key[0] for key in keys if isinstance(key, tuple)}:
            for key in self._waiting.get(topic, ()):
                self._pulls.wake_one(key)
