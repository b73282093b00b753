"""The future of a call: it is done on a thread of ours, which has to survive its callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from rmqlite.client.forks import follow
from rmqlite.kernel.words.errors import RmqliteError, Unavailable

T = TypeVar("T")

log = logging.getLogger(__name__)


class CallFuture(Future[T]):
    """Under way from the beginning: it cannot be cancelled.  Whoever makes one settles it."""

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        # In a set of its own: a weak reference to each costs a message a sixth more.
        _open.futures.add(self)

    def begin_anew(self) -> None:
        """For a forked child: nobody else would end its wait.  Callbacks are for the parent."""
        super().__init__()
        self.settle(Unavailable("the call belongs to the parent of this process"))

    def settle(self, outcome: T | RmqliteError) -> None:
        """The call has this outcome."""
        if isinstance(outcome, RmqliteError):
            self.set_exception(outcome)
        else:
            self.set_result(outcome)
        _open.futures.discard(self)

    def add_done_callback(self, fn: Callable[[Future[T]], Any]) -> None:
        """As of any future.  What a callback raises is logged, be it SystemExit.

        If the future is done, the callback runs at once, and raises such errors to the caller.
        """
        super().add_done_callback(partial(_run, fn) if self in _open.futures else fn)


class _Open:
    """The futures of this process that are not settled."""

    def __init__(self) -> None:
        self.futures: set[CallFuture[Any]] = set()

    def begin_anew(self) -> None:
        for future in tuple(self.futures):
            future.begin_anew()


_open: Final = _Open()
follow(_open)


def _run(callback: Callable[[Future[T]], Any], future: Future[T]) -> None:
    try:
        callback(future)
    except BaseException:
        log.exception("a callback of a future failed")
