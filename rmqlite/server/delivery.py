"""Deliver due messages, then sleep until the next one is due or due_sooner() is called.

One task sleeps until the deliver time of the earliest message of all levels.  Due messages are
delivered in slices, and other calls get their turns after some of them; so a burst delays no
send for long.  If a slice cannot be stored, because the disk is full for example, delivery
continues after a pause where it failed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rmqlite.broker.broker import Broker
from rmqlite.clock import WAKE_MS_MAX, Clock, elapsed_s
from rmqlite.errors import StoreUnavailable
from rmqlite.server.outage import Outage
from rmqlite.server.turns import let_others, set_or_late

SLICES_S: Final = 0.002
"""After so long, other calls get their turns: a slice takes 0.3 to 4 ms, the turns 0.15."""
RETRY_S: Final = 1.0
"""How long delivery rests after an append failed; doubled after each further failure."""
RETRY_S_MAX: Final = 8.0
"""The longest rest: so long after there is space again, delivery continues at the latest."""


class Delivery:
    """The task that delivers."""

    def __init__(self, broker: Broker, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._broker = broker
        self._clock = clock
        self._wake = asyncio.Event()
        self._outage = Outage("delivery failed, it is tried again", "delivery continues")
        self._task = tasks.create_task(self._run(), name="delivery")

    def due_sooner(self) -> None:
        """Look again: a level's earliest message may now be due before the task would wake."""
        self._wake.set()

    def close(self) -> None:
        """End the task."""
        self._task.cancel()

    async def _run(self) -> None:
        begun_s = elapsed_s()
        while True:
            self._wake.clear()
            due_ms = await self._deliver()
            if due_ms is None:
                await self._wake.wait()
            elif (left_s := self._clock.seconds_until(due_ms)) > 0:
                await set_or_late(self._wake, min(left_s, WAKE_MS_MAX / 1000))
            elif elapsed_s() - begun_s < SLICES_S:
                continue
            else:
                await let_others()
            begun_s = elapsed_s()

    async def _deliver(self) -> int | None:
        """Deliver one slice.  Return when the next message is due.  Raises FlushFailed."""
        try:
            due_ms = self._broker.deliver()
        except StoreUnavailable as error:
            self._outage.failed(error)
            await asyncio.sleep(min(RETRY_S * 2 ** (self._outage.failures - 1), RETRY_S_MAX))
            return self._clock.now_ms()
        self._outage.succeeded()
        return due_ms
