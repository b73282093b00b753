"""A worker: takes connections and calls of gRPC, and relays each call to the broker.

It knows no call.  The broker names the paths, and which of them have many answers; all rules stand
there.  A worker reads the first request of a call ahead, because a call then needs one frame each
way; if many are being read, or much of what was read waits in the broker, it waits to be asked.

It ends when the broker does: then the pair of sockets has no other end.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import signal
import socket
import sys
from collections import deque
from functools import partial
from typing import Any, Final

import grpc
import grpc.aio

from rmqlite.protocols.grpc.in_flight import end_connections
from rmqlite.protocols.grpc.library_log import in_short_lines
from rmqlite.protocols.grpc.listening import KeyTexts, begun, calls_end, credentials, options
from rmqlite.protocols.workers.frames import Began, Frames, Kind, read_result

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
AHEAD_S_MAX: Final = 0.02
"""How long a call waits for its first request until the broker hears of it without one."""
AHEAD_READS_MAX: Final = 16
"""How many calls may be reading ahead: each may hold one longest request."""
AHEAD_BYTES_MAX: Final = 4 << 20
"""How many bytes of requests that were read ahead may wait in the broker."""
END_S_MAX: Final = 0.5
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_PR_SET_PDEATHSIG: Final = 1
Context = Any
log = logging.getLogger(__name__)


class _Call:
    __slots__ = ("ahead", "context", "data", "frames", "is_told", "late", "path", "reading", "wake")

    def __init__(self, path: str, context: Context) -> None:
        self.path = path
        self.context = context
        self.frames: deque[tuple[Kind, bytes]] = deque()
        self.wake: asyncio.Future[None] | None = None
        self.is_told = False
        """Has the broker heard of the call?"""
        self.ahead = 0
        """How many bytes it got ahead."""
        self.reading: asyncio.Task[Any] | None = None
        self.late: asyncio.TimerHandle | None = None
        self.data: Any = None
        """A request that the broker has not asked for yet."""


class Worker(Frames):
    """The worker's end of the pair."""

    def __init__(self) -> None:
        super().__init__(1 << 31)
        self._calls: dict[int, _Call] = {}
        self._number = 0
        self._ahead_reads = 0
        self._ahead_bytes = 0
        self._handlers: dict[str, Any] = {}
        self._server: grpc.aio.Server | None = None
        self._keys = KeyTexts("", "", "")
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- frames of the broker

    def take_frame(self, kind: Kind, call: int, content: bytes) -> None:
        if call:
            found = self._calls.get(call)
            if found is not None:
                self._take_of(found, kind, content)
        elif kind is Kind.PING:
            self.send_frame(Kind.PONG)
        elif kind is Kind.CLOSE:
            self._begin(asyncio.to_thread(end_connections, json.loads(content)))
        elif kind is Kind.KEYS:
            self._keys = KeyTexts(*json.loads(content))
        elif kind is Kind.START:
            self._begin(self._serve(json.loads(content)))
        elif kind is Kind.DRAIN:
            self._begin(self._drain(json.loads(content)))

    def _take_of(self, call: _Call, kind: Kind, content: bytes) -> None:
        self._ahead_bytes -= call.ahead
        call.ahead = 0
        call.frames.append((kind, content))
        if call.wake is not None and not call.wake.done():
            call.wake.set_result(None)

    def broken(self, reason: str) -> None:
        log.error("a gRPC worker ends reason=%s", reason)

    def connection_lost(self, _error: Exception | None) -> None:
        _end_at_once()

    def _begin(self, coming: Any) -> None:
        task = asyncio.ensure_future(coming)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a gRPC worker ends reason=%r", task.exception())
            _end_at_once()

    # ---- the port

    async def _serve(self, start: dict[str, Any]) -> None:
        """Answer calls until gRPC's loop ends: then another worker takes this one's place."""
        make = {
            False: grpc.stream_unary_rpc_method_handler,
            True: grpc.stream_stream_rpc_method_handler,
        }
        for path, is_stream in start["paths"].items():
            self._handlers[path] = make[is_stream](self._relayed(path))
        self._server = server = grpc.aio.server(
            options=options(start["connections_max"], start["request_bytes_max"], shares_port=True),
            maximum_concurrent_rpcs=start["calls_max"],
        )
        for target, is_tls in start["targets"]:
            if is_tls:
                needs = start["needs_certificates"]
                keys = credentials(lambda: self._keys, needs_certificates=needs)
                server.add_secure_port(target, keys)
            else:
                server.add_insecure_port(target)
        server.add_generic_rpc_handlers((_Paths(self._handlers),))
        serving = await begun(server)
        self.send_frame(Kind.READY)
        await asyncio.wait([serving])
        if not serving.cancelled() and serving.exception() is not None:
            raise RuntimeError(f"gRPC's loop has ended: {serving.exception()}")

    async def _drain(self, seconds: float) -> None:
        if self._server is not None:
            stopping = asyncio.ensure_future(self._server.stop(seconds))
            await calls_end(seconds)
            await asyncio.wait([stopping], timeout=END_S_MAX)
            # A call that came just now may be lost inside gRPC: only this ends it.
            await self._server.stop(0)
        await asyncio.sleep(0)
        self.cut_off()

    # ---- calls

    def _relayed(self, path: str) -> Any:
        async def relayed(_: object, context: Context) -> bytes | None:
            return await self._relay(_Call(path, context))

        return relayed

    async def _relay(self, call: _Call) -> bytes | None:
        """Answer a call with what the broker says."""
        self._number = number = self._number + 1
        self._calls[number] = call
        has_result = False
        try:
            self._read_ahead(number, call)
            while True:
                if not call.frames:
                    call.wake = asyncio.get_running_loop().create_future()
                    await call.wake
                kind, content = call.frames.popleft()
                if kind is Kind.READ:
                    self._read(number, call)
                elif kind is Kind.MESSAGE:
                    await call.context.write(content)
                    self.send_frame(Kind.WRITTEN, number)
                elif kind is Kind.RESULT:
                    has_result = True
                    return self._end_of(number, call.context, content)
        finally:
            self._leave(number, call)
            if not has_result and call.is_told:
                self.send_frame(Kind.GONE, number)

    def _end_of(self, number: int, context: Context, content: bytes) -> bytes | None:
        result = read_result(content)
        if result.code:
            context.set_code(_CODES[result.code])
            context.set_details(result.details)
        if result.trailing:
            context.set_trailing_metadata(result.trailing)
        if result.is_watched:
            context.add_done_callback(lambda _: self.send_frame(Kind.TAKEN, number))
        return result.answer

    def _leave(self, number: int, call: _Call) -> None:
        del self._calls[number]
        self._ahead_bytes -= call.ahead
        if call.reading is not None:
            call.reading.cancel()
        self._not_late(call)

    # ---- requests

    def _read_ahead(self, number: int, call: _Call) -> None:
        is_full = self._ahead_reads >= AHEAD_READS_MAX or self._ahead_bytes >= AHEAD_BYTES_MAX
        if is_full:
            self._tell(number, call, None)
            return
        self._ahead_reads += 1
        call.reading = asyncio.ensure_future(call.context.read())
        call.reading.add_done_callback(partial(self._arrived_ahead, number, call))
        loop = asyncio.get_running_loop()
        call.late = loop.call_later(AHEAD_S_MAX, self._tell, number, call, None)

    def _not_late(self, call: _Call) -> None:
        if call.late is not None:
            call.late.cancel()
            call.late = None

    def _arrived_ahead(self, number: int, call: _Call, reading: asyncio.Task[Any]) -> None:
        self._ahead_reads -= 1
        call.reading = None
        self._not_late(call)
        if reading.cancelled() or reading.exception() is not None:
            return
        data = reading.result()
        if not call.is_told:
            is_end = data is grpc.aio.EOF
            self._tell(number, call, None if is_end else data)
            if is_end:
                self.send_frame(Kind.END, number)
        elif call.data is _WANTED:
            self._pass_on(number, data)
            call.data = None
        else:
            call.data = data

    def _tell(self, number: int, call: _Call, first: bytes | None) -> None:
        """Say to the broker that a call begins."""
        call.is_told = True
        call.late = None
        call.ahead = len(first or b"")
        self._ahead_bytes += call.ahead
        context = call.context
        began = Began(
            call.path,
            context.peer(),
            context.time_remaining(),
            tuple(context.invocation_metadata() or ()),
            first,
        )
        self.send_frame(Kind.CALL, number, began.to_bytes())

    def _read(self, number: int, call: _Call) -> None:
        """The broker wants a request."""
        if call.data is not None:
            self._pass_on(number, call.data)
            call.data = None
        elif call.reading is not None:
            call.data = _WANTED
        else:
            call.reading = asyncio.ensure_future(call.context.read())
            call.reading.add_done_callback(partial(self._arrived, number, call))

    def _arrived(self, number: int, call: _Call, reading: asyncio.Task[Any]) -> None:
        call.reading = None
        if not reading.cancelled() and reading.exception() is None:
            self._pass_on(number, reading.result())

    def _pass_on(self, number: int, data: Any) -> None:
        if data is grpc.aio.EOF:
            self.send_frame(Kind.END, number)
        else:
            self.send_frame(Kind.MESSAGE, number, data)


_WANTED: Final = object()


class _Paths(grpc.GenericRpcHandler):
    """gRPC answers UNIMPLEMENTED for any other path."""

    def __init__(self, handlers: dict[str, Any]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._handlers.get(handler_call_details.method)


def _end_at_once() -> None:
    """Not as Python ends: gRPC's threads might be waited for."""
    signal.raise_signal(signal.SIGKILL)


async def run(pair: socket.socket) -> None:
    pair.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(Worker, pair)
    await loop.create_future()


def _end_with_the_broker() -> None:
    """Also if this process is stopped, and cannot see that the pair has no other end."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    # A Ctrl-C or a stop of the whole group is for the broker, which then ends its workers.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _end_with_the_broker()
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)
    with in_short_lines():
        asyncio.run(run(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
