"""The HTTP port for Prometheus and probes: a few pages, one request per connection.

A page begins in the loop's thread, because no other thread may read the broker: so the standard
library's servers cannot be used, and a web framework would be larger than its few pages.
A connection gets a bounded time and a bounded request; then it is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from rmqlite.errors import InvalidValue

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


Pages = Mapping[str, Callable[[], Awaitable[Page]]]
"""Pages by their path, such as /metrics."""


class HttpPort:
    """Answers a GET of a path in pages with its page, any other request with an error."""

    def __init__(self) -> None:
        self._pages: Pages = {}
        self._exchanges: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def bind(self, address: str, port: int) -> None:
        """Take the port; nobody can connect yet.  Raises InvalidValue."""
        try:
            self._server = await asyncio.start_server(
                self.exchange, address, port, limit=REQUEST_BYTES_MAX, start_serving=False
            )
        except OSError as error:
            rule = f"a port that is free on bindAddress={address}"
            raise InvalidValue("metricsPort", port, rule) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def open(self, pages: Pages) -> None:
        """Answer requests from now on."""
        self._pages = pages
        if self._server is not None:
            await self._server.start_serving()

    def close(self) -> None:
        """Close the port and end all connections."""
        if self._server is not None:
            self._server.close()
        for exchange in self._exchanges:
            exchange.cancel()

    async def exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until its end."""
        task = asyncio.current_task()
        assert task is not None
        self._exchanges.add(task)
        # drain() returns when the operating system has everything.
        writer.transport.set_write_buffer_limits(0)
        try:
            if len(self._exchanges) > CONNECTIONS_MAX:
                return
            async with asyncio.timeout(EXCHANGE_S_MAX):
                page = await self._page(await reader.readuntil(b"\r\n\r\n"))
                writer.write(_encoded(page))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("request cut off peer=%s", writer.get_extra_info("peername"))
        finally:
            self._exchanges.discard(task)
            writer.transport.abort()

    async def _page(self, request: bytes) -> Page:
        words = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _error(HTTPStatus.BAD_REQUEST)
        method, target, _ = words
        page = self._pages.get(target.partition("?")[0])
        if method != "GET" or page is None:
            return _error(HTTPStatus.NOT_FOUND)
        try:
            return await page()
        except Exception:
            log.exception("page failed target=%s", target)
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR)


def _error(status: HTTPStatus) -> Page:
    return Page(f"{status.value} {status.phrase}\n".encode(), status=status)


def _encoded(page: Page) -> bytes:
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + page.body
