"""A broker, and all the clients that can be had here, for the scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from rmqlite.cli.bench.broker_process import BrokerProcess
from rmqlite.client import AdminClient
from tests.conformance.conftest import live_broker
from tests.support.grpc_clients import COMMANDS, GrpcClient

QUICK: Final = {"transactionTimeOut": 500, "transactionCheckInterval": 500}
StartClients = Callable[..., list[GrpcClient]]


@pytest.fixture(scope="session")
def start_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartClients]:
    """Starts every client that can be had; test_clients.py says why one cannot."""
    folder = tmp_path_factory.mktemp("grpc-programs")
    commands: dict[str, list[str]] = {}
    for name, command in COMMANDS.items():
        try:
            commands[name] = command()
        except (pytest.skip.Exception, pytest.fail.Exception):
            continue
    with ExitStack() as stack:

        def start(endpoint: str, **environment: str) -> list[GrpcClient]:
            log = folder / "client"
            return [
                stack.enter_context(
                    GrpcClient(name, command, endpoint, Path(f"{log}-{name}.log"), **environment)
                )
                for name, command in commands.items()
            ]

        yield start


@pytest.fixture(scope="session")
def v2_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that asks producers about their transactions twice a second."""
    with live_broker(tmp_path_factory.mktemp("v2"), **QUICK) as started:
        yield started


@pytest.fixture(scope="session")
def clients(v2_broker: BrokerProcess, start_clients: StartClients) -> list[GrpcClient]:
    return start_clients(v2_broker.endpoint)


@pytest.fixture
def admin(v2_broker: BrokerProcess) -> Iterator[AdminClient]:
    with AdminClient(v2_broker.endpoint, timeout_ms=60_000) as made:
        yield made
