"""A request of apache.rocketmq.v2 as a message to its method, and the outcome as a status.

The account that makes a call is known by its signature, the client by its id.  Each call ends well
for gRPC: a refusal is a status in its answer, because that is where clients look.  A bug of ours is
logged with its stack, and the caller gets one sentence.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, NamedTuple

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.service.access import CALLER, Access, Caller
from rmqlite.kernel.service.limits import Limits
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import AccessDenied, RmqliteError
from rmqlite.kernel.words.message import unpack_host
from rmqlite.protocols.grpc.calls import (
    Context,
    Enter,
    GrpcGuard,
    Handler,
    Read,
    Refuse,
    decoded,
    failed,
    many_answers,
    one_answer,
    peer_host,
)
from rmqlite.protocols.grpc.in_flight import InFlight, making, working
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, RocketmqRefusal, refusal_of
from rmqlite.protocols.rocketmq_v2.bytes.limits import RocketmqLimits
from rmqlite.protocols.rocketmq_v2.bytes.messages import takes_long_to_read, write_message
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, definition
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


One = Callable[[Any, Asker], Awaitable[Any]]
"""Turns a request into its answer.  Raises RmqliteError, Refusal."""
Many = Callable[[Any, Asker], AsyncGenerator[Any, None]]
"""Turns a request into its answers.  It is closed when a call ends before all are written."""
_LONG: Final = (rpcs.QUERY_ROUTE, rpcs.QUERY_ASSIGNMENT)
"""Calls whose answers are much longer than their requests."""


class Decoding:
    """Checks the limits of requests, then decodes them."""

    def __init__(self, config: BrokerConfig) -> None:
        self._limits = RocketmqLimits(config)

    async def read(self, rpc: RocketmqRpc[Any, Any], data: bytes) -> Any:
        """Raises RmqliteError, Refusal."""
        return await decoded(rpc.decode, data, self._limits.check(rpc, data))


def one_handler(
    rpc: RocketmqRpc[Any, Any], method: One, decoding: Decoding, in_flight: InFlight, enter: Enter
) -> Handler:
    """The handler of a call with one answer."""

    async def answer(data: bytes, context: Context) -> bytes:
        asker, reading = asker_of(context), decoding.read(rpc, data)
        del data
        if rpc in _LONG:
            request = await reading
            async with making():
                return rpc.encode(await method(request, asker))
        return rpc.encode(await method(await reading, asker))

    return one_answer(rpc.path, answer, in_flight, enter, refusing(rpc))


def many_handler(
    rpc: RocketmqRpc[Any, Any], method: Many, decoding: Decoding, in_flight: InFlight, enter: Enter
) -> Handler:
    """The handler of a call with one request and many answers."""

    async def talk(read: Read, context: Context) -> None:
        asker = asker_of(context)
        # In no variable: the method drops the request before it waits.
        coming = method(await decoding.read(rpc, await read() or b""), asker)
        async with aclosing(coming) as answers:
            # The first one may come after a long wait.
            answer = await anext(answers, None)
            while answer is not None:
                await context.write(rpc.encode(answer))
                async with working():
                    answer = await anext(answers, None)

    return many_answers(rpc.path, talk, in_flight, enter, refusing(rpc))


async def written(into: definition.Message, record: Record, topic: str, **more: Any) -> None:
    """write_message(); a thread inflates a long body, and the loop goes on meanwhile."""
    write = partial(write_message, into, record, topic, **more)
    await to_thread(write) if takes_long_to_read(record) else write()


def refusing(rpc: RocketmqRpc[Any, Any]) -> Refuse:
    """Shows errors as answers of a call."""

    def refuse(path: str, error: Exception, _: Context) -> Sequence[bytes]:
        return (rpc.encode(rpc.answer(status=refused(path, error).status)),)

    return refuse


def no_lite_topics() -> RocketmqRefusal:
    """The refusal of whatever asks for lite topics."""
    return RocketmqRefusal(
        Code.UNSUPPORTED, "lite topics are not supported: use a topic for each of them"
    )


def refused(path: str, error: Exception) -> RocketmqRefusal:
    """How a call ends that has failed; a bug is logged."""
    if isinstance(error, RocketmqRefusal):
        return error
    return refusal_of(error if isinstance(error, RmqliteError) else failed(path, error))
