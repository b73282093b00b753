"""The thread that owns a consumer's state, and the calls whose answers arrive there.

Answers of the broker, timers and close() only post calls; the loop's thread runs them, one after
the other, so the state needs no lock.  A posted call must not block.  An outage logs one line, not
one per call.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from rmqlite.client.channel import Connection, Started
from rmqlite.features.rows import Row
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import BrokerClosing, BrokerUnreachable, NotMaster, RmqliteError

Q = TypeVar("Q")
A = TypeVar("A")
log = logging.getLogger(__name__)


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


class LinkCall:
    """A call under way; belongs to the loop."""

    __slots__ = ("is_given_up", "started")

    def __init__(self) -> None:
        self.is_given_up = False
        self.started: Started | None = None

    def cancel(self) -> None:
        """Give it up; its outcome is not delivered any more."""
        self.is_given_up = True
        if self.started is not None:
            self.started.cancel()


class BrokerLink:
    """ask() and its on_outcome run on the loop's thread."""

    def __init__(self, connection: Connection, loop: Loop, name: str) -> None:
        self._connection = connection
        self._loop = loop
        self._name = name
        self._is_away = False
        self._turns = 0

    def ask(
        self,
        rpc: Row[Q, A],
        value: Q,
        timeout_s: float,
        on_outcome: Callable[[A | RmqliteError], None],
    ) -> LinkCall:
        """Start a call; on_outcome gets the answer or the error, unless it is cancelled first."""
        asked = LinkCall()
        turns = self._turns

        def deliver(outcome: Any) -> None:
            if not asked.is_given_up:
                self._note(outcome, turns)
                on_outcome(outcome)

        def post(outcome: A | RmqliteError) -> None:
            self._loop.post(lambda: deliver(outcome))

        try:
            asked.started = self._connection.start(rpc, value, timeout_s, post)
        except RmqliteError as error:
            post(error)
        return asked

    def _note(self, outcome: object, turns: int) -> None:
        # Skip a call that began before the last change: its outcome is older than that change.
        is_away = isinstance(outcome, (BrokerUnreachable, BrokerClosing, NotMaster))
        if turns != self._turns or is_away is self._is_away:
            return
        self._turns += 1
        self._is_away = is_away
        if is_away:
            log.warning("the broker is away, trying again consumer=%s: %s", self._name, outcome)
        else:
            log.warning("the broker is back consumer=%s", self._name)
