"""Long work is done in slices, and all other calls get their turns between two slices.

A call needs many turns of the loop: gRPC's thread reports each of its steps, from the connection
to the answer, and each step takes some turns.  With one turn between two slices, a call waits
for about twenty-five slices, which take a second; with many turns, for one or two slices.

What many calls do at the same time adds up: the loop does everything that is ready before it
looks for new bytes.  So only a few calls begin in one pass of the loop, and of all calls together
one later slice is done in it.

The loop itself has timers that are exact to a tenth of a millisecond, because a message comes when
one ends.  asyncio's own loop waits in whole milliseconds and rounds up, so that each message would
come half a millisecond late.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from select import select
from selectors import EpollSelector, SelectorKey
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from rmqlite.kernel import Steps

T = TypeVar("T")

TURNS: Final = 50
"""If no call has anything to do, so many turns take 0.15 ms: a twentieth of a slice."""
SELECTED_MAX: Final = 1_024
"""select() takes descriptors below this number."""
_MS: Final = 0.001


class Gate:
    """Lets a few of those who come in one pass of the loop go on, and the others in later ones."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._gone_on = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()

    async def turn(self) -> None:
        """Return in a pass in which few others do; they return in the order in which they came."""
        if self._waiting or self._gone_on >= self._at_once:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(turn)
            await turn
            return
        self._gone_on += 1
        if self._gone_on == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._gone_on = 0
        while self._waiting and self._gone_on < self._at_once:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._gone_on += 1
        if self._gone_on:
            self._loop.call_soon(self._next)


_SLICES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Gate]] = WeakKeyDictionary()
"""The gate of all slices of a loop."""


async def let_others() -> None:
    """Return when all other calls have had their turns."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def next_slice() -> None:
    """Let others, and return in a pass in which no other call does a later slice."""
    await let_others()
    await _slices().turn()


async def set_or_late(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event; set it after this time if nobody else does."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


async def done_in_turns(steps: Steps[T]) -> T:
    """Do all steps, let other calls have their turns between them, and return the answer."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer
        await next_slice()


def _slices() -> Gate:
    loop = asyncio.get_running_loop()
    gate = _SLICES.get(loop)
    if gate is None:
        gate = _SLICES[loop] = Gate(1)
    return gate


def at_once(call: Coroutine[Any, Any, T]) -> T | None:
    """The answer of a call that has to wait for nothing; None if it waits: then it has ended.

    Without a task and a turn of its own a pull costs a fifth less.
    """
    try:
        call.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    call.close()
    return None


def event_loop() -> tuple[Callable[[], asyncio.AbstractEventLoop], str]:
    """uvloop's loop and name if the extra is installed, or asyncio's own loop."""
    try:
        from uvloop import __version__, new_event_loop
    except ImportError:
        return partial(asyncio.SelectorEventLoop, ExactSelector()), "asyncio"
    return new_event_loop, f"uvloop {__version__}"


class ExactSelector(EpollSelector):
    """Waits by epoll for whole milliseconds, and by select() on epoll's descriptor for the rest.

    The rest is one more turn of the loop, and only before a timer ends.
    """

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """May return before the time is over; the loop then asks for the rest."""
        if timeout is None or timeout <= 0 or self.fileno() >= SELECTED_MAX:
            return super().select(timeout)
        if timeout >= _MS:
            # Half a millisecond less: it is rounded up.
            return super().select((int(timeout / _MS) - 0.5) * _MS)
        select([self.fileno()], [], [], timeout)
        return super().select(0)
