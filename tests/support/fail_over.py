"""Clients of every kind that send and receive all the time, while brokers are lost.

A client sends a message every 100 ms, each as often as it takes, and a push consumer of its own
reads them.  So the time until it goes on is the time until the next one is sent, or has come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rmqlite.client import Producer, PushConsumer
from rmqlite.client.admin_client import AdminClient
from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.message import Message, StoredMessage
from tests.support import toolchains
from tests.support.grpc_clients import COMMANDS
from tests.support.programs import Program
from tests.support.standbys import Pair, is_master

PAUSE_MS: Final = 100
WAIT_S: Final = 150.0
"""A client that has not gone on after so long never does."""
OURS, JAVA_4 = "rmqlite", "java-4"
NAMES: Final = (OURS, JAVA_4, "python", "java")
"""Not Node's: its producer keeps the route of its start."""


class Streaming(Protocol):
    """A client that sends and receives.  sent, got: keys, in the order in which they came."""

    @property
    def sent(self) -> list[str]: ...

    @property
    def got(self) -> list[str]: ...

    @property
    def refused(self) -> list[str]: ...


class Ours:
    """rmqlite's own client, in threads."""

    def __init__(self, endpoints: str, topic: str) -> None:
        self.sent: list[str] = []
        self.got: list[str] = []
        self.refused: list[str] = []
        self._endpoints = endpoints
        self._topic = topic
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]

    def __enter__(self) -> Ours:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        number = 0
        with Producer(self._endpoints, "senders", retries=0) as producer:
            while not self._is_over.wait(PAUSE_MS / 1000):
                key = f"s{number}"
                try:
                    producer.send(Message(self._topic, key.encode()))
                    self.sent.append(key)
                    number += 1
                except RmqliteError as error:
                    self.refused.append(str(error))

    def _receive(self) -> None:
        def take(message: StoredMessage) -> None:
            self.got.append(message.body.decode())

        with PushConsumer(self._endpoints, "readers", take) as consumer:
            consumer.subscribe(self._topic)
            consumer.start()
            self._is_over.wait()


class Official:
    """One of RocketMQ's clients, in a process."""

    def __init__(self, program: Program, topic: str) -> None:
        self.program = program
        program.push("readers-of-" + topic, topic)
        asked = {"topic": topic, "prefix": "s", "count": 1_000_000, "pause": PAUSE_MS}
        program.do("stream", group="senders", **asked)

    @property
    def sent(self) -> list[str]:
        return self._said("sent")

    @property
    def got(self) -> list[str]:
        return self._said("got")

    @property
    def refused(self) -> list[str]:
        return [
            str(event.get("error", "")) for event in tuple(self.program.events) if "failed" in event
        ]

    def _said(self, name: str) -> list[str]:
        return [event[name] for event in tuple(self.program.events) if name in event]


@contextmanager
def streaming(pair: Pair, folder: Path, names: Sequence[str]) -> Iterator[dict[str, Streaming]]:
    """These clients, each with a topic of its own, when all have sent and received something."""
    with ExitStack() as stack:
        with AdminClient(pair.endpoints) as admin:
            for name in names:
                admin.create_topic(f"of-{name}", queues=4)
        made: dict[str, Streaming] = {}
        for name in names:
            if name == OURS:
                made[name] = stack.enter_context(Ours(pair.endpoints, f"of-{name}"))
                continue
            is_4 = name == JAVA_4
            command = toolchains.java() if is_4 else COMMANDS[name]()
            place = pair.name_servers if is_4 else pair.endpoints.replace(",", ";")
            log = folder / f"{name}.log"
            program = Program(command, place, log, OWN_INTERVALS="1")
            made[name] = Official(stack.enter_context(program), f"of-{name}")
        for name, each in made.items():
            assert goes_on(partial(_is_streaming, each)), (name, each.refused[-3:])
        yield made


class GoneOn(NamedTuple):
    """How long after the event a client has sent, and received, the next message; None: never.

    said: the last sentence that its user got meanwhile.
    """

    sent_s: float | None
    got_s: float | None
    refusals: int
    said: str


def measured(clients: dict[str, Streaming], event: Callable[[], object]) -> dict[str, GoneOn]:
    """Let something happen; how each client goes on, counted from the end of it."""
    event()
    began_s = elapsed_s()
    # What was under way is not counted.
    pause_s(0.1)
    first = {
        name: (len(each.sent), len(each.got), len(each.refused)) for name, each in clients.items()
    }
    found: dict[str, GoneOn] = {}
    sent_s: dict[str, float] = {}
    while len(found) < len(clients) and elapsed_s() - began_s < WAIT_S:
        pause_s(0.02)
        for name, each in clients.items():
            sent, got, refused = first[name]
            if name not in sent_s and len(each.sent) > sent:
                sent_s[name] = elapsed_s() - began_s
            news = set(each.sent[sent : sent + 1])
            if name in sent_s and name not in found and news & set(each.got[got:]):
                said = each.refused[refused:]
                late_s = elapsed_s() - began_s
                found[name] = GoneOn(sent_s[name], late_s, len(said), said[-1] if said else "")
    for name in clients.keys() - found.keys():
        said = clients[name].refused[first[name][2] :]
        found[name] = GoneOn(sent_s.get(name), None, len(said), said[-1] if said else "")
    return found


def goes_on(is_so: Callable[[], bool]) -> bool:
    until_s = elapsed_s() + WAIT_S
    while elapsed_s() < until_s:
        if is_so():
            return True
        pause_s(0.05)
    return False


def _is_streaming(client: Streaming) -> bool:
    return len(client.sent) > 5 and len(client.got) > 5


def _has_got(client: Streaming, wanted: set[str]) -> bool:
    return wanted <= set(client.got)


def promoted(endpoint: str) -> None:
    """Promote the standby there; return when it is the master."""
    with AdminClient(endpoint) as admin:
        admin.promote(force=True)
    assert goes_on(lambda: is_master(endpoint))


def lost(clients: dict[str, Streaming]) -> dict[str, list[str]]:
    """What each client was told to be stored, and its consumer has not got, after a while."""
    missing: dict[str, list[str]] = {}
    for name, each in clients.items():
        wanted = set(each.sent[:-10])
        if wanted:
            goes_on(partial(_has_got, each, wanted))
        missing[name] = sorted(wanted - set(each.got))
    return missing
