"""The HTTP port for Prometheus and probes: a few pages, one request per connection.

A page begins in the loop's thread, because no other thread may read the broker: so the standard
library's servers cannot be used, and a web framework would be larger than its few pages.
A connection gets a bounded time and a bounded request; then it is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from rmqlite.errors import InvalidValue
from rmqlite.server.gate.tls import Keys, Listening, listen

REQUEST_BYTES_MAX: Final = 16 << 10
"""The longest first line and headers of a request, together."""
EXCHANGE_S_MAX: Final = 10.0
"""How long one connection may take, from its start to the last byte of the answer."""
CONNECTIONS_MAX: Final = 64
PLAIN_TEXT: Final = "text/plain; charset=utf-8"

log = logging.getLogger(__name__)


class Page(NamedTuple):
    """An answer."""

    body: bytes
    content_type: str = PLAIN_TEXT
    status: HTTPStatus = HTTPStatus.OK


Pages = Mapping[str, Callable[[str], Awaitable[Page]]]
"""Pages by their path, such as /metrics; each gets the request's header Authorization, or ""."""


class HttpPort:
    """Answers a GET of a path in pages with its page, any other request with an error."""

    def __init__(self, keys: Keys | None = None) -> None:
        self._keys = keys
        self._pages: Pages = {}
        self._exchanges: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None
        self._server: Listening | None = None
        self.port = 0

    async def bind(self, address: str, port: int) -> None:
        """Take the port; nobody can connect yet.  Raises InvalidValue."""
        try:
            family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            self._socket = socket.create_server((address, port), family=family)
        except OSError as error:
            rule = f"a port that is free on bindAddress={address}"
            raise InvalidValue("metricsPort", port, rule) from error
        self.port = self._socket.getsockname()[1]

    async def open(self, pages: Pages) -> None:
        """Answer requests from now on."""
        self._pages = pages
        if self._socket is not None:
            self._server = await listen(self._socket, self._exchanging, self._keys)

    def close(self) -> None:
        """Close the port and end all connections."""
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
        for exchange in self._exchanges:
            exchange.cancel()

    async def exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until its end."""
        task = asyncio.current_task()
        assert task is not None
        self._exchanges.add(task)
        # Now: with TLS it is unknown once the connection is lost.
        peer = writer.get_extra_info("peername")
        try:
            if len(self._exchanges) > CONNECTIONS_MAX:
                return
            async with asyncio.timeout(EXCHANGE_S_MAX):
                page = await self._page(await reader.readuntil(b"\r\n\r\n"))
                writer.write(_encoded(page))
                writer.close()
                await writer.wait_closed()
        except (
            TimeoutError,
            OSError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ) as error:
            log.debug("request cut off peer=%s reason=%r", peer, error)
            # The reader keeps it, and its frames keep the reader: a cycle with all its buffers.
            error.with_traceback(None)
        finally:
            self._exchanges.discard(task)
            writer.transport.abort()

    def _exchanging(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=REQUEST_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, self.exchange)

    async def _page(self, request: bytes) -> Page:
        first, *headers = request.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _error(HTTPStatus.BAD_REQUEST)
        method, target, _ = words
        page = self._pages.get(target.partition("?")[0])
        if method != "GET" or page is None:
            return _error(HTTPStatus.NOT_FOUND)
        try:
            return await page(_authorization(headers))
        except Exception:
            log.exception("page failed target=%s", target)
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR)


def _authorization(headers: Sequence[str]) -> str:
    for header in headers:
        name, _, value = header.partition(":")
        if name.lower() == "authorization":
            return value.strip()
    return ""


def _error(status: HTTPStatus) -> Page:
    return Page(f"{status.value} {status.phrase}\n".encode(), status=status)


UNAUTHORIZED: Final = _error(HTTPStatus.UNAUTHORIZED)


def _encoded(page: Page) -> bytes:
    asks = "WWW-Authenticate: Bearer\r\n" if page.status is HTTPStatus.UNAUTHORIZED else ""
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        f"{asks}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + page.body
