"""The page's own port: uvicorn inside the broker's loop, as one task among the others.

It shares nothing with the broker's other ports, handles no signals and writes no access log.
A connection gets a bounded request and a bounded time; when all connections are taken, a new one
is answered 503.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.protocol_server import Running, taking
from rmqlite.protocols.shared.tls import Listening, TlsKeys, listen
from rmqlite.web.app import web_app
from rmqlite.web.site import Site

CONNECTIONS_MAX: Final = 200
CONNECTION_S_MAX: Final = 75.0
"""How long a connection may last; without this, silent ones could take all places."""
REQUEST_BYTES_MAX: Final = 64 << 10
"""The longest first line and headers of a request, together; a link can name many ids."""
KEEP_ALIVE_S: Final = 15

log = logging.getLogger(__name__)


class WebServer:
    """Takes the port in bind(), and answers from open() to drain()."""

    def __init__(self, config: BrokerConfig, keys: TlsKeys | None = None) -> None:
        self._config = config
        self._keys = keys
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self._ended = asyncio.Event()

    async def bind(self) -> None:
        address, port = self._config.web_address, self._config.web_port
        with taking("webPort", port, address, of="webAddress"):
            family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            self._socket = socket.create_server((address, port), family=family)

    async def open(self, running: Running) -> None:
        assert self._socket is not None
        # Its warnings about requests that are no HTTP help nobody.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        settings = uvicorn.Config(
            web_app(Site(self._config, running.service)),
            http=_Protocol,
            ws="none",
            loop="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=REQUEST_BYTES_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(self._config.drain_ms_max / 1000),
        )
        self._server = _Server(settings, self._keys)
        running.tasks.create_task(self._run(self._server, self._socket), name="web page")

    @property
    def ports(self) -> dict[str, int]:
        assert self._socket is not None
        return {"web_port": self._socket.getsockname()[1]}

    @property
    def is_listening(self) -> bool:
        # It begins to when its task does, whose end is noticed by itself.
        return self._server is None or not self._server.started or self._server.is_listening

    async def drain(self) -> None:
        assert self._server is not None
        self._server.should_exit = True
        await self._ended.wait()

    async def close(self) -> None:
        # The task that answers has ended before, by drain() or by a failure of the broker.
        if self._socket is not None:
            self._socket.close()

    async def _run(self, server: _Server, listening: socket.socket) -> None:
        """Answer until drain()."""
        host, port = listening.getsockname()[:2]
        log.info(
            "the web page is served address=%s port=%d access=%s",
            host,
            port,
            self._config.web_access,
        )
        try:
            await server.serve([listening])
        finally:
            self._ended.set()
            # After a failure of the broker, too, no request is answered any more.
            for connection in list(server.server_state.connections):
                connection.transport.abort()
            for task in list(server.server_state.tasks):
                task.cancel()
            listening.close()


class _Server(uvicorn.Server):
    """Accepts connections as the broker's other ports do, with the same TLS keys."""

    def __init__(self, settings: uvicorn.Config, keys: TlsKeys | None) -> None:
        super().__init__(settings)
        self._keys = keys
        self._listening: list[Listening] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        made = partial(_Protocol, self.config, self.server_state, {})
        self._listening = [await listen(each, made, self._keys) for each in sockets or ()]
        self.servers = []
        self.started = True

    @property
    def is_listening(self) -> bool:
        return all(each.is_open for each in self._listening)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in self._listening:
            each.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the broker, which drains all its ports."""
        yield


class _Protocol(H11Protocol):
    """One connection, which may carry many requests, but not for ever."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._end = asyncio.get_running_loop().call_later(CONNECTION_S_MAX, self._expire)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        super().connection_lost(exc)
        # After a reset uvicorn leaves it running, and it holds the connection's buffers.
        self._unset_keepalive_if_required()

    def _expire(self) -> None:
        """Close an idle connection now, a busy one after its answer; abort it if that is slow."""
        self._end = asyncio.get_running_loop().call_later(CONNECTION_S_MAX, self.transport.abort)
        self.shutdown()
