"""Who makes a call of rmqlite.v1: the account that has signed its metadata (shared/signing.py)."""

from __future__ import annotations

from typing import Final

from rmqlite.kernel.service.access import NO_NOTE, NOTE, Access, Caller, Limits, Note
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import Unavailable
from rmqlite.kernel.words.message import unpack_host
from rmqlite.protocols.grpc.calls import Context, GrpcGuard, peer_host
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.notes import read_note
from rmqlite.protocols.native.replays import Replays
from rmqlite.protocols.shared.signing import is_right, read_signed

PROTOCOL: Final = "grpc"
"""This protocol's name in the audit log."""
KEEPING: Final = frozenset(
    row.path for row in (rpcs.HEARTBEAT, rpcs.LEAVE, rpcs.COMMIT_OFFSETS, rpcs.QUERY_OFFSETS)
)
"""What keeps a consumer in its group."""


def guard_of(access: Access, limits: Limits | None) -> GrpcGuard:
    """Lets calls in that an account has signed, each once, and within the limits."""
    return GrpcGuard(access, limits, SignedCalls(access).caller_of, KEEPING)


def take_note(context: Context) -> None:
    """Set the note of the call.  Raises InvalidValue."""
    text = read_note(context.invocation_metadata() or ())
    NOTE.set(Note(text, unpack_host(peer_host(context.peer())), PROTOCOL) if text else NO_NOTE)


class SignedCalls:
    """The calls of all clients, each of which counts once."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._replays = Replays()

    def caller_of(self, path: str, context: Context) -> Caller:
        """Whose call this is.

        Raises AccessDenied, InvalidValue for damaged metadata, and Unavailable for a call that is
        too old or was made before.  The wall clock counts: the broker's own follows no step.
        """
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
