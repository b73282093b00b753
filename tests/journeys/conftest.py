"""Real broker processes for journeys."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmqlite.cli.bench.process import BrokerProcess
from rmqlite.client import AdminClient

StartBroker = Callable[..., BrokerProcess]
OF_ANY_DISK = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false"}
"""However full the disk of whoever runs the tests."""


def free_port() -> int:
    """A port that a broker can have again after a restart."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts a broker on a store of its own, on a port that stays; keys of broker.conf."""
    with ExitStack() as stack:

        def start(**settings: object) -> BrokerProcess:
            keys = OF_ANY_DISK | {"listenPort": str(free_port())}
            keys |= {key: str(value) for key, value in settings.items()}
            return stack.enter_context(BrokerProcess(tmp_path / "broker", keys))

        yield start


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a broker for tests that change nothing: no auto-creation, one topic."""
    keys = OF_ANY_DISK | {"autoCreateTopicEnable": "false", "listenPort": str(free_port())}
    with BrokerProcess(tmp_path_factory.mktemp("shared"), keys) as broker:
        with AdminClient(broker.endpoint) as admin:
            admin.create_topic("here", queues=4)
        yield broker.endpoint
