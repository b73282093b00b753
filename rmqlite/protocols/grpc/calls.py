"""gRPC's side of every call: let in, bytes in, bytes out, errors as each protocol shows them.

A handler reads its request itself, so that it can wait for room first; the library would read
the request before it calls the handler.  A refusal is answered or set on the context, not raised:
the library would keep the exception, which keeps its frames, which keep the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, TypeAlias, TypeVar

import grpc
import grpc.aio

from rmqlite.kernel.service.access import CALLER, Access, Caller, CountedRequest, Limits
from rmqlite.kernel.service.turns import let_others
from rmqlite.kernel.words.errors import InvalidValue, RmqliteError
from rmqlite.kernel.words.message import pack_host
from rmqlite.protocols.grpc.in_flight import (
    ANSWERING,
    SHORT_BYTES_MAX,
    Answering,
    InFlight,
    peer_address,
)
from rmqlite.protocols.shared.bounded import K, RequestLimits
from rmqlite.protocols.shared.status import ERROR_METADATA, error_to_status

T = TypeVar("T")
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Answer = Callable[[bytes, Context], Awaitable[bytes]]
"""Turns a request's bytes into the answer's bytes.  Raises RmqliteError."""
Read = Callable[[], Awaitable[bytes | None]]
"""Returns the next request of a call with many requests; None after the last one."""
Talk = Callable[[Read, Context], Awaitable[None]]
"""Answers a call with many requests or answers.  Raises RmqliteError."""
Charge = Callable[[int], None]
"""Counts the bytes of a call's request, once they are there.  Raises Overloaded."""
Enter = Callable[[str, Context], Charge | None]
"""Finds out who makes the call of a path, before its request is read.  Raises RmqliteError."""
Refuse = Callable[[str, Exception, Context], Sequence[bytes]]
"""Shows why the call of a path has failed: in answers that it returns, or on the context."""
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
READ_BYTES_MAX: Final = 16 << 10
"""Up to this length, beside bodies, a request is decoded, or an answer encoded, in 1 ms."""
BODIES_BYTES_MAX: Final = 1 << 20
"""So many bytes of bodies, which are only copied, come on top of that for a tenth more."""
CANCEL_S_MAX: Final = 1.0
"""gRPC cancels a call that it has refused itself within this time."""
log = logging.getLogger(__name__)
CallerOf = Callable[[str, Context], Caller]
"""Who makes the call of a path, when there are accounts.  Raises RmqliteError."""


