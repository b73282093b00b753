"""Fixtures and options of all packages."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from rmqlite.kernel import compiled
from tests.support.brokers import BrokerUnderTest
from tests.support.golden import unpack_golden
from tests.support.thinned import Thinned

TESTS = Path(__file__).parent
TOGETHER = (
    TESTS / "spark",
    TESTS / "conformance" / "rocketmq_v2",
    TESTS / "conformance",
    TESTS / "architecture",
)
"""The tests of one of these run in one process: they share a Spark session, running clients, or
what they have read of all sources."""
SHARED = {TESTS / "conformance": {"broker", "programs"}}
"""Where not all tests of a folder use what is shared: the fixtures of those that do."""

# No example is wrong because the machine had much else to do.
_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
GATE, LONG = "gate", "long"
settings.register_profile(GATE, _ANY_MACHINE, max_examples=30)
settings.register_profile(LONG, _ANY_MACHINE, max_examples=200)

# A shell lets what it runs in the background ignore Ctrl-C, and nohup the end of the terminal; our
# own processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Only here: a package's own conftest is read too late for options.

    What a run proves with --long, and without it only in part:
    - tests/model/test_crash_points.py: 100,000 crash points, or as many as asked for, not three
      runs with about 3,500;
    - every property test and model that asks for no number of its own: 200 examples, not 30;
    - random runs that are marked seeds(GATE, LONG): so many, each with another seed;
    - positions from the fixture thinned (bytes to cut or to damage, calls to fail): all of them,
      not one of a few;
    - tests/server/test_no_call_takes_long.py: six runs of each call, not one for each kind;
    - tests/journeys/test_sigkill.py: six kills, not three; test_dead_letters.py: 100,000 dead
      letters, not 6,000; test_cut_connections.py: 1,000 cuts of each port, not 400;
    - tests/spark/test_short_runs.py: a class archive with all of Spark's classes, made by one
      command and mapped by the next, not one with Java's own; test_stream_sigkill.py: six kills
      of a driver, not two.
    """
    parser.addoption(
        "--long",
        type=int,
        nargs="?",
        const=100_000,
        default=0,
        metavar="POINTS",
        help="try everything, not a part, and this many crash points (100,000)",
    )
    parser.addoption(
        "--rocketmq",
        action="store_true",
        help="run the journeys with RocketMQ's own brokers, too; each takes half a minute",
    )
    parser.addoption(
        "--every-client",
        action="store_true",
        help="run the largest scenarios with each of RocketMQ 5's gRPC clients; a minute more",
    )
    parser.addoption(
        "--every-spark",
        action="store_true",
        help="run a part of the Spark tests with older versions, too; many minutes",
    )
    parser.addoption("--seed", type=int, default=0, help="the first run of the crash points")


def pytest_configure(config: pytest.Config) -> None:
    """Before any test module is read: its own settings begin with these."""
    settings.load_profile(LONG if config.getoption("--long") else GATE)
    config.addinivalue_line("markers", "seeds(gate, long): how many seeds a test runs with")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test marked seeds takes a seed."""
    for mark in metafunc.definition.iter_markers("seeds"):
        gate, long = mark.args
        metafunc.parametrize("seed", range(long if metafunc.config.getoption("--long") else gate))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First: the plugin that spreads the tests looks at the groups when its own turn comes."""
    for item in items:
        folder = next((each for each in TOGETHER if each in item.path.parents), None)
        is_apart = item.get_closest_marker("xdist_group") is not None
        used = SHARED.get(folder) if folder else None
        if used is not None:
            is_apart = is_apart or used.isdisjoint(getattr(item, "fixturenames", ()))
        if folder is not None and not is_apart:
            item.add_marker(pytest.mark.xdist_group(folder.name))


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    """A broker on a fresh store."""
    broker = BrokerUnderTest(tmp_path / "store")
    yield broker
    broker.store.release()


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """The unpacked stores of RocketMQ 4.9.8, and what it said is in them."""
    return unpack_golden(tmp_path)


@pytest.fixture
def is_long(request: pytest.FixtureRequest) -> bool:
    """Was --long asked for?"""
    return bool(request.config.getoption("--long"))


@pytest.fixture
def thinned(is_long: bool) -> Thinned:
    """thinned(positions, stride, first=0): one of stride of them; with --long all of them."""
    return lambda positions, stride, first=0: positions if is_long else positions[first::stride]


@pytest.fixture
def quiet() -> Iterator[None]:
    """Every opening after a crash says what it has cut off; pytest would keep all of that."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(params=["compiled", "plain"])
def each_form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs with both forms; without a C compiler, it is twice the plain one."""
    if request.param == "plain":
        monkeypatch.setattr(compiled, "is_on", False)
