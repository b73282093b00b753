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
from tests.support.broker_processes import free_port
from tests.support.eventually import eventually
from tests.support.grpc_clients import GrpcClient, running
from tests.support.programs import Program
from tests.support.remoting import RawClient
from tests.support.rocketmq_proxy import proxy, proxy_before

QUICK: Final = {"transactionTimeOut": 500, "transactionCheckInterval": 500}
BROKER_CLUSTER_INFO: Final = 106
OURS, BEHIND, THEIRS = "rmqlite", "rmqlite behind RocketMQ's proxy", "RocketMQ with its proxy"


@dataclass(frozen=True, slots=True)
class Place:
    """Where clients are.  make: makes a topic for messages of every type.

    brokers: those of rmqlite behind a proxy.
    """

    name: str
    clients: list[GrpcClient]
    make: Callable[[str], object]
    brokers: tuple[BrokerProcess, ...] = ()

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


@pytest.fixture(scope="module", params=[OURS, BEHIND, THEIRS])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """So that the scenarios are what RocketMQ does, and not what somebody thinks that it does."""
    if request.param == OURS:
        make = partial(request.getfixturevalue("admin").create_topic, queues=4)
        yield Place(OURS, request.getfixturevalue("clients"), make)
    elif request.param == THEIRS:
        yield from _at_their_proxy(folder_for_rocketmq(request, tmp_path_factory))
    else:
        yield from behind_their_proxy(folder_for_rocketmq(request, tmp_path_factory))


def folder_for_rocketmq(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    if not request.config.getoption("--rocketmq"):
        pytest.skip("RocketMQ's own broker and proxy run with --rocketmq")
    return tmp_path_factory.mktemp("proxy")


def _at_their_proxy(folder: Path) -> Iterator[Place]:
    command = toolchains.java(toolchains.JAVA_5)
    with (
        proxy(folder) as started,
        Program(command, started.name_server, folder / "admin.log") as admin,
        running(started.endpoint, folder) as clients,
    ):
        yield Place(THEIRS, clients, partial(started.make_topics, admin))


def behind_their_proxy(folder: Path) -> Iterator[Place]:
    """Two brokers, of which the first is the name server, too."""
    port = free_port()
    names = f"127.0.0.1:{port}"
    keys = {"namesrvAddr": names, "brokersAllowed": "127.0.0.1", **QUICK}
    with (
        live_broker(folder / "one", brokerName="one", nameServerPort=port, **keys) as one,
        live_broker(folder / "two", brokerName="two", **keys) as two,
        AdminClient(one.endpoint) as of_one,
        AdminClient(two.endpoint) as of_two,
        RawClient(names) as asks,
    ):
        # Else the proxy ends: it makes a topic of its own when it starts.
        eventually(lambda: b'"two"' in asks.ask(BROKER_CLUSTER_INFO).body, "both are known")

        def make(topic: str) -> None:
            for admin in (of_one, of_two):
                admin.create_topic(topic, queues=4)

        with (
            proxy_before(folder / "proxy", names) as endpoint,
            running(endpoint, folder) as clients,
        ):
            yield Place(BEHIND, clients, make, (one, two))
