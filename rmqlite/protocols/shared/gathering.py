"""Sends of many callers that arrive in one turn of the loop are one append.

For one message alone an append costs the broker as much as everything else of its send; of fifty
together it is a tenth of that.  The protocols in which each client sends one message at a time
gather theirs here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.service.access import BROKER, CALLER
from rmqlite.kernel.service.messages import DraftsSent, MessageCalls

CALLS_MAX: Final = 500
"""How many calls are stored together at most."""
Sender = TypeVar("Sender")


class Gathering(Generic[Sender]):
    """The calls of one protocol that have arrived and are not stored yet.

    answer is called with the senders of stored calls when they are on disk; refuse with those of
    calls that could not be handed over at all.
    """

    def __init__(
        self,
        messages: MessageCalls,
        answer: Callable[[list[Sender], DraftsSent], None],
        refuse: Callable[[list[Sender], Exception], None],
    ) -> None:
        self._messages = messages
        self._answer = answer
        self._refuse = refuse
        self._arrived: list[tuple[Sender, DraftCall]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, sender: Sender, call: DraftCall) -> None:
        """Store a call, whose sender is checked, with everything else that arrives in this turn."""
        self._arrived.append((sender, call))
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Store what has arrived, until nothing has arrived meanwhile."""
        CALLER.set(BROKER)
        try:
            while self._arrived:
                # What comes with them joins them.  And a route that is asked right behind the send
                # that makes its topic is unknown still, as in RocketMQ's captured answers.
                await asyncio.sleep(0)
                arrived, self._arrived = self._arrived, []
                for first in range(0, len(arrived), CALLS_MAX):
                    await self._store(arrived[first : first + CALLS_MAX])
        finally:
            self._task = None

    async def _store(self, arrived: list[tuple[Sender, DraftCall]]) -> None:
        senders = [sender for sender, _ in arrived]
        calls = [call for _, call in arrived]
        try:
            await self._messages.send_drafts(calls, partial(self._answer, senders))
        except Exception as error:
            self._refuse(senders, error)
