"""A call that a worker relays, as gRPC's context of it: the broker's handlers see no difference.

Calls begin in turns of their connections, a few in each turn of the loop: who has sent a thousand
holds up nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import grpc
import grpc.aio

from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.protocols.workers.frames import Began, FrameInvalid, Kind, Metadata, Result

TURN_CALLS_MAX: Final = 50
TURN_BYTES_MAX: Final = 64 << 10
"""How many calls, and with how many bytes of requests, begin in one turn of the loop."""
log = logging.getLogger(__name__)


class Gone(grpc.aio.BaseError):
    """Nobody is left to read the answer."""


class Relay(Protocol):
    """The way to a worker."""

    def send_frame(self, kind: Kind, call: int = 0, content: bytes = b"") -> None: ...

    def taken(self, size: int) -> None:
        """So many bytes of requests do not wait any more."""
        ...

    def forget(self, number: int) -> None:
        """Nothing comes for a call any more."""
        ...


class RelayedCall:
    """One call; number: of its worker."""

    __slots__ = (
        "_callbacks",
        "_code",
        "_deadline_s",
        "_details",
        "_is_at_end",
        "_is_gone",
        "_link",
        "_number",
        "_reading",
        "_requests",
        "_task",
        "_trailing",
        "_writing",
        "began",
        "size",
    )

    def __init__(self, link: Relay, number: int, began: Began) -> None:
        self._link = link
        self._number = number
        self.began = began
        self.size = len(began.first or b"")
        self._deadline_s = None if began.left_s is None else elapsed_s() + began.left_s
        self._requests = deque([] if began.first is None else [began.first])
        self._is_at_end = False
        self._is_gone = False
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._callbacks: list[Callable[[Any], None]] = []
        self._code = 0
        self._details = ""
        self._trailing: Metadata = ()

    # ---- what handlers use of gRPC's context

    def peer(self) -> str:
        return self.began.peer

    def invocation_metadata(self) -> Metadata:
        return self.began.metadata

    def time_remaining(self) -> float | None:
        return None if self._deadline_s is None else max(0.0, self._deadline_s - elapsed_s())

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code.value[0]

    def set_details(self, details: str) -> None:
        self._details = details

    def set_trailing_metadata(self, trailing: Metadata) -> None:
        self._trailing = trailing

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    async def read(self) -> Any:
        """The next request, or grpc.aio.EOF."""
        if not self._requests and not self._is_at_end:
            self._link.send_frame(Kind.READ, self._number)
            self._reading = asyncio.get_running_loop().create_future()
            await self._reading
        if not self._requests:
            return grpc.aio.EOF
        data = self._requests.popleft()
        self._link.taken(len(data))
        return data

    async def write(self, data: bytes) -> None:
        """Return when gRPC has taken the answer.  Raises Gone."""
        if self._is_gone:
            raise Gone
        while self._writing is not None:
            await asyncio.wait([self._writing])
        self._link.send_frame(Kind.MESSAGE, self._number, data)
        self._writing = asyncio.get_running_loop().create_future()
        try:
            await self._writing
        finally:
            self._writing = None

    # ---- what the worker says

    def take_frame(self, kind: Kind, content: bytes) -> None:
        if kind is Kind.MESSAGE:
            self._requests.append(content)
            _wake(self._reading)
        elif kind is Kind.END:
            self._is_at_end = True
            _wake(self._reading)
        elif kind is Kind.WRITTEN:
            _wake(self._writing)
        elif kind in (Kind.TAKEN, Kind.GONE):
            self.end_call()

    def end_call(self) -> None:
        """The client has its answer, or the connection is lost."""
        self._forgotten()
        if self._task is not None:
            self._task.cancel()
        for callback in self._callbacks:
            callback(self)

    # ---- the handler

    def begin_handler(self, handler: Any) -> None:
        if not self._is_gone:
            self._task = asyncio.ensure_future(self._run(handler))

    async def _run(self, handler: Any) -> None:
        answer: bytes | None = None
        try:
            if handler.response_streaming:
                await handler.stream_stream(None, self)
            else:
                answer = await handler.stream_unary(None, self)
        except Exception as error:
            if self._is_gone:
                return
            log.error("call failed rpc=%s", self.began.path, exc_info=error)
            self._code = grpc.StatusCode.UNKNOWN.value[0]
            self._details, self._trailing, answer = f"Unexpected {type(error)}: {error}", (), None
        except asyncio.CancelledError:
            if self._is_gone:
                return
            # The broker ends.
            self._code = grpc.StatusCode.CANCELLED.value[0]
            self._result(None)
            raise
        self._result(answer)

    def _result(self, answer: bytes | None) -> None:
        self._task = None
        if self._is_gone:
            return
        result = Result(self._code, self._details, self._trailing, answer, bool(self._callbacks))
        self._link.send_frame(Kind.RESULT, self._number, result.to_bytes())
        if not self._callbacks:
            self._forgotten()

    def _forgotten(self) -> None:
        self._is_gone = True
        self._link.forget(self._number)
        self._link.taken(sum([len(each) for each in self._requests]))
        self._requests.clear()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class Beginning:
    """The calls that have come and not begun."""

    def __init__(self, handler_of: Callable[[str], Any]) -> None:
        self._handler_of = handler_of
        self._waiting: dict[str, deque[RelayedCall]] = {}
        """By connection; the next one to have its turn first."""
        self._loop = asyncio.get_running_loop()
        self._is_due = False

    def add_call(self, call: RelayedCall) -> None:
        """begin_some() follows, in the same turn.  Raises FrameInvalid for a path of no call."""
        if self._handler_of(call.began.path) is None:
            raise FrameInvalid(f"a call of {call.began.path!r}")
        self._waiting.setdefault(call.began.peer, deque()).append(call)

    def begin_some(self) -> None:
        """Begin the calls that have come, unless others wait for the next turn already."""
        if self._waiting and not self._is_due:
            self._some()

    def _some(self) -> None:
        waiting, left = self._waiting, TURN_BYTES_MAX
        for _ in range(TURN_CALLS_MAX):
            if not waiting or left <= 0:
                break
            peer = next(iter(waiting))
            calls = waiting.pop(peer)
            call = calls.popleft()
            if calls:
                waiting[peer] = calls
            left -= call.size
            call.begin_handler(self._handler_of(call.began.path))
        self._is_due = bool(waiting)
        if waiting:
            self._loop.call_soon(self._some)
