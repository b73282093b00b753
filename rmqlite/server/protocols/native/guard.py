"""Who makes a call of gRPC: the account that has signed its metadata (wire/signing.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rmqlite.clock import wall_ms
from rmqlite.errors import Unavailable
from rmqlite.message import unpack_host
from rmqlite.server.gate.limits import Limits, Request
from rmqlite.server.protocols.native.replays import Replays
from rmqlite.server.protocols.native.table import Context, peer_host
from rmqlite.server.service.access import CALLER, Access, Caller
from rmqlite.wire import rpcs
from rmqlite.wire.signing import is_right, read_signed

PROTOCOL: Final = "grpc"
"""This protocol's name in the audit log."""
Charge = Callable[[int], None]
"""Counts the bytes of a call's request, once they are there.  Raises Overloaded."""
Enter = Callable[[str, Context], Charge | None]
"""Finds out who makes the call of a path, before its request is read.  Raises RmqliteError."""
KEEPING: Final = frozenset(
    rpc.path for rpc in (rpcs.HEARTBEAT, rpcs.LEAVE, rpcs.COMMIT_OFFSETS, rpcs.QUERY_OFFSETS)
)
"""What keeps a consumer in its group, and does not fall under the limit of other requests."""


def everybody(_path: str, _context: Context) -> None:
    """For a call that needs no account, and that no limit counts."""


class Guard:
    """Lets calls in that an account has signed, each once, and within the limits."""

    def __init__(self, access: Access, limits: Limits | None) -> None:
        self._access = access
        self._limits = limits
        self._replays = Replays()

    def enter(self, path: str, context: Context) -> Charge | None:
        """Note the caller.

        Raises Overloaded, AccessDenied, InvalidValue for damaged metadata, and Unavailable for a
        call that is too old or was made before.  The wall clock counts: the broker's own follows
        no step.
        """
        limits = self._limits
        if limits is None:
            self._identify(path, context)
            return None
        keeps_member = path in KEEPING
        request = Request(1, 0, keeps_member)
        limits.of_connection(context.peer(), request)
        account = self._identify(path, context)
        limits.of_account(account, request)

        def charge(size: int) -> None:
            arrived = Request(0, size, keeps_member)
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

    def _caller_of(self, path: str, context: Context) -> Caller:
        address = unpack_host(peer_host(context.peer()))
        signed = read_signed(context.invocation_metadata() or ())
        key = signed.access_key if signed else ""
        caller = self._access.caller(
            address,
            key,
            lambda secret: signed is not None and is_right(signed, path, secret),
            protocol=PROTOCOL,
            call=path,
        )
        if signed is not None and caller.account is not None:
            rule = self._replays.check(signed, wall_ms())
            if rule is not None:
                denied = self._access.denied(caller, rule, path)
                # A client that has waited long signs again, and its call is let in.
                raise Unavailable(str(denied), rule=rule)
        return caller
