"""Calls that found nothing and wait: pulls for a message, heartbeats for an assignment.

A parked call costs one coroutine and one timer.  wake() with its key lets it look again; if it
finds nothing, it parks again.  So a needless wake-up costs time, but never a message.  Of many
calls a few are woken at once, and the others after them, a few at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final

from rmqlite.kernel.service.turns import TURNS
from rmqlite.kernel.tables.shares import AccountShares
from rmqlite.kernel.words.errors import Overloaded

PULLS_AT_ONCE: Final = 16
"""A woken pull takes up to a third of a millisecond until it is answered."""
WOKEN_AT_ONCE: Final = 8
WOKEN_PAUSE_S: Final = 0.01
"""A woken heartbeat, and the next one that follows its answer, take up to a millisecond together.
So eight of them and this pause leave more than half of the time to other calls."""


class ParkedCalls:
    """Parked calls by key, at most limit of them; limit_name is the limit's key in broker.conf.

    One account may have half of them.
    """

    def __init__(self, limit_name: str, limit: int) -> None:
        self._limit_name = limit_name
        self._limit = limit
        self._shares = AccountShares(limit_name, limit)
        """Of those calls that have an account."""
        self._parked: dict[Hashable, dict[asyncio.Future[None], None]] = {}
        self._closed = False
        self._woken: deque[asyncio.Future[None]] = deque()
        """Calls that look again when those before them have."""
        self.on_wake: Callable[[Collection[Hashable]], None] | None = None
        """Called with the keys that are woken, if somebody wants to know them."""
        self.count = 0

    async def wait(self, key: Hashable, seconds: float, account: str = "") -> None:
        """Return when the key is woken, when the time is over, or at once when closed.

        account: for which the call is counted.  Raises Overloaded at the limit.
        """
        if self._closed or seconds <= 0:
            return
        if self.count >= self._limit:
            raise Overloaded(self._limit_name, self._limit)
        if account:
            self._shares.check(account)
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _wake, woken)
        parked = self._parked.setdefault(key, {})
        parked[woken] = None
        self.count += 1
        if account:
            self._shares.add(account)
        try:
            await woken
        finally:
            timer.cancel()
            self.count -= 1
            if account:
                self._shares.add(account, -1)
            parked.pop(woken, None)
            if not parked and self._parked.get(key) is parked:
                del self._parked[key]

    def wake(self, keys: Iterable[Hashable]) -> None:
        """Let every call that waits for one of these keys look again, a few at a time."""
        is_waking = bool(self._woken)
        if self.on_wake is not None:
            keys = tuple(keys)
            self.on_wake(keys)
        for key in keys:
            # They are woken once: those who come after them are another set.
            self._woken.extend(self._parked.pop(key, ()))
        if self._woken and not is_waking:
            self._wake_some(0)

    def wake_one(self, key: Hashable) -> None:
        """Let one call that waits for this key look again: the one that waits for longest."""
        for woken in self._parked.get(key, ()):
            if not woken.done():
                woken.set_result(None)
                return

    def count_of(self, key: Hashable) -> int:
        """How many calls wait for this key."""
        return len(self._parked.get(key, ()))

    async def wake_in_turns(self, key: Hashable) -> None:
        """Like wake(), but a few calls at a time, so that their work holds up no other call."""
        for number, woken in enumerate(tuple(self._parked.get(key, ())), 1):
            _wake(woken)
            if number % WOKEN_AT_ONCE == 0:
                await asyncio.sleep(WOKEN_PAUSE_S)

    def _wake_some(self, turns: int) -> None:
        """Wake a few calls after so many turns of the loop, and then the next ones."""
        loop = asyncio.get_running_loop()
        if turns:
            loop.call_soon(self._wake_some, turns - 1)
            return
        for _ in range(min(PULLS_AT_ONCE, len(self._woken))):
            _wake(self._woken.popleft())
        if self._woken:
            loop.call_soon(self._wake_some, TURNS)

    def close(self) -> None:
        """Wake every call; from now on none waits."""
        self._closed = True
        self.wake(list(self._parked))

    @property
    def is_closed(self) -> bool:
        return self._closed


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
