"""The metrics port: /metrics for Prometheus, /healthz for probes."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

from rmqlite.config import BrokerConfig
from rmqlite.server.faces.face import Running
from rmqlite.server.faces.metrics.http_port import HttpPort, Page
from rmqlite.server.faces.metrics.metrics import TEXT_TYPE, Metrics
from rmqlite.server.front.access import BROKER, CALLER
from rmqlite.server.front.front import Front

log = logging.getLogger(__name__)


class MetricsFace:
    """The port for Prometheus and probes; it answers until close()."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._http = HttpPort()

    async def bind(self) -> None:
        await self._http.bind(self._config.bind_address, self._config.metrics_port)

    async def open(self, running: Running) -> None:
        front = running.front
        metrics = Metrics(running.broker, running.commit, running.watch, front.access)

        async def metrics_page() -> Page:
            CALLER.set(BROKER)
            collected = metrics.collected(await front.status())
            return Page(await asyncio.to_thread(collected.text), TEXT_TYPE)

        async def health_page() -> Page:
            return page_of_health(front)

        await self._http.open({"/metrics": metrics_page, "/healthz": health_page})
        address = self._config.bind_address
        log.info("metrics are served address=%s port=%d", address, self._http.port)

    async def drain(self) -> None:
        """Do nothing: the port shows the drain, too."""

    async def close(self) -> None:
        self._http.close()


def page_of_health(front: Front) -> Page:
    """200 while the broker serves, 503 while it drains."""
    if front.is_closing:
        return Page(b"draining\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(b"serving\n")
