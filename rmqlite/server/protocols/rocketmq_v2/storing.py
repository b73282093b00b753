"""Stores together what comes in one turn of the loop, of all clients: one append for all of it.

For one message alone an append costs the broker as much as everything else of its send; of fifty
together it is a tenth of that.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from rmqlite.broker.sends.calls import DraftCall, Stored
from rmqlite.errors import FlushFailed, RmqliteError
from rmqlite.records.drafts import Draft
from rmqlite.server.service.access import BROKER, CALLER
from rmqlite.server.service.messages import DraftsSent, MessageCalls

CALLS_MAX: Final = 500
"""How many messages are stored together at most."""
_Waits = list["asyncio.Future[Stored]"]


class Storing:
    """The messages that have come and are not stored yet."""

    def __init__(self, messages: MessageCalls) -> None:
        self._messages = messages
        self._calls: list[DraftCall] = []
        self._waits: _Waits = []
        self._task: asyncio.Task[None] | None = None

    async def store(self, draft: Draft) -> Stored:
        """Where the message is, when it is on disk.  Raises RmqliteError."""
        self._messages.check_sender(CALLER.get(), draft.topic)
        stored: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self._calls.append(DraftCall((draft,)))
        self._waits.append(stored)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await stored

    async def _run(self) -> None:
        """Store what has come, until nothing has come meanwhile."""
        # Each sender is checked already.
        CALLER.set(BROKER)
        try:
            while self._calls:
                calls, self._calls = self._calls[:CALLS_MAX], self._calls[CALLS_MAX:]
                waits, self._waits = self._waits[:CALLS_MAX], self._waits[CALLS_MAX:]
                try:
                    await self._messages.send_drafts(calls, partial(_answer, waits))
                except Exception as error:
                    _refuse(waits, error)
        finally:
            self._task = None


def _answer(waits: _Waits, sent: DraftsSent) -> None:
    for stored, outcome in zip(waits, sent.outcomes, strict=True):
        if stored.done():
            continue
        if isinstance(outcome, RmqliteError):
            stored.set_exception(outcome)
        elif sent.is_durable:
            stored.set_result(outcome)
        else:
            sentence = "the disk is slow: the message may or may not survive a crash"
            stored.set_exception(FlushFailed(sentence, is_final=False))


def _refuse(waits: _Waits, error: Exception) -> None:
    for stored in waits:
        if not stored.done():
            stored.set_exception(error)
