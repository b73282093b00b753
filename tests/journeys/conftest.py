"""Real broker processes for journeys."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from selenium import webdriver

from rmqlite.client import AdminClient, Producer, PullConsumer
from rmqlite.testing import BrokerProcess
from tests.chromium import INSTALL, found
from tests.journeys.web_browser import started
from tests.support.broker_processes import OF_ANY_DISK, StartBroker, free_port

PATIENCE_MS = 120_000


@pytest.fixture(autouse=True)
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults of clients are for an idle machine: a busy one answers later, but as well."""
    for init, name in (
        (AdminClient.__init__, "timeout_ms"),
        (Producer.__init__, "send_timeout_ms"),
        (PullConsumer.__init__, "timeout_ms"),
    ):
        defaults = inspect.unwrap(init).__kwdefaults__
        assert defaults[name] < PATIENCE_MS
        monkeypatch.setitem(defaults, name, PATIENCE_MS)


@pytest.fixture
def web_port() -> int:
    return free_port()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts a broker on a store of its own, on a port that stays; keys of broker.conf."""
    with ExitStack() as stack:

        def start(**settings: object) -> BrokerProcess:
            wanted = {key: str(value) for key, value in settings.items()}
            keys = OF_ANY_DISK | wanted
            return stack.enter_context(BrokerProcess(tmp_path / "broker", keys))

        yield start


@pytest.fixture(scope="session")
def chromium_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Chromium starts once; each test has a tab of its own."""
    chromium = found()
    if chromium is None:
        pytest.skip(f"there is no Chromium here: {INSTALL}")
    with started(chromium, tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a broker for tests that change nothing: no auto-creation, one topic."""
    keys = OF_ANY_DISK | {"autoCreateTopicEnable": "false"}
    with BrokerProcess(tmp_path_factory.mktemp("shared"), keys) as broker:
        with AdminClient(broker.endpoint) as admin:
            admin.create_topic("here", queues=4)
        yield broker.endpoint
