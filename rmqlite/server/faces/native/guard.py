"""Who makes a call of gRPC: the account that has signed its metadata (wire/signing.py)."""

from __future__ import annotations

from collections.abc import Callable

from rmqlite.clock import wall_ms
from rmqlite.errors import Unavailable
from rmqlite.message import unpack_host
from rmqlite.server.faces.native.replays import Replays
from rmqlite.server.faces.native.table import Context, peer_host
from rmqlite.server.front.access import CALLER, Access, Caller
from rmqlite.wire.signing import is_right, read_signed

Enter = Callable[[str, Context], None]
"""Finds out who makes the call of a path, before its request is read.  Raises RmqliteError."""


def everybody(_path: str, _context: Context) -> None:
    """For a call that needs no account."""


class Guard:
    """Lets calls in that an account has signed, each once."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._replays = Replays()

    def enter(self, path: str, context: Context) -> None:
        """Note the caller.

        Raises AccessDenied, InvalidValue for damaged metadata, and Unavailable for a call that is
        too old or was made before.  The wall clock counts: the broker's own follows no step.
        """
        if self._access.accounts is not None:
            CALLER.set(self._caller_of(path, context))

    def _caller_of(self, path: str, context: Context) -> Caller:
        address = unpack_host(peer_host(context.peer()))
        signed = read_signed(context.invocation_metadata() or ())
        key = signed.access_key if signed else ""
        caller = self._access.caller(
            address, key, lambda secret: signed is not None and is_right(signed, path, secret)
        )
        if signed is not None and caller.account is not None:
            rule = self._replays.check(signed, wall_ms())
            if rule is not None:
                denied = self._access.denied(key, address, rule)
                # A client that has waited long signs again, and its call is let in.
                raise Unavailable(str(denied), rule=rule)
        return caller
