"""Rounds of losses under load: nothing acknowledged is missing, early or twice.

    python -m tests.conformance.standby.rounds --rounds 100 --seconds 3

Each round has a kind of loss.  wipe: the master is killed and its disk is gone, the standby is
promoted.  tail: the standby hangs, so the master has what nobody acknowledged; then it is killed,
and comes back.  both: both are killed.  switch: two planned switches, one after the other.
Messages of levels, timers, batches and transactions are sent meanwhile; some are cancelled.
With --ahead-ms 3600000, or -3600000, the clock of one machine is wrong by an hour.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import grpc

from rmqlite.client.admin_client import AdminClient
from rmqlite.client.consuming.pull_consumer import PullConsumer
from rmqlite.client.producer import Producer
from rmqlite.features.changes.requests import ChangeOutcome
from rmqlite.kernel.words.clock import elapsed_s, pause_s, utc, wall_ms
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.message import Message, StoredMessage
from rmqlite.testing import BrokerProcess
from tests.support.eventually import eventually
from tests.support.open_transactions import begun, ended
from tests.support.standbys import Pair, is_master, log_bytes, wait_for_copy

KINDS: Final = ("wipe", "tail", "both", "switch")
LEVEL_MS: Final = 1_000
DUE_MS_MAX: Final = 2_500
IS_CANCELLED: Final = (ChangeOutcome.DONE, ChangeOutcome.ALREADY_CANCELLED)
CLOCK_MS: Final = 2
"""By so much the broker's clock and the wall clock may round differently."""


RIGHT_MS: Final = 1_000
"""By so much the brokers' clock may be before the wall clock; it never goes back."""


@dataclass
class Book:
    """What was sent in a round: bodies, with when they are due; what was answered OK.

    due_ms: of a level by the clock of the broker that has answered, which may be some milliseconds
    behind this one: a standby takes over the master's clock as it has heard it.
    """

    due_ms: dict[bytes, int] = field(default_factory=dict)
    until_ms: int = 0
    """By then all is due."""
    acked: set[bytes] = field(default_factory=set)
    cancelled: set[bytes] = field(default_factory=set)
    """Answered OK; nothing of it may come."""
    maybe: set[bytes] = field(default_factory=set)
    """A cancel was not answered: they may come, or not."""


@dataclass
class Found:
    """The faults of all rounds, and what they were looked for in."""

    rounds: int = 0
    acked: int = 0
    cancelled: int = 0
    missing: int = 0
    twice: int = 0
    early: int = 0
    came_cancelled: int = 0
    promote_s: list[float] = field(default_factory=list)

    @property
    def faults(self) -> int:
        return self.missing + self.twice + self.early + self.came_cancelled

    def text(self) -> str:
        worst = max(self.promote_s, default=0.0)
        return (
            f"rounds={self.rounds} acknowledged={self.acked} cancelled={self.cancelled}"
            f" missing={self.missing} twice={self.twice} early={self.early}"
            f" came_cancelled={self.came_cancelled} promote_s_max={worst:.2f}"
        )


Send = Callable[[Producer, str, str, bytes, Book], None]


def one(producer: Producer, _endpoints: str, topic: str, body: bytes, book: Book) -> None:
    book.due_ms[body] = 0
    producer.send(Message(topic, body))
    book.acked.add(body)


def level(producer: Producer, _endpoints: str, topic: str, body: bytes, book: Book) -> None:
    book.due_ms[body] = 0
    book.until_ms = wall_ms() + LEVEL_MS
    book.due_ms[body] = producer.send(Message(topic, body, delay_level=1)).deliver_at_ms
    book.acked.add(body)


def timer(producer: Producer, _endpoints: str, topic: str, body: bytes, book: Book) -> None:
    book.due_ms[body] = due_ms = wall_ms() + Random(body).randint(300, DUE_MS_MAX)
    producer.send(Message(topic, body, deliver_at=utc(due_ms)))
    book.acked.add(body)


def batch(producer: Producer, _endpoints: str, topic: str, body: bytes, book: Book) -> None:
    bodies = [b"%s/%d" % (body, n) for n in range(20)]
    book.due_ms.update(dict.fromkeys(bodies, 0))
    producer.send_batch([Message(topic, each) for each in bodies])
    book.acked.update(bodies)


def cancelled(producer: Producer, _endpoints: str, topic: str, body: bytes, book: Book) -> None:
    book.due_ms[body] = due_ms = wall_ms() + DUE_MS_MAX
    sent = producer.send(Message(topic, body, deliver_at=utc(due_ms)))
    book.maybe.add(body)
    if producer.cancel(sent.message_id, topic).outcome in IS_CANCELLED:
        book.cancelled.add(body)


def transaction(_producer: Producer, endpoints: str, topic: str, body: bytes, book: Book) -> None:
    """Of RocketMQ 5; every second one is rolled back."""
    is_kept = body.endswith((b"0", b"2", b"4", b"6", b"8"))
    book.due_ms[body] = 0
    master = next(filter(is_master, endpoints.split(",")))
    entry = begun(master, topic, body)
    book.maybe.add(body)
    if ended(master, topic, entry, is_kept=is_kept):
        (book.acked if is_kept else book.cancelled).add(body)


SENDS: Final[tuple[Send, ...]] = (one, level, timer, batch, cancelled, transaction)


