"""The metrics port: /metrics for Prometheus, /healthz for probes."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Final

from rmqlite.access.files import read_text
from rmqlite.config import BrokerConfig
from rmqlite.server.gate.tls import Keys
from rmqlite.server.gate.watched import WatchedFiles
from rmqlite.server.protocols.metrics.http_port import UNAUTHORIZED, HttpPort, Page
from rmqlite.server.protocols.metrics.metrics import TEXT_TYPE, Metrics
from rmqlite.server.protocols.server import Running
from rmqlite.server.service.access import BROKER, CALLER
from rmqlite.server.service.service import Service
from rmqlite.server.turns import done_in_turns

TOKEN_BYTES_MAX: Final = 4_096
TOKEN_CHARS_MIN: Final = 16
_TOKEN: Final = re.compile(f"[A-Za-z0-9._~+/=-]{{{TOKEN_CHARS_MIN},}}")
log = logging.getLogger(__name__)


class MetricsServer:
    """The port for Prometheus and probes; it answers until close()."""

    def __init__(self, config: BrokerConfig, keys: Keys | None = None) -> None:
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
            running.broker, running.commit, running.watch, service.access, service.watched
        )

        async def metrics_page(authorization: str) -> Page:
            if self._token is not None and not self._token.is_in(authorization):
                return UNAUTHORIZED
            CALLER.set(BROKER)
            collected = await done_in_turns(metrics.collected(await service.status()))
            return Page(await asyncio.to_thread(collected.text), TEXT_TYPE)

        async def health_page(_authorization: str) -> Page:
            return page_of_health(service)

        if self._token is not None:
            self._looking = running.tasks.create_task(self._token.run(), name=self._token.name)

        await self._http.open({"/metrics": metrics_page, "/healthz": health_page})
        address = self._config.bind_address
        log.info("metrics are served address=%s port=%d", address, self._http.port)

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


def page_of_health(service: Service) -> Page:
    """200 while the broker serves, 503 while it drains."""
    if service.is_closing:
        return Page(b"draining\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(b"serving\n")
