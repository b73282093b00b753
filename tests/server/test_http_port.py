"""The HTTP port: a page or an error, whatever a client sends or does not send."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rmqlite.protocols.metrics import (
    CONNECTIONS_MAX,
    EXCHANGE_S_MAX,
    REQUEST_BYTES_MAX,
    HttpPage,
    HttpPort,
)
from tests.support.clock import FakeClock
from tests.support.loops import run_with

ASK = b"GET /figures HTTP/1.1\r\nHost: here\r\n\r\n"
LARGE = bytes(8 << 20)
OK = b"HTTP/1.1 200 OK\r\n"


async def figures(_authorization: str) -> HttpPage:
    return HttpPage(b"a 1\n", "text/plain; version=0.0.4")


async def large(_authorization: str) -> HttpPage:
    return HttpPage(LARGE)


async def fails(_authorization: str) -> HttpPage:
    raise ValueError("told to fail")


class Client:
    """One connection to the port, over a pair of sockets."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        exchange: asyncio.Task[None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.exchange = exchange
        """The port's side of it."""

    def send(self, request: bytes) -> None:
        self._writer.write(request)

    async def ask(self, request: bytes) -> bytes:
        """Send; return everything that arrives until the connection is closed."""
        self.send(request)
        try:
            return await self._reader.read()
        except ConnectionError:
            # Closed before all was read that was sent.
            return b""


@asynccontextmanager
async def connected(port: HttpPort) -> AsyncIterator[Client]:
    ours, theirs = socket.socketpair()
    served = await asyncio.open_connection(sock=theirs, limit=REQUEST_BYTES_MAX)
    exchange = asyncio.create_task(port.exchange(*served))
    reader, writer = await asyncio.open_connection(sock=ours)
    try:
        yield Client(reader, writer, exchange)
    finally:
        writer.transport.abort()
        await asyncio.wait([exchange])
        if not exchange.cancelled():
            exchange.result()


def run(scenario: Callable[[HttpPort], Awaitable[None]]) -> int:
    """Run it on a loop with a fake clock; return how many milliseconds it took."""
    clock = FakeClock()
    began_ms = clock.now_ms()

    async def main() -> None:
        port = HttpPort()
        await port.open({"/figures": figures, "/large": large, "/fails": fails})
        await scenario(port)
        # What was closed is told to be at the loop's next turn.
        await asyncio.sleep(0)

    run_with(clock, main())
    return clock.now_ms() - began_ms


def answer_to(request: bytes) -> bytes:
    answers = []

    async def scenario(port: HttpPort) -> None:
        async with connected(port) as client:
            answers.append(await client.ask(request))

    run(scenario)
    return answers[0]


def test_a_page_is_answered_and_the_connection_closed() -> None:
    """With length, type and Connection: close; also if it is larger than the socket's buffer."""
    assert answer_to(ASK) == (
        OK + b"Content-Type: text/plain; version=0.0.4\r\n"
        b"Content-Length: 4\r\n"
        b"Connection: close\r\n\r\n"
        b"a 1\n"
    )
    assert answer_to(b"GET /large HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\n" + LARGE)


def test_a_query_is_ignored() -> None:
    """Prometheus appends what an operator configured as params."""
    assert answer_to(b"GET /figures?name=x HTTP/1.1\r\n\r\n").startswith(OK)


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/1.1",
        "GET /figures/ HTTP/1.1",
        "GET //figures HTTP/1.1",
        "GET http://here/figures HTTP/1.1",
        "get /figures HTTP/1.1",
        "POST /figures HTTP/1.1",
        "HEAD /figures HTTP/1.1",
        "DELETE /figures HTTP/1.1",
    ],
)
def test_everything_else_is_not_found(line: str) -> None:
    """The port has nothing to change and nothing to browse."""
    assert answer_to(f"{line}\r\n\r\n".encode()).startswith(b"HTTP/1.1 404 Not Found\r\n")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"GET /figures\r\n\r\n",
        b"GET  /figures HTTP/1.1\r\n\r\n",
        b"GET /figures HTTP/2.0\r\n\r\n",
        b"\xff\x00\xfe \x80 \x81\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(request_bytes: bytes) -> None:
    """A gRPC client at the wrong port, for example."""
    assert answer_to(request_bytes).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_page_that_fails_is_logged_and_no_page(caplog: pytest.LogCaptureFixture) -> None:
    """The broker continues: a mistake in a metric stops no messages."""
    caplog.set_level(logging.ERROR)
    assert answer_to(b"GET /fails HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 500 ")
    assert "told to fail" in caplog.text


def test_a_request_that_does_not_end_is_cut_off() -> None:
    """The port limits its bytes, not only its time."""
    assert answer_to(b"GET /figures HTTP/1.1\r\nX: " + b"x" * 4 * REQUEST_BYTES_MAX) == b""


@pytest.mark.parametrize("begun", [b"", b"GET /fig", ASK[:-1]])
def test_a_client_that_sends_slowly_is_cut_off(begun: bytes) -> None:
    """One that never ends its request must not stay for ever."""

    async def scenario(port: HttpPort) -> None:
        async with connected(port) as client:
            assert await client.ask(begun) == b""

    assert run(scenario) == EXCHANGE_S_MAX * 1000


def test_a_client_that_does_not_read_is_cut_off() -> None:
    """Otherwise its answer would stay in memory."""

    async def scenario(port: HttpPort) -> None:
        async with connected(port) as client:
            client.send(b"GET /large HTTP/1.1\r\n\r\n")
            await client.exchange
            assert len(await client.ask(b"")) < len(LARGE)

    assert run(scenario) == EXCHANGE_S_MAX * 1000


def test_a_client_that_goes_is_forgotten() -> None:
    """Before it has asked, or while it is answered."""

    async def scenario(port: HttpPort) -> None:
        for request in (b"G", b"GET /fig", b"GET /large HTTP/1.1\r\n\r\n"):
            ours, theirs = socket.socketpair()
            ours.send(request)
            ours.close()
            await port.exchange(*await asyncio.open_connection(sock=theirs))

    assert run(scenario) == 0


def test_too_many_at_once_are_not_answered() -> None:
    """Connections before the limit are answered, and later ones when those have ended."""

    async def scenario(port: HttpPort) -> None:
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(connected(port)) for _ in range(CONNECTIONS_MAX)
            ]
            async with connected(port) as one_more:
                assert await one_more.ask(ASK) == b""
            for client in clients:
                assert (await client.ask(ASK)).startswith(OK)
        async with connected(port) as one_more:
            assert (await one_more.ask(ASK)).startswith(OK)

    assert run(scenario) == 0


def test_closing_ends_who_is_still_connected() -> None:
    """A broker that stops waits for no probe."""

    async def scenario(port: HttpPort) -> None:
        async with connected(port) as client:
            asking = asyncio.create_task(client.ask(b"GET /fig"))
            await asyncio.sleep(0)
            port.close()
            assert await asking == b""

    assert run(scenario) == 0
