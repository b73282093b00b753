"""gRPC's own services: health (is it up?) and reflection (what can be called?).

There is one health for the whole broker, under the name "" and under each service's name:
SERVING from the first call on, NOT_SERVING once the broker drains.  The library's own servicers
are not used: with them a watcher would hold up the drain, and malformed bytes would be logged
with a stack, like a bug.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_reflection.v1alpha import reflection, reflection_pb2

from rmqlite.kernel.words.errors import InvalidValue, Overloaded
from rmqlite.kernel.words.visible import shortened
from rmqlite.protocols.grpc.calls import (
    Context,
    Enter,
    Handlers,
    Read,
    everybody,
    many_answers,
    one_answer,
)
from rmqlite.protocols.grpc.in_flight import InFlight
from rmqlite.protocols.shared.codec import parsed

WATCHES_MAX: Final = 1_000
REFLECTIONS_MAX: Final = 4
REFLECTION_S_MAX: Final = 10.0
"""How long one reflection call may last; a tool that needs longer calls again."""
REQUEST_BYTES_MAX: Final = 4_096
Status = health_pb2.HealthCheckResponse


class Health:
    """grpc.health.v1.Health and reflection for these services."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(services)
        names = (*self._services, HEALTH, reflection.SERVICE_NAME)
        self._reflection = reflection.aio.ReflectionServicer(names)
        self._draining = asyncio.Event()
        self._running: dict[str, int] = {}

    @property
    def is_serving(self) -> bool:
        return not self._draining.is_set()

    def drain(self) -> None:
        """Answer NOT_SERVING from now on; each watcher gets that answer, and its call ends."""
        self._draining.set()

    def handlers(self, in_flight: InFlight, enter: Enter) -> Handlers:
        """gRPC handlers of both services; only reflection asks who calls."""
        check, watch = f"/{HEALTH}/Check", f"/{HEALTH}/Watch"
        reflect = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"
        return Handlers(
            {
                check: one_answer(check, self.check, in_flight, everybody),
                watch: many_answers(watch, self.watch, in_flight, everybody),
                reflect: many_answers(reflect, self.reflect, in_flight, enter),
            }
        )

    def running(self, what: str) -> int:
        """How many "watches" or "reflections" are running."""
        return self._running.get(what, 0)

    async def check(self, data: bytes, context: Context) -> bytes:
        """The health of one service, or of the broker for ""; NOT_FOUND for any other name."""
        service = _service_of(data)
        if not self._knows(service):
            context.set_code(grpc.StatusCode.NOT_FOUND)
            context.set_details(f"no service {shortened(service)!r}")
        return self._response()

    async def watch(self, read: Read, context: Context) -> None:
        """Answer the health now and when it changes; SERVICE_UNKNOWN for any other name."""
        is_known = self._knows(_service_of(await read() or b""))
        with self._one_of("watches", WATCHES_MAX):
            was_serving = self.is_serving
            unknown: bytes = Status(status=Status.SERVICE_UNKNOWN).SerializeToString()
            await context.write(self._response() if is_known else unknown)
            await self._draining.wait()
            if was_serving and is_known:
                await context.write(self._response())

    async def reflect(self, read: Read, context: Context) -> None:
        """Answer each question about the services and their messages."""
        with self._one_of("reflections", REFLECTIONS_MAX), suppress(TimeoutError):
            async with asyncio.timeout(REFLECTION_S_MAX):
                while (data := await read()) is not None:
                    asked = _one(_request(reflection_pb2.ServerReflectionRequest, data))
                    async for answer in self._reflection.ServerReflectionInfo(asked, context):
                        await context.write(answer.SerializeToString())

    @contextmanager
    def _one_of(self, what: str, most: int) -> Iterator[None]:
        """Count one running call of this kind.  Raises Overloaded at the limit."""
        if self.running(what) >= most:
            raise Overloaded(what, most)
        self._running[what] = self.running(what) + 1
        try:
            yield
        finally:
            self._running[what] -= 1

    def _knows(self, service: str) -> bool:
        return service == "" or service in self._services

    def _response(self) -> bytes:
        status = Status.SERVING if self.is_serving else Status.NOT_SERVING
        response: bytes = Status(status=status).SerializeToString()
        return response


def _request(pb_class: Any, data: bytes) -> Any:
    if len(data) > REQUEST_BYTES_MAX:
        raise InvalidValue("request", f"{len(data)} bytes", f"at most {REQUEST_BYTES_MAX} bytes")
    return parsed(pb_class, data)


def _service_of(data: bytes) -> str:
    service: str = _request(health_pb2.HealthCheckRequest, data).service
    return service


async def _one(request: Any) -> AsyncIterator[Any]:
    yield request
