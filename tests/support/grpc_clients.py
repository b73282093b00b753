"""The official gRPC clients of RocketMQ 5 as running programs, and scenarios for all of them.

A scenario runs on every client at the same time: most of what it does is to wait for a retry, a
long poll or a timer, and three clients wait as long as one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest

from rmqlite.kernel.words.clock import elapsed_s, pause_s
from tests.support import toolchains
from tests.support.programs import WAIT_S, Event, Program

COMMANDS: Final = {
    "python": toolchains.grpc_python,
    "node": toolchains.grpc_node,
    "java": toolchains.grpc_java,
}
asked_for: Final = ["node" if shutil.which("node") else "python"]
"""That of the gate, the one that takes the least; tests/conftest.py adds the others."""
INVALID_HANDLE: Final = 40_013
CUT: Final = ("UNAVAILABLE", "Socket closed", "Connection refused")
TOO_EARLY: Final = "NullPointerException"
"""RocketMQ's proxy answers so to a receive that overtakes the settings."""
INVISIBLE_S: Final = 60
"""Longer than any scenario."""


class GrpcClient(Program):
    """One of them; name: python, node or java."""

    def __init__(
        self, name: str, command: Sequence[str], endpoint: str, log: Path, **environment: str
    ) -> None:
        super().__init__(command, endpoint, log, **environment)
        self.name = name

    def simple(self, group: str, *topics: str, **asked: Any) -> None:
        """Start a simple consumer with the group's name."""
        defaults = {"name": group, "expression": "*", "await_s": 5}
        self.do("simple", **(defaults | {"group": group, "topics": topics} | asked))

    def receive(self, group: str, count: int = 32, invisible_s: int = INVISIBLE_S) -> list[Event]:
        """One long poll of a simple consumer; nothing comes while the broker is away."""
        asked = {"name": group, "count": count, "invisible_s": invisible_s}
        said = self.do("receive", **asked)
        refused = refusals(said)
        assert not refused or is_cut(refused[0]), said
        if refused:
            pause_s(0.2)
        return [event for event in said if "got" in event and event["by"] == group]

    def receive_all(self, group: str, *keys: str, invisible_s: int = INVISIBLE_S) -> list[Event]:
        """Long polls until each of these messages has come once more; nothing else may come."""
        came: list[Event] = []
        until_s = elapsed_s() + WAIT_S
        while len(came) < len(keys) and elapsed_s() < until_s:
            came += self.receive(group, invisible_s=invisible_s)
        found = sorted(event["got"] for event in came)
        assert found == sorted(keys), f"{came}"
        return sorted(came, key=lambda event: keys.index(event["got"]))

    def ack(self, group: str, *keys: str) -> None:
        said = self.do("ack", name=group, keys=keys)
        assert not refusals(said), said

    def stop(self, name: str) -> None:
        """Only for a simple consumer: one for Node that pushes ends when its long poll ends."""
        self.do("stop", name=name)

    def said(self, name: str) -> list[str]:
        """The values of all events of a kind, as sent, checked, streamed."""
        return [event[name] for event in tuple(self.events) if name in event]


@cache
def _commands() -> dict[str, list[str]]:
    found = {}
    for name in asked_for:
        command = COMMANDS[name]
        try:
            found[name] = command()
        except (pytest.skip.Exception, pytest.fail.Exception):
            # tests/conformance/rocketmq_v2/test_clients.py says so.
            continue
    if not found:
        pytest.skip("none of the gRPC clients can be had")
    return found


@contextmanager
def running(endpoint: str, folder: Path, **environment: str) -> Iterator[list[GrpcClient]]:
    """Every client that is asked for and can be had here, until the context ends."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                GrpcClient(name, command, endpoint, folder / f"{name}.log", **environment)
            )
            for name, command in _commands().items()
        ]


def refusals(said: Sequence[Event]) -> list[Event]:
    return [event for event in said if "refused" in event]


def is_cut(refused: Event) -> bool:
    """The connection ended, because the broker was killed; each client says so in its own way."""
    return any(word in refused["refused"] for word in (*CUT, TOO_EARLY))


Scenario = Callable[[GrpcClient], None]


def on_each(clients: Sequence[GrpcClient], scenario: Scenario) -> None:
    """Run a scenario on every client; the failures of all of them, each with the client's name."""
    failures: list[Exception] = []
    with ThreadPoolExecutor(len(clients)) as pool:
        running = {each.name: pool.submit(partial(scenario, each)) for each in clients}
    for name, future in running.items():
        error = future.exception()
        if error is not None:
            if not isinstance(error, Exception):
                raise error
            error.add_note(f"the client for {name}")
            failures.append(error)
    if failures:
        raise ExceptionGroup("not every client does what it should", failures)
