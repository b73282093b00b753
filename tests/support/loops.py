"""An event loop whose time is a FakeClock's: what sleeps wakes when the clock is there.

Nothing waits for real: when the loop has nothing to do but a timer, the clock moves to it.
As with a real loop its time stands still while the machine is suspended.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

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
