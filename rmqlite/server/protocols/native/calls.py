"""gRPC's side of every call: bytes in, bytes out, errors as status.

A handler reads its request itself, so that it can wait for room first; the library would read
the request before it calls the handler.  A refusal is set on the context, not raised: the library
would keep the exception, which keeps its frames, which keep the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio

from rmqlite.errors import InvalidValue, RmqliteError
from rmqlite.server.protocols.native.conversion import Conversion
from rmqlite.server.protocols.native.guard import Enter
from rmqlite.server.protocols.native.in_flight import InFlight
from rmqlite.server.protocols.native.table import Context, Method, Methods
from rmqlite.wire.rpcs import Rpc
from rmqlite.wire.status import ERROR_METADATA, error_to_status

Answer = Callable[[bytes, Context], Awaitable[bytes]]
"""Turns a request's bytes into the answer's bytes.  Raises RmqliteError."""
Read = Callable[[], Awaitable[bytes | None]]
"""Returns the next request of a call with many requests; None after the last one."""
Talk = Callable[[Read, Context], Awaitable[None]]
"""Answers a call with many requests or answers.  Raises RmqliteError."""
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
CANCEL_S_MAX: Final = 1.0
"""gRPC cancels a call that it has refused itself within this time."""

log = logging.getLogger(__name__)


class Handlers(grpc.GenericRpcHandler):
    """Handlers by the path of their call; gRPC answers UNIMPLEMENTED for any other path."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        return self._handlers.get(handler_call_details.method)


def handlers_of(
    methods: Methods, in_flight: InFlight, conversion: Conversion, enter: Enter
) -> Handlers:
    """gRPC handlers that call these methods."""
    return Handlers(
        {
            rpc.path: one_answer(rpc.path, _asked(rpc, method, conversion), in_flight, enter)
            for rpc, method in methods.items()
        }
    )


def one_answer(path: str, answer: Answer, in_flight: InFlight, enter: Enter) -> Handler:
    """The handler of a call with one request and one answer."""

    async def call(_: object, context: Context) -> bytes:
        with _Refusing(path, context):
            charge = enter(path, context)
            room = await in_flight.room()
            try:
                data = await room.receive(_read(context))
                if data is None:
                    # A request that gRPC refuses reads as None, too; gRPC then cancels this task.
                    await asyncio.sleep(CANCEL_S_MAX)
                    raise InvalidValue("request", "nothing", "one message")
                if charge is not None:
                    charge(len(data))
                coming, data = answer(data, context), None
                return await coming
            finally:
                room.give_back()
        return b""

    # Registered as a call with a stream of requests, because gRPC reads none of those by
    # itself; the caller notices no difference.
    return grpc.stream_unary_rpc_method_handler(call)


def many_answers(path: str, talk: Talk, in_flight: InFlight, enter: Enter) -> Handler:
    """The handler of a call with many answers, and perhaps many requests."""

    async def call(_: object, context: Context) -> None:
        async def read() -> bytes | None:
            room = await in_flight.room()
            try:
                return await room.receive(_read(context))
            finally:
                room.give_back()

        with _Refusing(path, context):
            enter(path, context)
            await talk(read, context)

    return grpc.stream_stream_rpc_method_handler(call)


class _Refusing:
    """Turns an error into the status of a call; logs a bug and answers only that there was one."""

    __slots__ = ("_context", "_path")

    def __init__(self, path: str, context: Context) -> None:
        self._path = path
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if not isinstance(error, RmqliteError):
            log.error("call failed rpc=%s", self._path, exc_info=error)
            error = RmqliteError("the broker failed; its log says why")
        name, details, metadata = error_to_status(error)
        self._context.set_code(getattr(grpc.StatusCode, name))
        self._context.set_details(details)
        self._context.set_trailing_metadata(((ERROR_METADATA, metadata),))
        return True


def _asked(rpc: Rpc[Any, Any], method: Method, conversion: Conversion) -> Answer:
    async def answer(data: bytes, context: Context) -> bytes:
        reading = conversion.read(rpc, data)
        del data
        return await conversion.written(rpc, await method(await reading, context))

    return answer


async def _read(context: Context) -> bytes | None:
    data: Any = await context.read()
    return None if data is grpc.aio.EOF else data
