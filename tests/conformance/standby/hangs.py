"""A standby that hangs, is cut off, whose disk is full or slow, or that has a torn log.

    python -m tests.conformance.standby.hangs --seconds 600

Each lasts so long.  Meanwhile one client sends, and another one reads what was sent before.  What
cannot be on both disks is refused, a send waits no longer than it takes to notice, and nobody else
waits at all; at the end both logs are the same.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqlite.client.consuming.pull_consumer import PullConsumer
from rmqlite.client.producer import Producer
from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.errors import Unavailable
from rmqlite.kernel.words.message import Message
from rmqlite.testing import BrokerProcess
from tests.support.relay import Relay
from tests.support.standbys import Pair, bodies_of, log_bytes, wait_for_copy

ENOUGH_S: Final = 20.0
"""More than 3 seconds, which a loaded machine needs; whoever waits for a standby never ends."""
SLOW_S: Final = 0.01
ONE_IN: Final = 10
NONE: Final = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
OLD, NEW = "old", "new"


@dataclass
class Hung:
    """What clients of the master saw while its standby had a trouble."""

    acked: int = 0
    refused: int = 0
    slowest_send_s: float = 0.0
    slowest_pull_s: float = 0.0


@contextmanager
def stopped(standby: BrokerProcess, _relay: Relay | None = None) -> Iterator[None]:
    """Its process does nothing; its connection is open."""
    os.kill(standby.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(standby.pid, signal.SIGCONT)


@contextmanager
def full(standby: BrokerProcess, _relay: Relay) -> Iterator[None]:
    """No file of it may grow."""
    resource.prlimit(standby.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(standby.pid, resource.RLIMIT_FSIZE, NONE)


@contextmanager
def slow(standby: BrokerProcess, _relay: Relay) -> Iterator[None]:
    """It has a tenth of the time, for its disk, too."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.is_set():
            with stopped(standby):
                pause_s(SLOW_S * (ONE_IN - 1))
            pause_s(SLOW_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def torn(standby: BrokerProcess, _relay: Relay) -> Iterator[None]:
    """It is killed while it writes: half a record stands behind the end of its log."""
    standby.kill()
    path = max((standby.store / "commitlog").iterdir())
    written = path.read_bytes()[: (1 << 20) - 512].rstrip(b"\0")
    with path.open("r+b") as file:
        file.seek(len(written))
        file.write(written[:100])
    try:
        yield
    finally:
        standby.start()


@contextmanager
def cut_there(_standby: BrokerProcess, relay: Relay) -> Iterator[None]:
    """The master hears nothing of it; it hears the master."""
    with relay.cut("there"):
        yield


@contextmanager
def cut_back(_standby: BrokerProcess, relay: Relay) -> Iterator[None]:
    """It hears nothing of the master; the master hears it."""
    with relay.cut("back"):
        yield


KINDS: Final = {each.__name__: each for each in (stopped, full, slow, torn, cut_there, cut_back)}


def send(producer: Producer, number: int, hung: Hung) -> None:
    began_s = elapsed_s()
    try:
        producer.send(Message(NEW, b"%d" % number * 100))
        hung.acked += 1
    except Unavailable:
        hung.refused += 1
    hung.slowest_send_s = max(hung.slowest_send_s, elapsed_s() - began_s)


def pull(consumer: PullConsumer, hung: Hung) -> None:
    began_s = elapsed_s()
    assert consumer.pull(OLD, 0, 0).messages
    hung.slowest_pull_s = max(hung.slowest_pull_s, elapsed_s() - began_s)


def clients(master: BrokerProcess, seconds: float, hung: Hung) -> None:
    """Send and pull so long; returns when both clients have got their last answer."""
    until_s = elapsed_s() + seconds

    def again(do: Callable[[int], None]) -> None:
        number = 0
        while elapsed_s() < until_s:
            do(number)
            number += 1
            pause_s(0.02)

    with (
        Producer(master.endpoint, "shop", retries=0, send_timeout_ms=60_000) as producer,
        PullConsumer(master.endpoint, "reader") as consumer,
    ):
        sending = threading.Thread(target=again, args=(lambda n: send(producer, n, hung),))
        sending.start()
        try:
            again(lambda _: pull(consumer, hung))
        finally:
            sending.join()


def run(folder: Path, seconds: dict[str, float]) -> dict[str, Hung]:
    """seconds: of each kind of trouble.  Raises AssertionError if the logs differ at the end."""
    found: dict[str, Hung] = {}
    with Pair(folder, has_relay=True) as pair:
        assert pair.relay
        with Producer(pair.first.endpoint, "shop") as producer:
            producer.send(Message(OLD, b"x"), queue_id=0)
        for kind, lasts_s in seconds.items():
            hung = found[kind] = Hung()
            with KINDS[kind](pair.second, pair.relay):
                clients(pair.first, lasts_s, hung)
            wait_for_copy(pair.first)
            print(kind, hung, flush=True)
        with Producer(pair.first.endpoint, "shop") as producer:
            producer.send(Message(NEW, b"with two copies"))
        assert b"with two copies" in bodies_of(pair.first, NEW)
        wait_for_copy(pair.first)
        pair.second.kill()
        pair.first.stop()
        assert log_bytes(pair.first) == log_bytes(pair.second), "the logs differ"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=[*KINDS])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqlite-hangs-") as folder:
        run(Path(folder), dict.fromkeys(options.kinds, options.seconds))


if __name__ == "__main__":
    main()
