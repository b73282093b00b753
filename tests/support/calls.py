"""gRPC's side of a call, without gRPC: it gives requests and takes answers and the status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import grpc.aio

from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.protocols.grpc.calls import Handlers
from rmqlite.protocols.shared.status import ERROR_METADATA, error_from_metadata

Sent = tuple[tuple[str, str], ...]


class FakeContext:
    """One call."""

    def __init__(self, *requests: bytes, sent: Sent = (), left_s: float | None = None) -> None:
        """sent: the metadata of the call.  left_s: until its deadline."""
        self._sent = sent
        self._left_s = left_s
        self._requests: Iterator[bytes] = iter(requests)
        self._at_end: list[Callable[[Any], None]] = []
        self.answers: list[bytes] = []
        self.code = grpc.StatusCode.OK
        self.details = ""
        self.metadata: tuple[tuple[str, bytes], ...] = ()

    async def read(self) -> Any:
        await asyncio.sleep(0)
        return next(self._requests, grpc.aio.EOF)

    async def write(self, message: bytes) -> None:
        self.answers.append(message)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._at_end.append(callback)

    def end(self) -> None:
        """The client has taken the answer, or is gone."""
        for callback in self._at_end:
            callback(self)

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, metadata: tuple[tuple[str, bytes], ...]) -> None:
        self.metadata = metadata

    def invocation_metadata(self) -> Sent:
        return self._sent

    def peer(self) -> str:
        return "ipv4:10.0.0.1:1234"

    def time_remaining(self) -> float | None:
        return self._left_s

    @property
    def error(self) -> RmqliteError:
        """What a client would raise."""
        return error_from_metadata(dict(self.metadata)[ERROR_METADATA])


class _Details:
    invocation_metadata = ()

    def __init__(self, method: str) -> None:
        self.method = method


async def ask(
    handlers: Handlers,
    path: str,
    *requests: bytes,
    sent: Sent = (),
    left_s: float | None = None,
) -> FakeContext:
    """Make a call; all of what came back."""
    context = FakeContext(*requests, sent=sent, left_s=left_s)
    await talk(handlers, path, context)
    return context


async def talk(handlers: Handlers, path: str, context: FakeContext) -> None:
    """Make a call in this context."""
    details: Any = _Details(path)
    handler: Any = handlers.service(details)
    if handler.response_streaming:
        await handler.stream_stream(None, context)
    else:
        context.answers.append(await handler.stream_unary(None, context))
    context.end()


async def turns_until(is_so: Callable[[], bool]) -> None:
    """Let the loop turn until it is so."""
    for _ in range(100_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never was so")