@contextmanager
def load(endpoints: str, topic: str, book: Book) -> Iterator[None]:
    """Each kind of send, again and again, in a thread of its own; no send is tried again."""
    stop = threading.Event()

    def run(send: Send) -> None:
        with Producer(endpoints, "rounds", retries=0, send_timeout_ms=5_000) as producer:
            number = 0
            while not stop.is_set():
                number += 1
                try:
                    send(
                        producer,
                        endpoints,
                        topic,
                        b"%s-%d" % (send.__name__.encode(), number),
                        book,
                    )
                except (RmqliteError, grpc.RpcError, StopIteration):
                    pause_s(0.05)

    threads = [threading.Thread(target=run, args=(each,)) for each in SENDS]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        stop.set()
        for each in threads:
            each.join()


def promote(standby: BrokerProcess) -> float:
    """When it hears the master no more; seconds from the call that was accepted on."""
    while True:
        began_s = elapsed_s()
        try:
            with AdminClient(standby.endpoint) as admin:
                admin.promote()
            break
        except RmqliteError:
            pause_s(0.05)
    while not is_master(standby.endpoint):
        pause_s(0.02)
    return elapsed_s() - began_s


def everything(master: BrokerProcess, topic: str) -> list[StoredMessage]:
    with PullConsumer(master.endpoint, "reader") as consumer:
        found: list[StoredMessage] = []
        for queue in consumer.queues(topic):
            at = 0
            while (pulled := consumer.pull(topic, queue.queue_id, at)).messages:
                found += pulled.messages
                at = pulled.next_offset
        return found


def verify(master: BrokerProcess, topic: str, book: Book, found: Found) -> None:
    """When everything is due, compare what is there with what was answered."""
    due_ms = max(book.until_ms, *book.due_ms.values()) + 300
    pause_s(max(0, due_ms - wall_ms()) / 1000)
    wanted = book.acked - book.cancelled

    def there() -> set[bytes]:
        return {each.body for each in everything(master, topic)}

    until_s = elapsed_s() + 20
    while wanted - there() and elapsed_s() < until_s:
        pause_s(0.2)
    messages = everything(master, topic)
    counts = Counter(each.body for each in messages)
    missing = wanted - counts.keys()
    twice = [body for body, count in counts.items() if count > 1]
    # The clock of the first master is right, and the others go on with it.
    right_ms = wall_ms() + RIGHT_MS
    early = [
        each.body
        for each in messages
        if each.store_timestamp_ms + CLOCK_MS < book.due_ms.get(each.body, 0)
        or each.store_timestamp_ms > right_ms
    ]
    came = book.cancelled & counts.keys()
    for name, bodies in (("missing", missing), ("twice", twice), ("early", early), ("came", came)):
        if bodies:
            print(f"{topic} {name}: {sorted(bodies)[:10]}", flush=True)
    found.rounds += 1
    found.acked += len(book.acked)
    found.cancelled += len(book.cancelled)
    found.missing += len(missing)
    found.twice += len(twice)
    found.early += len(early)
    found.came_cancelled += len(came)


class Rounds:
    """Two brokers, one of which is the master; `found` is of all rounds so far."""

    def __init__(self, pair: Pair, chance: Random, seconds: float) -> None:
        self._pair = pair
        self._chance = chance
        self._seconds = seconds
        self.master, self.standby = pair.first, pair.second
        self.found = Found()

    def run(self, number: int, kind: str) -> None:
        topic, book = f"round-{number}", Book()
        with AdminClient(self.master.endpoint) as admin:
            admin.create_topic(topic)
        with load(self._pair.endpoints, topic, book):
            pause_s(self._seconds * self._chance.uniform(0.5, 1.5))
            getattr(self, f"_{kind}")()
        verify(self.master, topic, book, self.found)
        wait_for_copy(self.master)

    def _wipe(self) -> None:
        self.master.kill()
        shutil.rmtree(self.master.store)
        self._take_over()

    def _tail(self) -> None:
        os.kill(self.standby.pid, signal.SIGSTOP)
        pause_s(self._chance.uniform(0.1, 2.0))
        self.master.kill()
        os.kill(self.standby.pid, signal.SIGCONT)
        self._take_over()

    def _both(self) -> None:
        self.standby.kill()
        pause_s(self._chance.uniform(0.0, 0.5))
        self.master.kill()
        self.master.start()
        self.standby.start()
        wait_for_copy(self.master)

    def _switch(self) -> None:
        for _ in range(2):
            with AdminClient(self.master.endpoint) as admin:
                admin.switch()
            eventually(partial(is_master, self.standby.endpoint), "the other one is the master")
            self.master, self.standby = self.standby, self.master
            wait_for_copy(self.master)

    def _take_over(self) -> None:
        self.found.promote_s.append(promote(self.standby))
        self.master, self.standby = self.standby, self.master
        self.standby.start()
        wait_for_copy(self.master)


def run(
    folder: Path, count: int, seconds: float, seed: int, kinds: tuple[str, ...], ahead_ms: int = 0
) -> Found:
    """Prints a line for each round; both logs are the same at the end.

    ahead_ms: of the clock of the second broker's machine.
    """
    with Pair(folder, ahead_ms=ahead_ms) as pair:
        rounds = Rounds(pair, Random(seed), seconds)
        for number in range(count):
            kind = kinds[number % len(kinds)]
            began_s = elapsed_s()
            rounds.run(number, kind)
            print(f"{kind} {elapsed_s() - began_s:.0f}s {rounds.found.text()}", flush=True)
        wait_for_copy(rounds.master)
        rounds.standby.kill()
        rounds.master.stop()
        assert log_bytes(rounds.master) == log_bytes(rounds.standby), "the logs differ"
        return rounds.found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--ahead-ms", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqlite-rounds-") as folder:
        kinds = tuple(options.kinds)
        about = (options.rounds, options.seconds, options.seed, kinds, options.ahead_ms)
        found = run(Path(folder), *about)
    return 1 if found.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
