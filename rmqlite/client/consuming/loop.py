"""One thread that owns a consumer's state.

Answers of the broker, timers and close() only post calls; this thread runs them, one after the
other, so the state needs no lock.  A posted call must not block.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
from collections.abc import Callable

from rmqlite.kernel.words.clock import elapsed_s


class Loop:
    """Any thread may call post(); only the loop's own thread may call later()."""

    def __init__(self, name: str) -> None:
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, call: Callable[[], None]) -> None:
        """Run this soon; in the order of posting."""
        self._posted.put(call)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Run this after delay_s seconds.  The call must check whether it is still needed."""
        heapq.heappush(self._timers, (elapsed_s() + delay_s, next(self._numbers), call))

    def stop(self) -> None:
        """Run what was posted before, then end; timers are dropped."""
        self.post(self._end)
        self._thread.join()

    def _end(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        while not self._stopping:
            wait_s = self._timers[0][0] - elapsed_s() if self._timers else None
            # Run a due timer first: a stream of posts would delay it.
            if wait_s is not None and wait_s <= 0:
                heapq.heappop(self._timers)[2]()
                continue
            try:
                call = self._posted.get(timeout=wait_s)
            except queue.Empty:
                continue
            call()
