"""The broker runs on uvloop where it is installed, and on asyncio's own loop where it is not."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.request import urlopen

import pytest

from rmqlite.client import Message, Producer, PullConsumer
from rmqlite.testing import BrokerProcess
from tests.support import toolchains
from tests.support.broker_processes import StartBroker, free_port
from tests.support.certificates import keys_of, made

STAND_IN = """
from asyncio import new_event_loop
__version__ = "0.0-of-this-test"
"""
MISSING = "raise ImportError('not here')\n"


def sends_and_logs(broker: BrokerProcess) -> str:
    """Send and read a message, stop the broker; its first log line."""
    with Producer(broker.endpoint, "p") as producer:
        sent = producer.send(Message("orders", b"order", delay_level=1))
    with PullConsumer(broker.endpoint, "g") as consumer:
        pulled = consumer.pull("orders", sent.queue_id, 0, wait_ms=20_000)
    assert [each.body for each in pulled.messages] == [b"order"]
    broker.stop()
    log = (broker.folder / "broker.log").read_text().splitlines()
    return next(line for line in log if "event_loop=" in line).partition("event_loop=")[2]


def find_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's Python looks for modules in this folder first."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)


@pytest.mark.parametrize(
    ("module", "loop"), [(STAND_IN, "uvloop 0.0-of-this-test"), (MISSING, "asyncio")]
)
def test_the_log_names_the_event_loop(
    module: str,
    loop: str,
    start_broker: StartBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator sees which one runs, and it needs no setting."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "uvloop.py").write_text(module)
    find_first(folder, monkeypatch)
    assert sends_and_logs(start_broker()) == loop


def test_a_broker_on_uvloop_delivers(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real one; it is not in [dev], or no other test would run on asyncio's own loop."""
    find_first(toolchains.uvloop(), monkeypatch)
    assert sends_and_logs(start_broker()).startswith("uvloop ")


def test_a_broker_on_uvloop_takes_tls_and_plain_connections_on_one_port(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins a connection's TLS with its own code."""
    find_first(toolchains.uvloop(), monkeypatch)
    keys, port = made(tmp_path / "keys"), free_port()
    broker = start_broker(metricsPort=port, **keys_of(keys, tlsMode="permissive"))
    context = ssl.create_default_context(cafile=keys / "ca.pem")
    plain = urlopen(f"http://localhost:{port}/healthz", timeout=180)
    over_tls = urlopen(f"https://localhost:{port}/healthz", timeout=180, context=context)
    assert [answer.read() for answer in (plain, over_tls)] == [b"serving\n"] * 2
    assert sends_and_logs(broker).startswith("uvloop ")
