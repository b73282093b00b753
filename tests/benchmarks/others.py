"""How long everybody else waits while one client asks for much.

    python -m tests.benchmarks.others

A broker process, a client that asks for the end of a queue every 2 ms, and another client that
sends what is heavy.  The time is the longest one of the first client's requests meanwhile.
"""

from __future__ import annotations

import argparse
import json
import socket
import tempfile
import urllib.request
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.protocols.remoting.bytes.requests import ANSWERED
from rmqlite.protocols.remoting.bytes.requests.clients import (
    ConsumerData,
    Heartbeat,
    SubscriptionBody,
)
from rmqlite.protocols.remoting.bytes.requests.groups import QueueOfTopic, SubscriptionGroup
from rmqlite.protocols.remoting.bytes.requests.messages import PullMessage
from rmqlite.protocols.remoting.bytes.requests.name_server import KvPair
from rmqlite.protocols.remoting.bytes.requests.sends import SEND_MESSAGE, SendMessage
from rmqlite.protocols.remoting.bytes.requests.topics import TopicChange
from rmqlite.testing import BrokerProcess
from tests.support.remoting import RawClient

TOPIC: Final = "orders"
TOGETHER: Final = 100
PULLS: Final = 5_000
GROUPS: Final = 3_000
Asked = tuple[int, Any, Any]
"""Code, fields and body of a request."""


class Other(Thread):
    """The client that waits."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.is_over = False
        self.longest_ms = 0.0

    def run(self) -> None:
        with RawClient(self._address) as client:
            while not self.is_over:
                began_s = elapsed_s()
                client.ask(ANSWERED[30], QueueOfTopic(TOPIC, 0))
                self.longest_ms = max(self.longest_ms, (elapsed_s() - began_s) * 1e3)
                pause_s(0.002)


def measure(name: str, broker: BrokerProcess, work: Callable[[], object]) -> None:
    other = Other(broker.name_server)
    other.start()
    pause_s(0.3)
    other.longest_ms = 0.0
    began_s = elapsed_s()
    work()
    took_ms = (elapsed_s() - began_s) * 1e3
    pause_s(0.3)
    other.is_over = True
    other.join()
    print(f"{name:40} {other.longest_ms:8.1f} {took_ms:8.1f}", flush=True)


def ask(client: RawClient, asked: Iterable[Asked]) -> None:
    """All of them in one piece; returns when all are answered."""
    requests = [
        client.request(ANSWERED[code], fields, body if body is not None else b"")
        for code, fields, body in asked
    ]
    client.send(*requests)
    for each in requests:
        client.answer(each.opaque)


def heartbeat(groups: int) -> Asked:
    subs = (SubscriptionBody(TOPIC),)
    consumers = [ConsumerData(f"new-{n}", subscription_data_set=subs) for n in range(groups)]
    return 34, None, Heartbeat("client", (), tuple(consumers))


def refused_heartbeat() -> Asked:
    text = 'a"subVersion" : "1' * 900_000
    return 34, None, json.dumps({"clientID": text}).encode()[:16_000_000]


def topic(name: str) -> Asked:
    return 17, TopicChange(name, 4, 4, 6), None


def group(name: str) -> Asked:
    return 200, None, SubscriptionGroup(name)


def woken(broker: BrokerProcess, client: RawClient) -> None:
    """Park many pulls on another connection, and measure the message that wakes them."""
    pull = PullMessage("readers", TOPIC, 0, 0, 32, 6, 0, 20_000, 0, "*")
    with RawClient(broker.name_server) as parked:
        pulls = [parked.request(ANSWERED[11], pull) for _ in range(PULLS)]
        for begin in range(0, PULLS, TOGETHER):
            parked.send(*pulls[begin : begin + TOGETHER])
            pause_s(0.02)
        pause_s(1)

        def wake() -> None:
            ask(client, [(SEND_MESSAGE.code, SendMessage(TOPIC, "senders", queue_id=0), b"x")])
            for each in pulls:
                parked.answer(each.opaque)

        measure(f"{PULLS:,} parked pulls are woken", broker, wake)


def scrape(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        page.read()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def run(broker: BrokerProcess, client: RawClient, port: int) -> None:
    many = range(TOGETHER)
    ask(client, [topic(TOPIC)])
    works: dict[str, list[Asked]] = {
        "heartbeat of 400 new groups": [heartbeat(400)],
        f"{TOGETHER} topics are made": [topic(f"topic-{n}") for n in many],
        f"{TOGETHER} groups are made": [group(f"group-{n}") for n in many],
        f"{TOGETHER} values are put": [(100, KvPair("n", f"key-{n}", "v"), None) for n in many],
        "heartbeat of 16 MB, refused": [refused_heartbeat()],
    }
    print(f"{'':40} {'others':>8} {'itself':>8} (ms)")
    measure("nothing", broker, partial(pause_s, 0.5))
    for name, asked in works.items():
        measure(name, broker, partial(ask, client, asked))
    woken(broker, client)
    for begin in range(0, GROUPS, TOGETHER):
        ask(client, [group(f"more-{begin + n}") for n in many])
    measure(f"scrape with {GROUPS:,} groups", broker, partial(scrape, port))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", help="a folder on the disk to measure")
    options = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        settings = {"metricsPort": str(port), "maxParkedPolls": "20000"}
        with (
            BrokerProcess(Path(name) / "broker", settings, is_forked=False) as broker,
            RawClient(broker.name_server) as client,
        ):
            run(broker, client, port)


if __name__ == "__main__":
    main()
