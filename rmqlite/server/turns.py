"""Long work is done in slices, and all other calls get their turns between two slices.

A call needs many turns of the loop: gRPC's thread reports each of its steps, from the connection
to the answer, and each step takes some turns.  With one turn between two slices, a call waits
for about twenty-five slices, which take a second; with many turns, for one or two slices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from rmqlite.broker.steps import Steps

T = TypeVar("T")

TURNS: Final = 50
"""If no call has anything to do, so many turns take 0.15 ms: a twentieth of a slice."""


async def let_others() -> None:
    """Return when all other calls have had their turns."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


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
        await let_others()


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
