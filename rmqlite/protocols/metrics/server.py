"""The metrics port: /metrics for Prometheus, /healthz for probes, one request per connection.

A page begins in the loop's thread, because no other thread may read the broker: so the standard
library's servers cannot be used, and a web framework would be larger than its two pages.
A connection gets a bounded time and a bounded request; then it is closed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.protocol_server import Running, bound_socket, taking
from rmqlite.kernel.service.access import BROKER, CALLER
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.protocols.metrics.metrics import TEXT_TYPE, Metrics
from rmqlite.protocols.shared.secret_files import read_text
from rmqlite.protocols.shared.tls import Listening, TlsKeys, listen
from rmqlite.protocols.shared.watched import WatchedFiles

TOKEN_BYTES_MAX: Final = 4_096
TOKEN_CHARS_MIN: Final = 16
_TOKEN: Final = re.compile(f"[A-Za-z0-9._~+/=-]{{{TOKEN_CHARS_MIN},}}")
REQUEST_BYTES_MAX: Final = 16 << 10
"""The longest first line and headers of a request, together."""
EXCHANGE_S_MAX: Final = 10.0
"""How long one connection may take, from its start to the last byte of the answer."""
CONNECTIONS_MAX: Final = 64
PLAIN_TEXT: Final = "text/plain; charset=utf-8"
log = logging.getLogger(__name__)


class HttpPage(NamedTuple):
    """An answer."""

    body: bytes
    content_type: str = PLAIN_TEXT
    status: HTTPStatus = HTTPStatus.OK


Pages = Mapping[str, Callable[[str], Awaitable[HttpPage]]]
"""Pages by their path, such as /metrics; each gets the request's header Authorization, or ""."""


class HttpPort:
    """Answers a GET of a path in pages with its page, any other request with an error."""

    def __init__(self, keys: TlsKeys | None = None) -> None:
        self._keys = keys
        self._pages: Pages = {}
        self._exchanges: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None
        self._server: Listening | None = None
        self.port = 0

    async def bind(self, address: str, port: int) -> None:
        """Take the port; nobody can connect yet.  Raises InvalidValue."""
        with taking("metricsPort", port, address):
            self._socket = bound_socket(address, port)
        self.port = self._socket.getsockname()[1]

    async def open(self, pages: Pages) -> None:
        """Answer requests from now on."""
        self._pages = pages
        if self._socket is not None:
            self._server = await listen(self._socket, self._exchanging, self._keys)

    @property
    def is_open(self) -> bool:
        return self._server is not None and self._server.is_open

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
        is_closed = False
        try:
            if len(self._exchanges) > CONNECTIONS_MAX:
                return
            async with asyncio.timeout(EXCHANGE_S_MAX):
                page = await self._page(await reader.readuntil(b"\r\n\r\n"))
                writer.write(_encoded(page))
                writer.close()
                await writer.wait_closed()
                is_closed = True
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
            # asyncio's transport cannot be told so once it has sent what it held and closed.
            if not is_closed:
                writer.transport.abort()

    def _exchanging(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=REQUEST_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, self.exchange)

    async def _page(self, request: bytes) -> HttpPage:
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


def _error(status: HTTPStatus) -> HttpPage:
    return HttpPage(f"{status.value} {status.phrase}\n".encode(), status=status)


UNAUTHORIZED: Final = _error(HTTPStatus.UNAUTHORIZED)


def _encoded(page: HttpPage) -> bytes:
    asks = "WWW-Authenticate: Bearer\r\n" if page.status is HTTPStatus.UNAUTHORIZED else ""
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        f"{asks}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + page.body


class MetricsServer:
    """The port for Prometheus and probes; it answers until close()."""

    def __init__(self, config: BrokerConfig, keys: TlsKeys | None = None) -> None:
        self._config = config
        self._http = HttpPort(keys)
        path = config.metrics_token_file
        self._token = None if path is None else _Token(config, path)
        self._looking: asyncio.Task[None] | None = None

    async def bind(self) -> None:
        if self._token is not None:
            self._token.load()
        await self._http.bind(self._config.bind_address, self._config.metrics_port)

    async def open(self, running: Running) -> None:
        service = running.service
        metrics = Metrics(
            running.broker,
            running.commit,
            running.watch,
            service.access,
            service.watched,
            service.ports,
        )

        async def metrics_page(authorization: str) -> HttpPage:
            if self._token is not None and not self._token.is_in(authorization):
                return UNAUTHORIZED
            CALLER.set(BROKER)
            collected = await done_in_turns(metrics.collected(await service.status()))
            return HttpPage(await asyncio.to_thread(collected.text), TEXT_TYPE)

        async def health_page(_authorization: str) -> HttpPage:
            return page_of_health(service)

        if self._token is not None:
            self._looking = running.tasks.create_task(self._token.watch(), name=self._token.name)

        await self._http.open({"/metrics": metrics_page, "/healthz": health_page})
        address = self._config.bind_address
        log.info("metrics are served address=%s port=%d", address, self._http.port)

    @property
    def ports(self) -> dict[str, int]:
        return {"metrics_port": self._http.port}

    @property
    def is_listening(self) -> bool:
        return self._http.is_open

    async def drain(self) -> None:
        """Answer on: the port shows the drain, too."""
        if self._looking is not None:
            self._looking.cancel()

    async def close(self) -> None:
        self._http.close()


class _Token(WatchedFiles[str]):
    """The bearer token that Prometheus must show; it stands in a file, in one line."""

    name = "metrics token"

    def __init__(self, config: BrokerConfig, path: Path) -> None:
        super().__init__()
        self._config = config
        self._path = path
        self._expected = b""
        self._warning = ""

    def is_in(self, authorization: str) -> bool:
        """Has a header Authorization the token?"""
        return hmac.compare_digest(authorization.encode("utf-8", "replace"), self._expected)

    def _files(self) -> Iterable[Path]:
        return [self._path]

    def _read(self) -> str:
        try:
            text, self._warning = read_text(self._path, TOKEN_BYTES_MAX)
        except ValueError as error:
            raise self._config.refusal("metrics_token_file", str(error)) from None
        if not _TOKEN.fullmatch(text.strip()):
            rule = f"one line of {TOKEN_CHARS_MIN} or more of letters, digits and -._~+/="
            raise self._config.refusal("metrics_token_file", rule)
        return text.strip()

    def _take(self, found: str) -> Iterable[str]:
        self._expected = f"Bearer {found}".encode()
        return [self._warning] if self._warning else []


def page_of_health(service: Service) -> HttpPage:
    """200 while the broker serves, 503 while it drains or a port does not answer."""
    if service.is_closing:
        return HttpPage(b"draining\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
    if service.ports.away:
        away = "\n".join(service.ports.away)
        return HttpPage(f"{away}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
    return HttpPage(b"serving\n")
