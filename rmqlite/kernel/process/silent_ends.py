"""Ends the broker when a part of it has ended and nothing says so: a task, a thread, a port.

What fails ends the broker by its error.  But a task that only returns or is cancelled, a thread
that is gone, or a port that is closed would leave a protocol dead, or the disk unwritten, while
health says that all is well.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rmqlite.kernel.process.protocol_server import ProtocolServer

LOOK_S: Final = 0.5
THREADS: Final = ("sync", "persist", "timers", "asyncio")
"""The beginnings of the names of threads that live as long as the broker, once they have begun."""


class EndedSilently(Exception):
    """A part has ended before the broker drained."""


class Loops(asyncio.TaskGroup):
    """Tasks that run until drain(): one that ends before ends all of them with an error."""

    def __init__(self) -> None:
        super().__init__()
        self._is_over = False

    def drain(self) -> None:
        """From now on tasks may end."""
        self._is_over = True

    def create_task(self, coro: Any, **more: Any) -> asyncio.Task[Any]:
        """As in the base class, whose signature differs from one Python to the next."""
        task = super().create_task(coro, **more)
        task.add_done_callback(self._ended)
        return task

    async def __aexit__(self, *error: Any) -> None:
        self._is_over = self._is_over or error[0] is not None
        await super().__aexit__(*error)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if self._is_over:
            return
        # Its end, or the error that follows, cancels the others.
        self._is_over = True
        if task.cancelled() or task.exception() is None:
            super().create_task(_fail(f"the task {task.get_name()!r} has ended"))


async def _fail(sentence: str) -> None:
    raise EndedSilently(sentence)


class Watch:
    """Looks at the threads and at the ports."""

    def __init__(self, protocols: Sequence[ProtocolServer]) -> None:
        self._protocols = protocols
        self._seen: set[threading.Thread] = set()

    async def run(self) -> None:
        """Look again and again.  Raises EndedSilently."""
        while True:
            self.look(threading.enumerate())
            await asyncio.sleep(LOOK_S)

    def look(self, running: Iterable[threading.Thread]) -> None:
        """Raises EndedSilently if a thread is gone, or a port is closed."""
        found = {each for each in running if each.name.startswith(THREADS)}
        for gone in self._seen - found:
            raise EndedSilently(f"the thread {gone.name!r} has ended")
        self._seen = found
        for protocol in self._protocols:
            if not protocol.is_listening:
                raise EndedSilently(f"the port of {type(protocol).__name__} is closed")
