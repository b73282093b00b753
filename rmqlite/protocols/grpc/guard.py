"""Lets calls of gRPC in: within the limits, and with an account, which each protocol finds out."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rmqlite.kernel.service.access import CALLER, Access, Caller, CountedRequest, Limits
from rmqlite.protocols.grpc.calls import Charge, Context

CallerOf = Callable[[str, Context], Caller]
"""Who makes the call of a path, when there are accounts.  Raises RmqliteError."""


class GrpcGuard:
    """keeping: the paths of what keeps a consumer in its group, and does not fall under the limit
    of other requests."""

    def __init__(
        self, access: Access, limits: Limits | None, caller_of: CallerOf, keeping: Collection[str]
    ) -> None:
        self._access = access
        self._limits = limits
        self._caller_of = caller_of
        self._keeping = keeping

    def enter(self, path: str, context: Context) -> Charge | None:
        """Note the caller.  Raises Overloaded, and what the protocol raises for a wrong caller."""
        limits = self._limits
        if limits is None:
            self._identify(path, context)
            return None
        keeps_member = path in self._keeping
        request = CountedRequest(1, 0, keeps_member)
        limits.of_connection(context.peer(), request)
        account = self._identify(path, context)
        limits.of_account(account, request)

        further = 0

        def charge(size: int) -> None:
            nonlocal further
            # The first one was counted when the call began.
            arrived, further = CountedRequest(further, size, keeps_member), 1
            limits.of_connection(context.peer(), arrived)
            limits.of_account(account, arrived)

        return charge

    def _identify(self, path: str, context: Context) -> str:
        """Set the caller; its access key, "" if it has none."""
        if self._access.accounts is None:
            return ""
        caller = self._caller_of(path, context)
        CALLER.set(caller)
        return caller.access_key
