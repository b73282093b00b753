"""What a forked child has of its parent's clients (memory, but no threads); the future of a call.

A lock may be held by a thread that does not exist any more, ids would repeat, a future would never
be done.  So whoever owns such state follows forks: it begins anew in the child, before any other
code of the child runs.  gRPC itself survives a fork only if no other thread is inside of it at that
moment; else its calls would hang or abort, and so they are refused.  A client that always waits
for an answer, in a process that must fork, steps aside for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.errors import Refused, RmqliteError, Unavailable

GRPC_FORKS_VARIABLE: Final = "GRPC_ENABLE_FORK_SUPPORT"
"""gRPC's own; without the variable it is on."""
FORK_WAIT_S_MAX: Final = 2.0
"""How long a fork waits for calls under way, and a new call for a fork."""
_LOOK_S: Final = 0.001
_OFF: Final = frozenset({"0", "f", "false", "n", "no"})
T = TypeVar("T")
log = logging.getLogger(__name__)


class FollowsForks(Protocol):
    def begin_anew(self) -> None:
        """In the child: replace everything that belongs to one process.  It must not wait."""
        ...


class StepsAside(Protocol):
    def step_aside(self) -> None:
        """In the parent, before a fork: give up the calls that wait.  It must not wait."""
        ...


class _Process:
    __slots__ = (
        "aside",
        "calls",
        "followers",
        "has_called",
        "is_cut_off",
        "is_forking",
        "parents",
    )

    def __init__(self) -> None:
        self.followers: WeakSet[FollowsForks] = WeakSet()
        self.aside: WeakSet[StepsAside] = WeakSet()
        self.is_forking = False
        # A plain set without a lock: one operation is atomic, so the child knows exactly.
        self.calls: set[object] = set()
        self.parents: list[object] = []
        self.has_called = False
        self.is_cut_off = False

    def before_fork(self) -> None:
        """Nothing, unless somebody steps aside: else each fork would wait for a long poll."""
        if not self.aside:
            return
        self.is_forking = True
        _wait_while(self._is_calling)

    def _is_calling(self) -> bool:
        for each in list(self.aside):
            # Again and again: a call that has just begun may not be theirs yet.
            each.step_aside()
        return bool(self.calls)

    def after_in_parent(self) -> None:
        self.is_forking = False

    def after_in_child(self) -> None:
        self.is_forking = False
        is_off = os.environ.get(GRPC_FORKS_VARIABLE, "").lower() in _OFF
        if self.calls or (is_off and self.has_called):
            self.is_cut_off = True
        self.calls = set()
        for follower in list(self.followers):
            follower.begin_anew()


def _wait_while(holds: Callable[[], bool]) -> None:
    until_s = elapsed_s() + FORK_WAIT_S_MAX
    while holds() and elapsed_s() < until_s:
        pause_s(_LOOK_S)


_process: Final = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_process.before_fork,
        after_in_parent=_process.after_in_parent,
        after_in_child=_process.after_in_child,
    )


def follow(follower: FollowsForks) -> None:
    """Let this begin anew in every child, while it exists."""
    _process.followers.add(follower)


def step_aside(who: StepsAside) -> None:
    """Ask this before every fork, while it exists; forks and new calls wait for each other."""
    _process.aside.add(who)


def leave_to_parent(owned: object) -> None:
    """In a child: never destroy this, because its end would be the end of the parent's, too."""
    _process.parents.append(owned)


def enter_grpc() -> object:
    """Before a thread calls gRPC; give the result to leave_grpc().

    Raises Refused in a process where gRPC would hang.
    """
    if _process.is_cut_off:
        rule = "fork before the first call and before start(), or use multiprocessing's spawn"
        raise Refused(
            "this process cannot call the broker, because it was forked while another thread"
            f" was in a call: {rule}",
            field="client",
            rule=rule,
        )
    call = object()
    _process.has_called = True
    _process.calls.add(call)
    if _process.is_forking:
        # Only after it was added: whoever forks now has either seen it or waits no more.
        _process.calls.discard(call)
        _wait_while(lambda: _process.is_forking)
        _process.calls.add(call)
    return call


def leave_grpc(call: object) -> None:
    _process.calls.discard(call)


def is_in_grpc(call: object) -> bool:
    """Not any more after leave_grpc(), and not in a child: the call is its parent's."""
    return call in _process.calls


def process_id() -> int:
    return os.getpid()


def _nothing() -> None:
    pass


class CallFuture(Future[T]):
    """Under way from the beginning: it cannot be cancelled.  Whoever makes one settles it."""

    give_up: Callable[[], object] = staticmethod(_nothing)
    """Ends the wait, if whoever made it can: the outcome is an Unavailable, soon."""

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
