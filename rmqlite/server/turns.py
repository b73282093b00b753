"""Between two slices of long work every other call gets its turn.

A call is not one turn of the loop: gRPC's thread reports each step of it, from the connection
to the answer, and each is some turns more.  With one turn between two slices a call waits for
some twenty-five of them, and a second passes; with many, for one or two.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from rmqlite.broker.steps import Steps

T = TypeVar("T")

TURNS: Final = 50
"""Where nobody has anything to do, that many take 0.15 ms: a twentieth of a slice."""


async def let_others() -> None:
    """Go on when the others had their turns."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def set_or_late(event: asyncio.Event, seconds: float) -> None:
    """Go on when an event is set; after so long it is."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


async def done_in_turns(steps: Steps[T]) -> T:
    """Take all steps, the others' turns between them; the answer."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer
        await let_others()
