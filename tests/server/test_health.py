"""Health: SERVING until the broker drains; a watcher is told and let go."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from rmqlite.server.health import WATCHES_MAX, Health

SERVICES = ("rmqlite.v1.Admin", "rmqlite.v1.Messaging")
Status = health_pb2.HealthCheckResponse


class Aborted(Exception):
    """What abort() raises in a real context."""


class FakeContext:
    """What a servicer asks of its caller."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)


CONTEXT: Any = FakeContext()


def ask(service: str) -> Any:
    return health_pb2.HealthCheckRequest(service=service)


@pytest.mark.parametrize("service", ["", *SERVICES])
def test_each_service_and_the_whole_serve_until_they_drain(service: str) -> None:
    """A load balancer asks for one of them, a probe for the whole."""

    async def main() -> None:
        health = Health(SERVICES)
        assert (await health.Check(ask(service), CONTEXT)).status == Status.SERVING
        assert health.is_serving
        health.drain()
        assert (await health.Check(ask(service), CONTEXT)).status == Status.NOT_SERVING
        assert not health.is_serving

    asyncio.run(main())


def test_an_unknown_service_is_not_found() -> None:
    """As the protocol wants it: a typing mistake must not look healthy."""

    async def main() -> None:
        with pytest.raises(Aborted) as caught:
            await Health(SERVICES).Check(ask("rmqlite.v2"), CONTEXT)
        assert caught.value.args[0] is grpc.StatusCode.NOT_FOUND

    asyncio.run(main())


@pytest.mark.parametrize(
    ("service", "told"),
    [
        ("", [Status.SERVING, Status.NOT_SERVING]),
        (SERVICES[0], [Status.SERVING, Status.NOT_SERVING]),
        ("rmqlite.v2", [Status.SERVICE_UNKNOWN]),
    ],
)
def test_a_watch_ends_with_the_drain(service: str, told: list[Any]) -> None:
    """A client watches for as long as it lives: waiting for it would hold up the stop."""

    async def main() -> list[Any]:
        health = Health(SERVICES)
        asyncio.get_running_loop().call_soon(health.drain)
        return [each.status async for each in health.Watch(ask(service), CONTEXT)]

    assert asyncio.run(main()) == told


def test_who_watches_a_broker_that_drains_is_told_once() -> None:
    """It came late; there is nothing else to wait for."""

    async def main() -> list[Any]:
        health = Health(SERVICES)
        health.drain()
        return [each.status async for each in health.Watch(ask(""), CONTEXT)]

    assert asyncio.run(main()) == [Status.NOT_SERVING]


def test_there_is_a_limit_to_watching() -> None:
    """Each is a call that stays; who has gone makes room."""

    async def main() -> None:
        health = Health(SERVICES)
        watches = [health.Watch(ask(""), CONTEXT) for _ in range(WATCHES_MAX)]
        for each in watches:
            await anext(each)
        with pytest.raises(Aborted) as caught:
            await anext(health.Watch(ask(""), CONTEXT))
        assert caught.value.args[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        for each in watches:
            await each.aclose()
        assert (await anext(health.Watch(ask(""), CONTEXT))).status == Status.SERVING

    asyncio.run(main())


def test_a_probe_that_speaks_http_is_told_the_same() -> None:
    """200 while it serves, 503 while it drains."""

    async def main() -> None:
        health = Health(SERVICES)
        assert (await health.page()).status == 200
        health.drain()
        assert (await health.page()).status == 503

    asyncio.run(main())
