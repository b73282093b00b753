"""Calls that found nothing and wait: pulls for a message, heartbeats for an assignment.

A parked call costs one coroutine and one timer.  It is woken by its key, looks again, and
parks again if there is still nothing; so a wake-up too many costs time, never a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from typing import Final

from rmqlite.errors import Overloaded

WOKEN_AT_ONCE: Final = 8
WOKEN_PAUSE_S: Final = 0.01
"""A heartbeat that is woken takes up to a millisecond with the next one that follows its answer:
more than half of the time is left for others."""


class Waiting:
    """Parked calls by key; limit_name and limit bound how many there are."""

    def __init__(self, limit_name: str, limit: int) -> None:
        self._limit_name = limit_name
        self._limit = limit
        self._parked: dict[Hashable, set[asyncio.Future[None]]] = {}
        self._closed = False
        self.count = 0

    async def wait(self, key: Hashable, seconds: float) -> None:
        """Return when the key is woken, after this long, or at once when closed.

        Raises Overloaded at the limit.
        """
        if self._closed or seconds <= 0:
            return
        if self.count >= self._limit:
            raise Overloaded(self._limit_name, self._limit)
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _wake, woken)
        parked = self._parked.setdefault(key, set())
        parked.add(woken)
        self.count += 1
        try:
            await woken
        finally:
            timer.cancel()
            self.count -= 1
            parked.discard(woken)
            if not parked and self._parked.get(key) is parked:
                del self._parked[key]

    def wake(self, keys: Iterable[Hashable]) -> None:
        """Let everyone who waits for one of these keys look again."""
        if not self._parked:
            return
        for key in keys:
            for woken in self._parked.get(key, ()):
                _wake(woken)

    def count_of(self, key: Hashable) -> int:
        """How many wait for this key."""
        return len(self._parked.get(key, ()))

    async def wake_in_turns(self, key: Hashable) -> None:
        """As wake(), a few at a time: what each does then keeps others waiting."""
        for number, woken in enumerate(tuple(self._parked.get(key, ())), 1):
            _wake(woken)
            if number % WOKEN_AT_ONCE == 0:
                await asyncio.sleep(WOKEN_PAUSE_S)

    def close(self) -> None:
        """Wake everyone; from now on nobody waits."""
        self._closed = True
        self.wake(list(self._parked))

    @property
    def is_closed(self) -> bool:
        return self._closed


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
