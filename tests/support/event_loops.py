"""For clients on an event loop: how long each of its turns takes, and waits beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest

from rmqlite.clock import elapsed_s
from tests.support.eventually import WAIT_S, eventually

T = TypeVar("T")

TURN_S_MAX: Final = 0.001
TRIES: Final = 40


@contextmanager
def _turns() -> Iterator[list[float]]:
    """The seconds of every turn of an event loop: of each callback, and each step of a task."""
    turns: list[float] = []
    plain: Callable[[asyncio.Handle], None] = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        begin_s = elapsed_s()
        plain(handle)
        turns.append(elapsed_s() - begin_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield turns


def longest_turn_s(action: Callable[[], Coroutine[Any, Any, object]]) -> float:
    """The longest turn of the event loop while this runs, in the best of at most TRIES runs.

    The best one: another process may take the processor in any turn of one run, but what waits for
    a broker does so in every run.
    """
    best_s = WAIT_S
    for _ in range(TRIES):
        with _turns() as turns:
            asyncio.run(action())
        best_s = min(best_s, max(turns))
        if best_s < TURN_S_MAX:
            break
    return best_s


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
