"""AsyncSimpleConsumer: a SimpleConsumer whose calls wait on an event loop, and in no thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from rmqlite.client.asyncio.producer import AsyncClosing
from rmqlite.client.channel import CallAttempts
from rmqlite.client.consuming.simple_consumer import (
    RETRIES,
    LeasedMessage,
    Receiver,
    Settling,
    Some,
)
from rmqlite.features.rows import A, Q, Row
from rmqlite.features.simple_consumer.requests import (
    RECEIVE,
    RELEASE,
    SETTLE,
    Outcome,
    SettleRequest,
)
from rmqlite.kernel.words.clock import elapsed_s, wall_ms
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.levels import Wait, wait_ms


class AsyncSimpleConsumer(Receiver, AsyncClosing):
    """SimpleConsumer, awaited; its methods and options are the same.

    A receive that is cancelled leases nothing, unless its answer is on its way: then the messages
    come again when their lease ends.
    """

    async def receive(
        self, max_messages: int = 1, *, wait: Wait | None = "1s", invisible: Wait = "30s"
    ) -> list[LeasedMessage]:
        """As SimpleConsumer.receive()."""
        request = self._asked(max_messages, wait, invisible)
        began_at_ms = wall_ms()
        try:
            answer = await self._ask(RECEIVE, request, request.wait_ms)
        except RmqliteError as error:
            self._note(began_at_ms, error)
            raise
        messages, settlements = self._sorted(began_at_ms, answer)
        if settlements:
            with suppress(RmqliteError):
                await self._ask(SETTLE, SettleRequest(self.group, tuple(settlements)))
        return messages

    async def ack(self, messages: Some) -> None:
        """As SimpleConsumer.ack()."""
        await self._settle(self._settling(messages, Outcome.ACK))

    async def hold(self, messages: Some, invisible: Wait) -> None:
        """As SimpleConsumer.hold()."""
        held_ms = wait_ms("invisible", invisible)
        await self._settle(self._settling(messages, Outcome.HOLD, held_ms))

    async def fail(
        self, messages: Some, reason: str | BaseException = "", *, after: Wait | None = None
    ) -> None:
        """As SimpleConsumer.fail()."""
        delay_ms = None if after is None else wait_ms("after", after)
        await self._settle(self._settling(messages, Outcome.FAIL, delay_ms, reason))

    async def bury(self, messages: Some, reason: str | BaseException = "") -> None:
        """As SimpleConsumer.bury()."""
        await self._settle(self._settling(messages, Outcome.BURY, reason=reason))

    async def give_back(self, messages: Some) -> None:
        """As SimpleConsumer.give_back()."""
        await self._settle(self._settling(messages, Outcome.GIVE_BACK))

    async def close(self) -> None:
        """As SimpleConsumer.close()."""
        try:
            with suppress(RmqliteError):
                await self._answer(RELEASE, self._leaving(), self._timeout_s)
        finally:
            self._connection.close()

    async def _settle(self, calls: Iterable[Settling]) -> None:
        for each in calls:
            handles = await self._ask(SETTLE, each.request)
            each.take_handles(handles)

    async def _ask(self, row: Row[Q, A], value: Q, waiting_ms: int = 0) -> A:
        attempts = CallAttempts(RETRIES, elapsed_s() + self._timeout_s + waiting_ms / 1000)
        while True:
            try:
                return await self._answer(row, value, attempts.left_s())
            except RmqliteError as error:
                pause_s = attempts.pause_s_after(error)
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)

    async def _answer(self, row: Row[Q, A], value: Q, timeout_s: float) -> A:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[A | RmqliteError] = loop.create_future()

        def settle(outcome: A | RmqliteError) -> None:
            if not answered.done():
                answered.set_result(outcome)

        def on_done(outcome: A | RmqliteError) -> None:
            # The loop may have ended since.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, outcome)

        started = self._connection.start(row, value, timeout_s, on_done)
        try:
            outcome = await answered
        except asyncio.CancelledError:
            started.cancel()
            raise
        if isinstance(outcome, RmqliteError):
            raise outcome
        return outcome
