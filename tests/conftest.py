"""Fixtures and options of all packages."""

from __future__ import annotations

import gc
import logging
import signal
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from typer import testing
from typer.main import get_command

from rmqlite.kernel import compiled
from tests.support.brokers import LONG_BODIES, BrokerUnderTest
from tests.support.golden import unpack_golden
from tests.support.grpc_clients import COMMANDS, asked_for
from tests.support.spreading import Spreading
from tests.support.thinned import GATE_EXAMPLES, LONG_EXAMPLES, Thinned

TESTS = Path(__file__).parent
TOGETHER = (
    TESTS / "spark",
    TESTS / "conformance" / "rocketmq_v2",
    TESTS / "conformance",
    TESTS / "architecture",
    TESTS / "celery",
)
"""The tests of one of these run in one process: they share a Spark session, running clients, or
what they have read of all sources."""
SHARED = {TESTS / "conformance": {"broker", "programs"}, TESTS / "spark": {"spark"}}
"""Where not all tests of a folder use what is shared: the fixtures of those that do."""

ID_LENGTH_MAX = 60

# No example is wrong because the machine had much else to do.
_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
GATE, LONG = "gate", "long"
settings.register_profile(GATE, _ANY_MACHINE, max_examples=GATE_EXAMPLES)
settings.register_profile(LONG, _ANY_MACHINE, max_examples=LONG_EXAMPLES)

# Each run of a command would make all commands anew, which takes longer than most of them.
vars(testing)["_get_command"] = cache(get_command)

