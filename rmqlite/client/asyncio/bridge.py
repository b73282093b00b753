"""From a client that waits to an event loop that must not: its methods run in threads.

in_thread() makes the async form of one method, with its parameters and its documentation; so no
signature stands here twice.  A call whose await is cancelled before a thread took it is never
made; one that a thread has begun is finished there, and its outcome is dropped.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from rmqlite.client.channel import closed_error, waited
from rmqlite.client.forks import follow
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import Unavailable

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")

THREADS_MAX: Final = 8
"""Calls of one client at a time; more of them wait for a thread, and no event loop does."""
ITEMS_PER_HOP: Final = 100
"""So many items of a long list come from a thread at once: a page of most lists."""


class CallThreads:
    """The threads of one client.  They exist while there is something to do, until shut().

    timeout_ms: of one call.  Its wait for a thread counts: a call that no thread has begun by then
    is never made.
    """

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_s = timeout_ms / 1000
        self._is_shut = False
        self.begin_anew()
        follow(self)

    def begin_anew(self) -> None:
        """For a forked child: it has none of the threads."""
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="rmqlite-call")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it in a thread.  Raises Refused once shut, Unavailable if no thread was free."""
        self.check_open()
        context = contextvars.copy_context()  # tracers find the span of the caller in it
        asked_at_s = elapsed_s()

        def begin() -> T:
            with waited(elapsed_s() - asked_at_s):
                return function(*args, **kwargs)

        call = _submit(self._pool, partial(context.run, begin))
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = call.cancel()

        timer = asyncio.get_running_loop().call_later(self._timeout_s, give_up)
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            if not is_late:
                raise
            raise Unavailable(
                f"no thread was free for this call within {self._timeout_s:g} s:"
                f" {THREADS_MAX} calls of this client were under way"
            ) from None
        finally:
            timer.cancel()

    def check_open(self) -> None:
        """Raises Refused once shut."""
        if self._is_shut:
            raise closed_error()

    def shut(self) -> None:
        """Begin no calls any more; those that wait for a thread are still made."""
        self._is_shut = True
        self._pool.shutdown(wait=False)


class AsyncClosing(ABC):
    """Whatever has an async close() is closed at the end of its `async with`."""

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Bridge(Generic[C]):
    """The async form of a client: it holds the client, and the threads that call it."""

    def __init__(self, client: C, threads: CallThreads) -> None:
        self._client = client
        self._threads = threads


def in_thread(
    method: Callable[Concatenate[C, P], T],
) -> Callable[Concatenate[Bridge[C], P], Coroutine[Any, Any, T]]:
    """The async form of a client's method."""

    @wraps(method)
    async def called(bridge: Bridge[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await bridge._threads.run(method, bridge._client, *args, **kwargs)

    return called


def items_in_thread(
    method: Callable[Concatenate[C, P], Iterator[T]],
) -> Callable[Concatenate[Bridge[C], P], AsyncIterator[T]]:
    """The async form of a method that returns an iterator over a long list."""

    @wraps(method)
    async def listed(bridge: Bridge[C], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        run = bridge._threads.run
        items = await run(method, bridge._client, *args, **kwargs)
        while some := await run(_next_of, items):
            for each in some:
                yield each

    return listed


def _next_of(items: Iterator[T]) -> list[T]:
    return list(islice(items, ITEMS_PER_HOP))


def _submit(pool: ThreadPoolExecutor, function: Callable[[], T]) -> Future[T]:
    """A new thread waits until this has returned.

    Else it would run ahead, perhaps for milliseconds, while the event loop waits for its begin.
    """
    begin = threading.Event()

    def call() -> T:
        begin.wait()
        return function()

    try:
        return pool.submit(call)
    finally:
        begin.set()


async def alone_in_thread(function: Callable[[], None]) -> None:
    """Call it in a thread of its own: those of CallThreads may all be busy.

    It is finished also if the await is cancelled.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="rmqlite-call")
    call = _submit(pool, function)
    pool.shutdown(wait=False)
    await asyncio.shield(asyncio.wrap_future(call))
