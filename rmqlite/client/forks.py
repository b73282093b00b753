"""What a forked child has of its parent's clients: their memory, but none of their threads.

A lock may be held by a thread that does not exist any more, ids would repeat, a future would never
be done.  So whoever owns such state follows forks: it begins anew in the child, before any other
code of the child runs.  gRPC itself survives a fork only if no other thread is inside of it at that
moment; else its calls would hang or abort, and so they are refused.
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet

from rmqlite.kernel.words.errors import Refused

GRPC_FORKS_VARIABLE: Final = "GRPC_ENABLE_FORK_SUPPORT"
"""gRPC's own; without the variable it is on."""
_OFF: Final = frozenset({"0", "f", "false", "n", "no"})


class FollowsForks(Protocol):
    def begin_anew(self) -> None:
        """In the child: replace everything that belongs to one process.  It must not wait."""
        ...


class _Process:
    __slots__ = ("calls", "followers", "has_called", "is_cut_off", "parents")

    def __init__(self) -> None:
        self.followers: WeakSet[FollowsForks] = WeakSet()
        # A plain set without a lock: one operation is atomic, so the child knows exactly.
        self.calls: set[object] = set()
        self.parents: list[object] = []
        self.has_called = False
        self.is_cut_off = False

    def after_fork(self) -> None:
        is_off = os.environ.get(GRPC_FORKS_VARIABLE, "").lower() in _OFF
        if self.calls or (is_off and self.has_called):
            self.is_cut_off = True
        self.calls = set()
        for follower in list(self.followers):
            follower.begin_anew()


_process: Final = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.after_fork)


def follow(follower: FollowsForks) -> None:
    """Let this begin anew in every child, while it exists."""
    _process.followers.add(follower)


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
    return call


def leave_grpc(call: object) -> None:
    _process.calls.discard(call)


def is_in_grpc(call: object) -> bool:
    """Not any more after leave_grpc(), and not in a child: the call is its parent's."""
    return call in _process.calls


def process_id() -> int:
    return os.getpid()
