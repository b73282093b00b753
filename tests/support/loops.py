"""An event loop whose time is a FakeClock's: what sleeps wakes when the clock is there.

Nothing waits for real: when the loop has nothing to do but a timer, the clock moves to it.
As with a real loop its time stands still while the machine is suspended.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from rmqlite.kernel.service.group_commit import Ran, SyncThread, run_timed
from rmqlite.kernel.store.commit_log import SyncJob
from tests.support.clock import FakeClock

T = TypeVar("T")


class _JumpingSelector(selectors.BaseSelector):
    """Instead of waiting for a timer it moves the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._real = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return self._real.select(None)
        ready = self._real.select(0)
        if not ready and timeout > 0:
            # Rounded up, as a real clock's timers are: never early.
            self._clock.forward(max(1, -int(-timeout * 1000 // 1)))
        return ready

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """Its time is that of the clock's machine."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(_JumpingSelector(clock))
        # asyncio adds this to the time, and to a number this large a nanosecond adds nothing.
        self._clock_resolution = 0.000_5
        self._clock_moved_by_hand = clock

    def time(self) -> float:
        return self._clock_moved_by_hand.machine.awake_ns() / 1e9


def run_with(clock: FakeClock, main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run() on such a loop."""
    with asyncio.Runner(loop_factory=lambda: FakeTimeLoop(clock)) as runner:
        return runner.run(main)


async def turns_beside(work: Awaitable[T]) -> tuple[T, int]:
    """What the work returns, and how many turns of the loop another task has meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    result = await work
    counting.cancel()
    return result, turns


class SyncsAtOnce(SyncThread):
    """Syncs at once, for the same reason as AtOnce."""

    def begin(self, job: SyncJob, ran: Ran) -> None:
        asyncio.get_running_loop().call_soon(ran, run_timed(job))


class AtOnce(ThreadPoolExecutor):
    """Runs a job at once: while the loop waited for a thread, it would move the clock."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **more))
        except Exception as error:
            future.set_exception(error)
        return future
