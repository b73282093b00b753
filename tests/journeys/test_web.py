"""The web page of a real broker, asked over a socket: its port, its end, and a broker without."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from rmqlite.client import AdminClient
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words.errors import BrokerUnreachable, InvalidValue
from rmqlite.testing import BrokerProcess
from rmqlite.web import PACKAGES, web_server
from tests.support.broker_processes import StartBroker, free_port


def ask(port: int, path: str = "/", method: str = "GET", host: str = "127.0.0.1") -> int:
    """The status of the answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=180)
    connection.request(method, path, headers={"Host": host})
    with connection.getresponse() as response:
        response.read()
    connection.close()
    return response.status


def test_without_a_port_there_is_no_page(start_broker: StartBroker) -> None:
    """Whoever did not ask for a page does not have one, nor metrics: four ports are open."""
    assert BrokerConfig().web_port == BrokerConfig().metrics_port == 0
    port = free_port()
    broker = start_broker(listenPort=port)
    listening = subprocess.run(
        [sys.executable, "-c", _LISTENING, str(broker.pid)], capture_output=True, text=True
    )
    named = [int(each.rpartition(":")[2]) for each in (broker.endpoint, broker.name_server)]
    vip_port = port - 2
    assert {int(each) for each in listening.stdout.split()} == {*named, port, vip_port}


_LISTENING = """
import os, sys
pid = sys.argv[1]
inodes = set()
for fd in os.listdir(f"/proc/{pid}/fd"):
    target = os.readlink(f"/proc/{pid}/fd/{fd}")
    if target.startswith("socket:["):
        inodes.add(target[8:-1])
for family in ("tcp", "tcp6"):
    for line in open(f"/proc/{pid}/net/{family}").read().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and words[9] in inodes:
            print(int(words[1].rpartition(":")[2], 16))
"""


def test_a_broker_without_a_page_does_not_load_what_it_needs() -> None:
    """Its memory and its start are as before."""
    code = "import sys, rmqlite.serving; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {*PACKAGES, "rmqlite.web.server"}


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    """Before the store is opened, and not as a stack."""
    code = (
        "import sys\n"
        "from rmqlite.kernel.config.config import BrokerConfig\n"
        "from rmqlite.kernel.words.errors import ExtraMissing\n"
        "from rmqlite.web import PACKAGES, web_server\n"
        "for package in PACKAGES:\n"
        "    sys.modules[package] = None\n"
        "    try: web_server(BrokerConfig(web_port=1))\n"
        "    except ExtraMissing as error: print(error)\n"
        "    del sys.modules[package]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for package, line in zip(PACKAGES, done.stdout.splitlines(), strict=True):
        assert f"found no {package}" in line
        assert 'pip install "rmqlite[web]"' in line


def test_the_page_answers_and_ends_with_the_broker(start_broker: StartBroker) -> None:
    """It is one of the broker's ports, with rules of its own."""
    port = free_port()
    broker = start_broker(webPort=port)
    assert ask(port) == 200
    assert ask(port, host="evil.example") == 421
    assert ask(port, "/nothing") == 404
    assert ask(port, "/schedule/change", "POST") == 415
    broker.stop()
    with pytest.raises(ConnectionRefusedError):
        ask(port)
    broker.start()
    assert ask(port) == 200


def test_a_connection_that_says_nothing_does_not_hold_up_the_end(
    start_broker: StartBroker,
) -> None:
    """A browser keeps connections open; the drain has a limit, and the store is closed."""
    port = free_port()
    broker = start_broker(webPort=port, shutdownDrainTimeout=2_000)
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
    silent[0].sendall(b"POST /schedule/change HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n")
    silent[1].sendall(
        b"POST /schedule/change HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\nab"
    )
    assert ask(port) == 200
    broker.stop()
    assert not (broker.store / "abort").exists()
    for each in silent:
        each.close()


def test_a_port_that_is_taken_stops_the_start(start_broker: StartBroker, tmp_path: Path) -> None:
    """Named with the key, before the store is opened."""
    port = free_port()
    start_broker(webPort=port)
    second = BrokerProcess(tmp_path / "second", {"webPort": str(port)})
    with pytest.raises(BrokerUnreachable, match=f"webPort must be a port that is free .*'{port}'"):
        second.start()
    assert not second.store.exists()


@pytest.mark.parametrize("address", ["192.0.2.1", "no.such.name.invalid"])
def test_an_address_of_another_machine_stops_the_start(address: str) -> None:
    """It is the address that is wrong then, not the port."""
    protocol = web_server(BrokerConfig(web_port=free_port(), web_address=address))
    with pytest.raises(
        InvalidValue, match=f"webAddress must be an address of this machine, not '{address}'"
    ):
        asyncio.run(protocol.bind())


def test_a_broker_that_is_asked_much_by_browsers_serves_its_clients(
    start_broker: StartBroker,
) -> None:
    """More connections than the page takes: some browsers wait, and nobody else."""
    port = free_port()
    broker = start_broker(webPort=port)
    crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
    try:
        with AdminClient(broker.endpoint) as admin:
            assert admin.broker_status().broker_name
        crowd[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"503" in crowd[-1].recv(100)
    finally:
        for each in crowd:
            each.close()
    with AdminClient(broker.endpoint) as admin:
        assert admin.broker_status().broker_name
