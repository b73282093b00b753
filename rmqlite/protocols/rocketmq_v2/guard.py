"""Who makes a call of apache.rocketmq.v2: an account by its signature, a client by its id."""

from __future__ import annotations

from typing import Final, NamedTuple

from rmqlite.kernel.service.access import CALLER, Access, Caller, Limits
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import AccessDenied
from rmqlite.kernel.words.message import unpack_host
from rmqlite.protocols.grpc.calls import Context, peer_host
from rmqlite.protocols.grpc.guard import GrpcGuard
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, RocketmqRefusal
from rmqlite.protocols.rocketmq_v2.bytes.rules import client_id_of
from rmqlite.protocols.rocketmq_v2.bytes.signing import DATE_TIME, is_right, read_signed

PROTOCOL: Final = "rocketmq5"
"""This protocol's name in the audit log."""
CLIENT_ID: Final = "x-mq-client-id"
CLIENT_VERSION: Final = "x-mq-client-version"
KEEPING: Final = frozenset(
    rpc.path
    for rpc in (
        rpcs.HEARTBEAT,
        rpcs.TELEMETRY,
        rpcs.NOTIFY_TERMINATION,
        rpcs.ACK_MESSAGE,
        rpcs.CHANGE_INVISIBLE,
        rpcs.UPDATE_OFFSET,
        rpcs.GET_OFFSET,
    )
)
"""What keeps a consumer in its group.  Acks are among them: each one that is refused would bring
its message once more."""


class ClientKey(NamedTuple):
    """Names a client: two accounts may use the same client id."""

    access_key: str
    client_id: str


class Asker(NamedTuple):
    """Who asks.

    host: packed, as records keep it.  left_ms: until the client gives up; None: it does not.
    """

    key: ClientKey
    host: bytes
    version: str
    left_ms: int | None

    @property
    def client_id(self) -> str:
        return self.key.client_id


def guard_of(access: Access, limits: Limits | None) -> GrpcGuard:
    """Lets calls in that an account has signed, within the limits."""

    def caller_of(path: str, context: Context) -> Caller:
        try:
            return _caller_of(access, path, context)
        except AccessDenied as error:
            raise RocketmqRefusal(Code.UNAUTHORIZED, str(error)) from None

    return GrpcGuard(access, limits, caller_of, KEEPING)


def asker_of(context: Context) -> Asker:
    """Raises Refusal for a client without an id."""
    found = dict(context.invocation_metadata() or ())
    client_id, version = found.get(CLIENT_ID), found.get(CLIENT_VERSION)
    caller, left_s = CALLER.get(), context.time_remaining()
    return Asker(
        ClientKey(
            caller.access_key if caller else "",
            client_id_of(client_id if isinstance(client_id, str) else None),
        ),
        peer_host(context.peer()),
        version if isinstance(version, str) else "",
        None if left_s is None else max(0, int(1_000 * left_s)),
    )


def _caller_of(access: Access, path: str, context: Context) -> Caller:
    """Raises AccessDenied."""
    address = unpack_host(peer_host(context.peer()))
    try:
        signed = read_signed(context.invocation_metadata() or ())
    except RocketmqRefusal as error:
        trusted = Caller(None, address, PROTOCOL)
        if access.is_trusted(address):
            return trusted
        raise access.denied(trusted, str(error), path) from None
    caller = access.caller(
        address,
        signed.access_key if signed else "",
        lambda secret: signed is not None and is_right(signed, secret),
        protocol=PROTOCOL,
        call=path,
    )
    # The wall clock counts: the broker's own follows no step.
    if signed is not None and caller.account is not None and not signed.is_fresh(wall_ms()):
        rule = f"{DATE_TIME} is the time of the call, in some time zone: compare the clocks"
        raise access.denied(caller, rule, path)
    return caller
