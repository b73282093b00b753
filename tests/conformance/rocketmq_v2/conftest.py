"""A broker with clients for most of the scenarios; some of them run at RocketMQ's proxy, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from rmqlite.client import AdminClient
from rmqlite.testing import BrokerProcess
from tests.conformance.conftest import live_broker
from tests.support import toolchains
from tests.support.grpc_clients import GrpcClient, running
from tests.support.programs import Program
from tests.support.rocketmq_proxy import proxy

QUICK: Final = {"transactionTimeOut": 500, "transactionCheckInterval": 500}
OURS, THEIRS = "rmqlite", "RocketMQ with its proxy"


@dataclass(frozen=True, slots=True)
class Place:
    """Where clients are.  make: makes a topic for messages of every type."""

    name: str
    clients: list[GrpcClient]
    make: Callable[[str], object]

    def make_for_each(self, name: str) -> None:
        for client in self.clients:
            self.make(f"{client.name}-{name}")


@pytest.fixture(scope="package")
def v2_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that asks producers about their transactions twice a second."""
    with live_broker(tmp_path_factory.mktemp("v2"), **QUICK) as started:
        yield started


@pytest.fixture(scope="package")
def clients(
    v2_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[GrpcClient]]:
    with running(v2_broker.endpoint, tmp_path_factory.mktemp("grpc-clients")) as started:
        yield started


@pytest.fixture(scope="package")
def admin(v2_broker: BrokerProcess) -> Iterator[AdminClient]:
    with AdminClient(v2_broker.endpoint, timeout_ms=60_000) as made:
        yield made


@pytest.fixture(scope="module", params=[OURS, THEIRS])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """So that the scenarios are what RocketMQ does, and not what somebody thinks that it does."""
    if request.param == OURS:
        make = partial(request.getfixturevalue("admin").create_topic, queues=4)
        yield Place(OURS, request.getfixturevalue("clients"), make)
    elif request.config.getoption("--rocketmq"):
        yield from _at_their_proxy(tmp_path_factory.mktemp("proxy"))
    else:
        pytest.skip("RocketMQ's own broker and proxy run with --rocketmq")


def _at_their_proxy(folder: Path) -> Iterator[Place]:
    command = toolchains.java(toolchains.JAVA_5)
    with (
        proxy(folder) as started,
        Program(command, started.name_server, folder / "admin.log") as admin,
        running(started.endpoint, folder) as clients,
    ):
        yield Place(THEIRS, clients, partial(started.make_topics, admin))
