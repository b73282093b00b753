"""The door that every request passes, whichever face it came by.

A face turns bytes, or a form, into a value and asks here; methods are looked up by their line
in the table of calls.  A rule for all requests stands here once, so that a new method or a new
face cannot forget it: a sync that failed ends the broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

import grpc.aio

from rmqlite.errors import FlushFailed, NotSupported
from rmqlite.server.group_commit import GroupCommit
from rmqlite.wire.rpcs import Rpc

Q = TypeVar("Q")
A = TypeVar("A")
Context = grpc.aio.ServicerContext[bytes, bytes]
"""Who asks.  Only methods that store messages look at it; the web page has none."""
Method = Callable[[Any, Context], Awaitable[Any]]
Methods = Mapping[Rpc[Any, Any], Method]


class Front:
    """All methods of one broker."""

    def __init__(self, methods: Methods, commit: GroupCommit) -> None:
        self.methods = methods
        self._commit = commit

    async def ask(self, rpc: Rpc[Q, A], request: Q, context: Context) -> A:
        """Call a method.  Raises RmqliteError; NotSupported if the broker does not have it."""
        method = self.methods.get(rpc)
        if method is None:
            raise NotSupported(f"this broker has no call {rpc.path}")
        try:
            return cast(A, await method(request, context))
        except FlushFailed as error:
            if error.is_final:
                # The disk may not hold what the broker believes: only a recovery can tell.
                self._commit.fail(error)
            raise
