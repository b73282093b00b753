"""What examples/deploy/ starts: the unit's command, its states, and the health check."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import StartBroker
from tests.support.certificates import keys_of, made
from tests.support.documents import ROOT

DEPLOY = ROOT / "examples" / "deploy"
WAIT_S = 120.0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(WAIT_S)
        yield listening


def command_of_unit(conf: Path) -> list[str]:
    """ExecStart, with this installation and this file."""
    (line,) = [
        each
        for each in (DEPLOY / "rmqlite.service").read_text("utf-8").splitlines()
        if each.startswith("ExecStart=")
    ]
    _, *words = shlex.split(line.removeprefix("ExecStart="))
    given = [str(conf) if word == "/etc/rmqlite/broker.conf" else word for word in words]
    return [sys.executable, "-m", "rmqlite", *given]


def test_systemd_gets_every_state_of_the_units_command(
    manager: socket.socket, tmp_path: Path
) -> None:
    """`systemctl start` and `reload` return when the broker is ready, and not before."""
    conf = tmp_path / "broker.conf"
    ports = "listenPort=0\ngrpcPort=0\nnameServerPort=0\n"
    conf.write_text(f"{ports}storePathRootDir={tmp_path}/store\nmessageDelayLevel=1s 5s\n")
    environment = os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command_of_unit(conf), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as broker:
        try:
            assert manager.recv(4_096) == b"READY=1"
            broker.send_signal(signal.SIGHUP)
            assert manager.recv(4_096).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            assert manager.recv(4_096) == b"READY=1"
            broker.send_signal(signal.SIGTERM)
            assert manager.recv(4_096) == b"STOPPING=1"
            output, _ = broker.communicate(timeout=WAIT_S)
        finally:
            broker.kill()
    assert broker.returncode == 0, output.decode()


def health(endpoint: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(DEPLOY / "healthy.py")],
        env=os.environ | {"RMQLITE_ENDPOINT": endpoint, **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_health_check_says_whether_the_broker_serves(start_broker: StartBroker) -> None:
    """Exit code 1 restarts a container, so a broker at work must never get it."""
    broker = start_broker()
    endpoint = broker.endpoint
    assert health(endpoint) == (0, "SERVING\n")
    assert health(endpoint, http_proxy="http://127.0.0.1:9") == (0, "SERVING\n")
    broker.stop()
    code, output = health(endpoint)
    assert code == 1
    assert output.startswith("not healthy: UNAVAILABLE: ")


def test_the_health_check_speaks_tls(tmp_path: Path) -> None:
    """With the variables of rmqlite's commands, as an exec probe sets them."""
    keys = made(tmp_path / "keys")
    with BrokerProcess(tmp_path / "broker", keys_of(keys)) as broker:
        endpoint = f"tls://localhost:{broker.endpoint.rpartition(':')[2]}"
        assert health(endpoint, RMQLITE_TLS_CA=str(keys / "ca.pem")) == (0, "SERVING\n")
        assert health(endpoint)[0] == 1
