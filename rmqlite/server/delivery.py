"""Deliver, sleep until the next message is due, wake when told.

One task sleeps to the exact deliver time of the earliest message of all levels.  What is due
leaves in slices, and between two of them every other call gets its turn; so a burst delays
no send for long.  What cannot be stored, as when the disk is full, is tried again after a
pause, from where it failed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rmqlite.broker.broker import Broker
from rmqlite.clock import WAKE_MS_MAX, Clock
from rmqlite.errors import StoreUnavailable
from rmqlite.server.outage import Outage
from rmqlite.server.turns import let_others, set_or_late

RETRY_S: Final = 1.0
"""How long delivery rests after messages could not be appended; twice as long each time."""
RETRY_S_MAX: Final = 8.0
"""The longest rest, and so how late delivery goes on when there is space again."""


class Delivery:
    """The task that delivers."""

    def __init__(self, broker: Broker, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._broker = broker
        self._clock = clock
        self._wake = asyncio.Event()
        self._outage = Outage("delivery failed, will be tried again", "delivery goes on")
        self._task = tasks.create_task(self._run(), name="delivery")

    def due_sooner(self) -> None:
        """A level's earliest message is due earlier than the task may believe."""
        self._wake.set()

    def close(self) -> None:
        """End the task."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            due_ms = await self._deliver()
            if due_ms is None:
                await self._wake.wait()
                continue
            wait_ms = due_ms - self._clock.now_ms()
            if wait_ms > 0:
                await set_or_late(self._wake, min(wait_ms, WAKE_MS_MAX) / 1000)
            else:
                await let_others()

    async def _deliver(self) -> int | None:
        """One slice; when the next message is due.  Raises FlushFailed."""
        try:
            due_ms = self._broker.deliver()
        except StoreUnavailable as error:
            self._outage.failed(error)
            await asyncio.sleep(min(RETRY_S * 2 ** (self._outage.failures - 1), RETRY_S_MAX))
            return self._clock.now_ms()
        self._outage.succeeded()
        return due_ms
