"""The pytest fixture rmqlite_broker, which pytest finds by itself where rmqlite is installed.

Every run of pytest there imports this module: it loads neither gRPC nor a broker.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterator
from typing import Final, Literal

import pytest

from rmqlite.testing.broker_process import BrokerProcess, broker

SCOPE: Final = "rmqlite_broker_scope"
Scope = Literal["session", "package", "module", "class", "function"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(SCOPE, "the scope of the fixture rmqlite_broker", default="function")


def scope_of(fixture_name: str, config: pytest.Config) -> Scope:  # noqa: ARG001 - pytest's names
    scope: Scope = config.getini(SCOPE)
    return scope


@pytest.fixture(scope=scope_of)
def rmqlite_broker_settings() -> dict[str, object]:
    """Keys of broker.conf for rmqlite_broker; to be defined anew in a conftest or a module."""
    return {}


@pytest.fixture(scope=scope_of)
def rmqlite_broker(
    rmqlite_broker_settings: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A running broker: endpoint, advance(hours=2), kill(), restart().

    Each test has its own; with rmqlite_broker_scope = "session" in pytest's configuration, they
    share one.
    """
    folder = tmp_path_factory.mktemp("rmqlite_broker")
    with broker(folder, **rmqlite_broker_settings) as running:
        yield running


@pytest.fixture
def rmqlite_name() -> Callable[[str], str]:
    """Makes names of topics and groups that no other test has, for tests that share a broker."""
    own = secrets.token_hex(4)
    return lambda noun: f"{noun}-{own}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of the broker's log."""
    report = yield
    running = getattr(item, "funcargs", {}).get("rmqlite_broker")
    if report.failed and running is not None:
        report.sections.append(("The log of rmqlite_broker", running.log_end()))
    return report
