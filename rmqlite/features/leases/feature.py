"""What the feature adds to a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from rmqlite.features.leases.leases import Leases
from rmqlite.features.leases.service import LeaseCalls
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.process.loops import REST_MS, Outage, due_or_woken
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Feature, Loops, Service
from rmqlite.kernel.service.turns import let_others
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import StoreUnavailable


def _make(broker: Broker) -> Iterable[object]:
    made = Leases(broker.parts, broker.failing)
    broker.tables_of_features.append(made.table.tree)
    yield made


def _loops(parts: ServiceParts, _: Service) -> Loops:
    return {"leases": Expiring(parts.broker, parts.clock).run()}


class Expiring:
    """Ends leases when they are due, a few messages in a step.

    What becomes of a message is appended like any other, and whoever waits for it is woken.
    """

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._ending = broker[Leases].ending
        self._clock = clock
        self._wake = asyncio.Event()
        self._outage = Outage("leases cannot end, it is tried again", "leases end again")
        broker[Leases].table.on_end_sooner = self._wake.set

    async def run(self) -> None:
        """Raises FlushFailed."""
        while True:
            self._wake.clear()
            due_ms = self._step()
            if due_ms is not None and due_ms <= self._clock.now_ms():
                await let_others()
            else:
                await due_or_woken(due_ms, self._wake, self._clock)

    def _step(self) -> int | None:
        """Do a step; when the next one is due."""
        try:
            due_ms = self._ending.expire()
        except StoreUnavailable as error:
            self._outage.failed(error)
            return self._clock.now_ms() + REST_MS
        self._outage.succeeded()
        return due_ms


FEATURE: Final = Feature(make=_make, calls=(LeaseCalls,), loops=_loops)