class Handlers(grpc.GenericRpcHandler):
    """Handlers by the path of their call; gRPC answers UNIMPLEMENTED for any other path."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self.paths = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        return self.paths.get(handler_call_details.method)


def everybody(_path: str, _context: Context) -> None:
    """For a call that needs no account, and that no limit counts."""


def as_status(path: str, error: Exception, context: Context) -> Sequence[bytes]:
    """Show an error as the status of the call."""
    shown = error if isinstance(error, RmqliteError) else failed(path, error)
    name, details, metadata = error_to_status(shown)
    context.set_code(getattr(grpc.StatusCode, name))
    context.set_details(details)
    context.set_trailing_metadata(((ERROR_METADATA, metadata),))
    return ()


def failed(path: str, error: Exception) -> RmqliteError:
    """Log a bug of ours; what a caller gets to know of it."""
    log.error("call failed rpc=%s", path, exc_info=error)
    return RmqliteError("the broker failed; its log says why")


def one_answer(
    path: str,
    answer: Answer,
    in_flight: InFlight,
    enter: Enter,
    refuse: Refuse = as_status,
    *,
    may_park: bool = False,
) -> Handler:
    """The handler of a call with one request and one answer.

    may_park: it may wait for long; then it is decoded at once, and has no room while it waits.
    """

    async def call(_: object, context: Context) -> bytes:
        answering, is_held = Answering(in_flight.unread, context.peer()), False
        ANSWERING.set(answering)
        with _Refusing(path, context, refuse) as refusing:
            try:
                charge = enter(path, context)
                await answering.turn()
                room = await in_flight.room()
                try:
                    data = await room.receive(read_one(context))
                    if data is None:
                        # What gRPC refuses reads as None, too; gRPC then cancels this task.
                        await asyncio.sleep(CANCEL_S_MAX)
                        raise InvalidValue("request", "nothing", "one message")
                    if charge is not None:
                        charge(len(data))
                    if may_park:
                        room.give_back()
                    coming, data = answer(data, context), None
                    answered = await coming
                finally:
                    room.give_back()
                if len(answered) > SHORT_BYTES_MAX:
                    answering.hold(len(answered))
                    # gRPC calls it when the client has taken the answer, or is gone.
                    ended: Any = answering.release
                    context.add_done_callback(ended)
                    is_held = True
                return answered
            finally:
                if not is_held:
                    answering.release()
        return b"".join(refusing.answers)

    # Registered as a call with a stream of requests, because gRPC reads none of those by
    # itself; the caller notices no difference.
    return grpc.stream_unary_rpc_method_handler(call)


def many_answers(
    path: str,
    talk: Talk,
    in_flight: InFlight,
    enter: Enter,
    refuse: Refuse = as_status,
    *,
    is_slow: bool = False,
) -> Handler:
    """The handler of a call with many answers, and perhaps many requests.

    is_slow: a request may come after hours, so it takes room only when it is there; it keeps it
    until the next one is read.
    """

    async def call(_: object, context: Context) -> None:
        room = in_flight.taken(0)

        async def read() -> bytes | None:
            nonlocal room
            room.give_back()
            data = await (read_one(context) if is_slow else _read_with_room(context, in_flight))
            if data is None:
                return None
            if is_slow:
                room = in_flight.taken(len(data))
            if charge is not None:
                charge(len(data))
            return data

        answering = Answering(in_flight.unread, context.peer())
        ANSWERING.set(answering)
        with _Refusing(path, context, refuse) as refusing:
            try:
                charge = enter(path, context)
                await answering.turn()
                await talk(read, context)
            finally:
                room.give_back()
                answering.release()
        for answer in refusing.answers:
            await context.write(answer)

    return grpc.stream_stream_rpc_method_handler(call)


class _Refusing:
    """Shows an error in the protocol's way, and ends it."""

    __slots__ = ("_context", "_path", "_refuse", "answers")

    def __init__(self, path: str, context: Context, refuse: Refuse) -> None:
        self._path = path
        self._context = context
        self._refuse = refuse
        self.answers: Sequence[bytes] = ()
        """What a refused call is answered; none if its status says it."""

    def __enter__(self) -> _Refusing:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, grpc.aio.BaseError):
            # The latter: the client is gone, or the port is being closed.
            return False
        self.answers = self._refuse(self._path, error, self._context)
        return True


class Decoding(Generic[K]):
    """Checks the limits of a protocol's requests, then decodes them."""

    def __init__(self, limits: RequestLimits[K]) -> None:
        self._limits = limits

    async def read(self, call: K, decode: Callable[[bytes], T], data: bytes) -> T:
        """A request of this call; around a long one other calls get their turns.

        Raises what RequestLimits.check() and decode raise.
        """
        beside = self._limits.check(call, data)
        if beside <= READ_BYTES_MAX and len(data) - beside <= BODIES_BYTES_MAX:
            return decode(data)
        await let_others()
        request = decode(data)
        await let_others()
        return request


async def _read_with_room(context: Context, in_flight: InFlight) -> bytes | None:
    room = await in_flight.room()
    try:
        return await room.receive(read_one(context))
    finally:
        room.give_back()


async def read_one(context: Context) -> bytes | None:
    """The next request of a call; None after the last one."""
    data: Any = await context.read()
    return None if data is grpc.aio.EOF else data


@lru_cache(maxsize=4096)
def peer_host(peer: str) -> bytes:
    """The packed address of a gRPC peer, "ipv4:127.0.0.1:5000"; 0.0.0.0:0 for other kinds."""
    try:
        return pack_host(peer_address(peer))
    except InvalidValue:
        return bytes(8)


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