# A shell lets what it runs in the background ignore Ctrl-C, and nohup the end of the terminal; our
# own processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Only here: a package's own conftest is read too late for options.

    What a run proves with --long, and without it only in part, with fixed seeds and by the same
    test unless another one is named:
    - tests/model/test_crash_points.py: 100,000 crash points, or as many as asked for, not three
      runs of a fifth of the steps with some hundreds;
    - every property test and model that asks for no number of its own: 200 examples, not 12; those
      that ask for more (part_of): all of them, not a sixth;
    - random runs that are marked seeds(GATE, LONG): so many, each with another seed;
    - positions from the fixture thinned (bytes to cut or to damage, calls to fail): all of them,
      not one of a few;
    - property tests of each call (few): 200 examples of each call, not four or five;
    - combinations of tests that are marked one_of(STRIDE): all of them, not each STRIDE-th, which
      has each value of each parameter still;
    - tests of both forms (each_form) with parameters: each case with both, not by turns with one;
    - the stores of brokers that make() made are sound at the end of each test, not of one of three;
    - tests/server/test_no_call_takes_long.py: six runs of each call, not one for each kind, each
      request of RocketMQ alone and with a hundred, not by turns, and three seconds of their
      answers, not 0.5; tests/broker/test_carrying.py: a hundred rounds of two years, not 20;
    - test_deleting_crash.py, test_tables_written.py: three times as many crashes of a run;
    - tests/journeys/test_sigkill.py: six kills, not two; test_bulk.py: four kills, not two;
      test_dead_letters.py: 100,000 dead letters, not 3,000; test_cut_connections.py: 1,000 cuts of
      each port, not 200;
    - tests/journeys/test_wheels.py: both wheels, and the plain one in another Python, with packages
      that pip finds for it; not one built without a C compiler, in this Python;
    - tests/spark/test_audit.py: three kills, and the audit of the files, not one, of the broker;
      test_stream_log_changes.py: streams of a session, also from files, not a stream's reader;
      test_jobs_commands.py: JSON beside the text of each job, not of most;
    - tests/features/archive and authority: a server of S3, not a few lines of our own;
    - tests/journeys/test_without_a_feature.py: each feature is gone alone, not four at a time;
    - tests/conformance: 1,000 topics of a gRPC client and 300 of Java's, not 100 and 50; two kills
      under Java's client, not one; three stops of a broker of a cluster, not one;
    - tests/celery/test_kills.py: two workers and six kills, not one and two.

    What is marked long runs with --long only.  These prove without it what it proves:
    - a cluster of Spark (tests/spark/test_cluster.py): an executor's Python without Spark there,
      and test_sink_spark.py, where a task fails after it has sent;
    - a command that starts Spark (test_short_runs.py): the session of all tests, beside it, which
      starts as a command's does; drivers of streams that are killed (test_stream_sigkill.py):
      test_stream.py, where a sink fails and streams are made anew; an archive while a broker
      writes and deletes (test_archive_live.py): test_jobs_archive.py, where files vanish;
      s3a (test_s3a.py): exports and archives in folders, by the same interface of Hadoop's;
    - jobs whose log is read by Spark's tasks, and an archive of RocketMQ's store
      (test_jobs_golden.py): test_source.py, test_jobs_archive.py;
    - the same audit with and without an archive (test_jobs_archive.py): the same records, and an
      audit with one, beside it;
    - a stream behind a retention that deletes (test_stream_log_changes.py): the same error and the
      same option after a repair, beside it, and test_stream_reader.py;
    - jobs on stores that were closed or have timers (test_jobs_timers.py), or are RocketMQ's
      (test_audit.py): reconcile on one that was killed, and three jobs in test_jobs_golden.py;
    - service levels, forecasts and exports of RocketMQ's store (test_jobs_golden.py): what waited
      and ended there is found by reconcile and lateness beside them, and each of these jobs is
      tested beside it on made records;
    - more commands of the pipeline (test_jobs_commands.py): the jobs' own tests beside it;
    - a sync that fails in a cancel of a real broker (tests/journeys/test_calls.py):
      tests/server/test_service.py, each method, and test_stopping.py, a process;
    - forms and sessions in Chromium (tests/journeys/test_web_*.py): tests/server/web;
    - gRPC clients with a wrong key or none: tests/server/rocketmq_v2/test_guard.py;
    - the Java client of RocketMQ 5 beside that of 4.9, C++'s in a cluster or with an account, a
      plain client at a port of TLS, transactions and leases of clients over a kill: the other
      clients there, tests/journeys/test_tls.py, tests/features/transactions and leases;
    - a standby in trouble, a resync under load (tests/conformance/standby): tests/features/standby;
      a stopped master, switches, an authority that is away or in an archive (authority's
      test_fail_over.py): test_deciding.py; the drill of an archive: the kill beside it;
    - the Go client: those of Java and C++ in the same scenarios, and for its pulls of 0 messages
      tests/server/remoting/test_consuming.py; the gRPC clients for Python and Java (--every-client
      has them, too): that for Node in the same scenarios;
    - the example of a cluster (tests/journeys/test_demo.py): tests/conformance/test_cluster.py;
    - clients of RocketMQ at a master that is killed (tests/conformance/standby):
      tests/features/standby/test_clients.py;
    - the scenarios of the benchmarks, and their growth: nothing, they are tools.
    Only with --long is it proved that a page does not move under who reads it, and that pages are
    read at any width.
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
    # Until all are read: each search for garbage would find nothing.
    gc.disable()
    settings.load_profile(LONG if config.getoption("--long") else GATE)
    if config.getoption("--long") or config.getoption("--every-client"):
        asked_for[:] = COMMANDS
    config.addinivalue_line("markers", "seeds(gate, long): how many seeds a test runs with")
    config.addinivalue_line("markers", "one_of(stride): one of so many cases runs without --long")
    config.addinivalue_line("markers", "long_bodies: under_test takes bodies of half a megabyte")
    config.addinivalue_line("markers", "long: runs with --long only, which says what else does")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spreading:
    return Spreading(config, log)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test marked seeds takes a seed."""
    for mark in metafunc.definition.iter_markers("seeds"):
        gate, long = mark.args
        metafunc.parametrize("seed", range(long if metafunc.config.getoption("--long") else gate))


def pytest_make_parametrize_id(val: object) -> str | None:
    """A long text or long bytes only by the length and the beginning.

    Each process that tests sends all names to the first one, and each test's name several times.
    """
    if isinstance(val, str | bytes) and len(val) > ID_LENGTH_MAX:
        return f"{val[:ID_LENGTH_MAX]!r}… ({len(val)})"
    return None


@cache
def _together(folder: Path) -> Path | None:
    return next((each for each in TOGETHER if each in (folder, *folder.parents)), None)


def _is_its_turn(item: pytest.Item) -> bool:
    """Is this the form that the other parameters of the test leave to it?"""
    turns: dict[str, int] = dict(getattr(getattr(item, "callspec", None), "indices", {}))
    form = turns.pop("each_form", None)
    return form is None or not turns or sum(turns.values()) % 2 == form


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is marked long, and the cases that have no turn without --long."""
    seen: Counter[str] = Counter()
    left_out = []
    for item in items:
        if item.get_closest_marker("long") is not None:
            left_out.append(item)
            continue
        mark = item.get_closest_marker("one_of")
        if mark is not None:
            name = item.nodeid.split("[")[0]
            if seen[name] % mark.args[0]:
                left_out.append(item)
            seen[name] += 1
        elif not _is_its_turn(item):
            left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    without = set(left_out)
    items[:] = [item for item in items if item not in without]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """First: the plugin that spreads the tests looks at the groups when its own turn comes."""
    if not config.getoption("--long"):
        _leave_out(config, items)
    for item in items:
        folder = _together(item.path.parent)
        is_apart = item.get_closest_marker("xdist_group") is not None
        used = SHARED.get(folder) if folder else None
        if used is not None:
            is_apart = is_apart or used.isdisjoint(getattr(item, "fixturenames", ()))
        if folder is not None and not is_apart:
            item.add_marker(pytest.mark.xdist_group(folder.name))


def pytest_collection_finish() -> None:
    """All modules and tests stay until the end: no search for garbage needs to look at them."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def under_test(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    """A broker on a fresh store."""
    has_long = request.node.get_closest_marker("long_bodies") is not None
    broker = BrokerUnderTest(tmp_path / "store", **(LONG_BODIES if has_long else {}))
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
def few_objects() -> None:
    """A search for garbage looks at what the test makes, not at a million objects of other ones."""
    gc.collect()
    gc.freeze()


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
