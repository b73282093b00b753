"""gRPC's own services: health (is it up?) and reflection (what can be called?).

Health is that of the whole broker, told under its own name "" and under each service's:
SERVING from the first call on, NOT_SERVING once it drains.  It is written here and not taken
from the library, because there a watcher would hold up the end of the drain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from http import HTTPStatus
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_reflection.v1alpha import reflection

from rmqlite.server.http_port import Page

WATCHES_MAX: Final = 1_000
Status = health_pb2.HealthCheckResponse
Context = grpc.aio.ServicerContext[Any, Any]


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """grpc.health.v1.Health for these services."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(services)
        self._draining = asyncio.Event()
        self._watches = 0

    @property
    def is_serving(self) -> bool:
        return not self._draining.is_set()

    def drain(self) -> None:
        """NOT_SERVING from now on; whoever watches is told, and its call ends."""
        self._draining.set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Answer on this server, and let it tell what it can be called for."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)
        names = (*sorted(self._services), HEALTH, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)

    async def page(self) -> Page:
        """The same for a probe that speaks HTTP: 200 or 503."""
        if self.is_serving:
            return Page(b"serving\n")
        return Page(b"draining\n", status=HTTPStatus.SERVICE_UNAVAILABLE)

    async def Check(self, request: Any, context: Context) -> Any:
        """The health of one service, or of all under ""; NOT_FOUND for any other."""
        if not self._knows(request.service):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}")
        return self._response()

    async def Watch(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        """The same, and again when it changes; SERVICE_UNKNOWN for any other."""
        if self._watches >= WATCHES_MAX:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WATCHES_MAX} watch already")
        self._watches += 1
        try:
            was_serving, is_known = self.is_serving, self._knows(request.service)
            yield self._response() if is_known else Status(status=Status.SERVICE_UNKNOWN)
            await self._draining.wait()
            if was_serving and is_known:
                yield self._response()
        finally:
            self._watches -= 1

    def _knows(self, service: str) -> bool:
        return service == "" or service in self._services

    def _response(self) -> Any:
        return Status(status=Status.SERVING if self.is_serving else Status.NOT_SERVING)
