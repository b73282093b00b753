"""One task per level: deliver, sleep until due, wake when told.

A task sleeps to the exact deliver time of its level's earliest message.  What is due leaves
in slices, one slice of one level at a time, and between two of them every other call gets
its turn; so a burst in one level delays neither a send nor another level for long.  What cannot
be stored, as when the disk is full, is tried again after a pause, from where it failed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rmqlite.broker.broker import Broker
from rmqlite.clock import WAKE_MS_MAX, Clock
from rmqlite.errors import StoreUnavailable
from rmqlite.server.outage import Outage

RETRY_S: Final = 1.0
"""How long a level rests after its messages could not be appended; twice as long each time."""
RETRY_S_MAX: Final = 8.0
"""The longest rest, and so how late delivery goes on when there is space again."""


class Delivery:
    """The tasks of all levels."""

    def __init__(self, broker: Broker, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._broker = broker
        self._clock = clock
        self._tasks = tasks
        self._wakes: dict[int, asyncio.Event] = {}
        self._turn = asyncio.Lock()
        self._running: list[asyncio.Task[None]] = []
        for level in broker.schedule.levels():
            self.due_sooner(level)

    def due_sooner(self, level: int) -> None:
        """The level's earliest message is due earlier than its task believes."""
        wake = self._wakes.get(level)
        if wake is None:
            wake = self._wakes[level] = asyncio.Event()
            task = self._tasks.create_task(self._run(level, wake), name=f"level {level}")
            self._running.append(task)
        wake.set()

    def close(self) -> None:
        """End all tasks."""
        for task in self._running:
            task.cancel()

    async def _run(self, level: int, wake: asyncio.Event) -> None:
        outage = Outage(
            f"delivery failed, will be tried again level={level}", f"delivery goes on level={level}"
        )
        while True:
            wake.clear()
            due_ms = await self._deliver(level, outage)
            now_ms = self._clock.now_ms()
            if due_ms is None:
                await wake.wait()
            elif due_ms > now_ms:
                await _either(wake, min(due_ms - now_ms, WAKE_MS_MAX) / 1000)

    async def _deliver(self, level: int, outage: Outage) -> int | None:
        """One slice; when the level's next message is due.  Raises FlushFailed."""
        async with self._turn:
            try:
                due_ms = self._broker.deliver(level)
            except StoreUnavailable as error:
                outage.failed(error)
            else:
                outage.succeeded()
                # The lock is kept over one turn of the loop: others come between two slices.
                await asyncio.sleep(0)
                return due_ms
        await asyncio.sleep(min(RETRY_S * 2 ** (outage.failures - 1), RETRY_S_MAX))
        return self._clock.now_ms()


async def _either(wake: asyncio.Event, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    timer = loop.call_later(seconds, wake.set)
    try:
        await wake.wait()
    finally:
        timer.cancel()
