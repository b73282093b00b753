"""A gRPC port of its own over a served broker, for one scenario."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rmqlite.kernel.process.protocol_server import Running
from rmqlite.kernel.process.upkeep import ClockWatch
from rmqlite.protocols.grpc_server import GrpcServer
from rmqlite.protocols.shared.tls import load_keys
from rmqlite.protocols.workers.port import GrpcWorkers
from tests.support.brokers import BrokerUnderTest
from tests.support.services import Served, served

PATIENCE_S = 60.0


def with_port(
    under_test: BrokerUnderTest,
    scenario: Callable[[Any, Served], Awaitable[Any]],
    **changes: Any,
) -> None:
    """Run a scenario against a gRPC port of its own; with grpc_workers it is theirs."""
    under_test.config = under_test.config.model_copy(update={"grpc_port": 0, **changes})

    async def inside(server: Served, _: asyncio.Task[None]) -> None:
        clock, store = under_test.clock, under_test.store
        watch = ClockWatch(clock, clock.machine, store.clock_origin)
        make = GrpcWorkers if server.config.grpc_workers else GrpcServer
        port = make(server.config, load_keys(server.config))
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            running = Running(
                server.service, tasks, under_test.broker, server.commit, watch, server.config
            )
            await port.bind()
            await port.open(running)
            await scenario(port, server)
            server.service.close()
            await port.drain()
            await port.close()

    served(under_test, inside)
