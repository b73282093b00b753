"""The broker runs on uvloop where it is installed, and on asyncio's own loop where it is not."""

from __future__ import annotations

import os
import ssl
import sys
from asyncio import new_event_loop
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import pytest

from rmqlite.client import Message, Producer, PullConsumer
from rmqlite.kernel.service.turns import event_loop
from rmqlite.testing import BrokerProcess
from tests.support import toolchains
from tests.support.broker_processes import OF_ANY_DISK, StartBroker, free_port
from tests.support.certificates import keys_of, made


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


def test_the_name_of_the_event_loop_is_that_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no setting: uvloop is used where it is installed."""
    uvloop = SimpleNamespace(__version__="0.0-of-this-test", new_event_loop=new_event_loop)
    monkeypatch.setitem(sys.modules, "uvloop", uvloop)
    assert event_loop() == (new_event_loop, "uvloop 0.0-of-this-test")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop()[1] == "asyncio"


def test_the_log_names_the_event_loop(start_broker: StartBroker) -> None:
    """An operator sees which one runs; uvloop is not in [dev], so here it is asyncio's own."""
    assert sends_and_logs(start_broker()) == "asyncio"


def test_a_broker_on_uvloop_delivers_and_takes_tls_and_plain_connections_on_one_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real one, which begins a connection's TLS with its own code, and whose transports are of
    no class of asyncio's, also those to a gRPC worker."""
    path = os.pathsep.join([str(toolchains.uvloop()), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    keys, port = made(tmp_path / "keys"), str(free_port())
    settings = keys_of(keys, tlsMode="permissive") | {"metricsPort": port, "grpcWorkers": "1"}
    context = ssl.create_default_context(cafile=keys / "ca.pem")
    # Not forked: it would need another template for its environment, as all later ones would.
    with BrokerProcess(tmp_path / "broker", OF_ANY_DISK | settings, is_forked=False) as broker:
        plain = urlopen(f"http://localhost:{port}/healthz", timeout=180)
        over_tls = urlopen(f"https://localhost:{port}/healthz", timeout=180, context=context)
        assert [answer.read() for answer in (plain, over_tls)] == [b"serving\n"] * 2
        assert sends_and_logs(broker).startswith("uvloop ")
