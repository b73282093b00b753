"""For clients on an event loop: how long each of its turns takes, and waits beside it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest

from rmqlite.kernel.words.clock import elapsed_s
from tests.support.eventually import eventually

T = TypeVar("T")

TURN_S_MAX: Final = 0.001
"""Of the processor: what a turn does itself."""
BLOCKED_S_MAX: Final = 0.02
"""Of time: on a loaded machine a turn may lose the processor in each run, but not for so long; an
answer takes longer."""
TRIES: Final = 40
MAKE: Final = "make"
"""The step that makes a client."""


class Steps:
    """What an event loop does, in steps that a test names: the longest turn of each, in seconds."""

    def __init__(self) -> None:
        self._name = ""
        self.longest_s: dict[str, float] = {}

    async def begin(self, name: str) -> None:
        """With a turn of its own."""
        await asyncio.sleep(0)
        self._name = name

    def turn(self, seconds: float) -> None:
        self.longest_s[self._name] = max(seconds, self.longest_s.get(self._name, 0.0))


@contextmanager
def _watched() -> Iterator[Steps]:
    """A turn is a callback, or a step of a task."""
    steps = Steps()
    plain: Callable[[asyncio.Handle], None] = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        begin_s, work_s = elapsed_s(), time.thread_time()
        plain(handle)
        work_s = time.thread_time() - work_s
        blocked_s = elapsed_s() - begin_s - work_s
        steps.turn(work_s if blocked_s <= BLOCKED_S_MAX else blocked_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield steps


def too_long(action: Callable[[Steps], Coroutine[Any, Any, object]]) -> dict[str, float]:
    """The steps with a turn of more than TURN_S_MAX in each of TRIES runs, and its seconds.

    In each one: another process may take the processor in any turn of a run, but what waits for a
    broker does so in every run.
    """
    best_s: dict[str, float] = {}
    for _ in range(TRIES):
        with _watched() as steps:
            asyncio.run(action(steps))
        for name, seconds in steps.longest_s.items():
            best_s[name] = min(seconds, best_s.get(name, seconds))
        if all(each <= TURN_S_MAX for name, each in best_s.items() if name != MAKE):
            break
    # gRPC makes a channel, once for each client, with a millisecond of work; it connects later.
    most_s = {MAKE: BLOCKED_S_MAX}
    return {
        name: seconds for name, seconds in best_s.items() if seconds > most_s.get(name, TURN_S_MAX)
    }


async def until(is_so: Callable[[], bool], what: str) -> None:
    """eventually(), while the loop runs."""
    await asyncio.to_thread(eventually, is_so, what)


class Slow:
    """A broker's answers, each of which is given after a while."""

    def __init__(self, seconds: float) -> None:
        self._pause = threading.Event()
        self._seconds = seconds

    def answer(self, plain: Callable[[Any], T]) -> Callable[[Any], T]:
        def answer(request: Any) -> T:
            self._pause.wait(self._seconds)
            return plain(request)

        return answer
