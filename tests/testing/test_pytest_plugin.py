"""The fixture rmqlite_broker, as the tests of a user see it, and the page that explains it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import pytest

import rmqlite.testing
from tests.support.documents import Page

pytest_plugins = ["pytester"]

assert rmqlite.testing.__file__
PAGE: Final = Page.read(Path(rmqlite.testing.__file__).with_name("README.md"))
USED, SETTINGS, SCRIPT = PAGE.fences("python")

EACH_ITS_OWN: Final = """
from rmqlite.client import AdminClient

seen = set()

def topics_of(broker):
    with AdminClient(broker.endpoint) as admin:
        return [each.topic for each in admin.list_topics()]

def test_one(rmqlite_broker):
    with AdminClient(rmqlite_broker.endpoint) as admin:
        admin.create_topic("orders")
    seen.add(rmqlite_broker.pid)

def test_another(rmqlite_broker):
    assert "orders" not in topics_of(rmqlite_broker)
    assert rmqlite_broker.pid not in seen

def test_that_fails(rmqlite_broker):
    assert rmqlite_broker.endpoint == "elsewhere"
"""
ALL_SHARE_ONE: Final = """
import pytest
from rmqlite.client import AdminClient, Message, Producer
from rmqlite.kernel.words.errors import TopicUnknown

@pytest.fixture(scope="session")
def first(rmqlite_broker):
    with AdminClient(rmqlite_broker.endpoint) as admin:
        admin.create_topic("reminders")
    return rmqlite_broker.pid

names = set()

@pytest.mark.parametrize("time", [1, 2])
def test_one_broker_for_all(first, rmqlite_broker, rmqlite_name, time):
    assert rmqlite_broker.pid == first
    own = rmqlite_name("orders")
    assert own == rmqlite_name("orders") and own.startswith("orders-") and own not in names
    names.add(own)

def test_the_settings_are_those_of_the_other_fixture(rmqlite_broker):
    with Producer(rmqlite_broker.endpoint, "p") as producer, pytest.raises(TopicUnknown):
        producer.send(Message("orders", b"x"))
"""


def test_each_test_has_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    """What one test leaves behind must not fail another; a failure shows what the broker said."""
    pytester.makepyfile(EACH_ITS_OWN)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*The log of rmqlite_broker*", "rmqlite * ready at 127.0.0.1:*"])


def test_all_tests_share_a_broker_of_the_session(pytester: pytest.Pytester) -> None:
    """One line of configuration, and the fixtures and the test that the page shows."""
    pytester.makeini("[pytest]\nrmqlite_broker_scope = session")
    pytester.makeconftest(SETTINGS)
    pytester.makepyfile(test_1=ALL_SHARE_ONE, test_2=USED)
    pytester.runpytest_subprocess().assert_outcomes(passed=4)


def test_the_page_s_program_runs(tmp_path: Path) -> None:
    """For those without pytest."""
    program = tmp_path / "program.py"
    program.write_text(SCRIPT)
    subprocess.run([sys.executable, program], check=True)


def test_the_plugin_costs_a_run_without_brokers_nearly_nothing() -> None:
    """Every run of pytest imports it, wherever rmqlite is installed."""
    (entry,) = [each for each in entry_points(group="pytest11") if each.name == "rmqlite"]
    script = f"import sys, pytest, {entry.value}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {*ran.stdout.split()}
    assert not loaded & {"grpc", "google.protobuf", "pydantic", "asyncio", "rmqlite.client"}
    assert not [each for each in loaded if each.startswith(("rmqlite.cli", "rmqlite.kernel.proc"))]
