"""The broker's timers are not rounded up to the next millisecond."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from selectors import EVENT_READ, EpollSelector
from typing import Any

import pytest

from rmqlite.kernel.service import turns as module
from rmqlite.kernel.service.turns import ExactSelector


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float | None]]:
    """How long epoll and select() were asked to wait; nothing comes meanwhile."""
    waits: list[tuple[str, float | None]] = []

    def by_epoll(_: EpollSelector, timeout: float | None = None) -> list[Any]:
        waits.append(("epoll", timeout))
        return []

    monkeypatch.setattr(EpollSelector, "select", by_epoll)
    # Whatever this process has open: nothing is really waited for.
    monkeypatch.setattr(module, "SELECTED_MAX", 1 << 20)
    monkeypatch.setattr(module, "select", lambda *given: waits.append(("select", given[-1])))
    return waits


@pytest.fixture
def selector() -> Iterator[ExactSelector]:
    with ExactSelector() as selector:
        yield selector


@pytest.mark.parametrize(
    ("timeout", "waits"),
    [
        (None, [("epoll", None)]),
        (0, [("epoll", 0)]),
        (-1.0, [("epoll", -1.0)]),
        (0.000_4, [("select", 0.000_4), ("epoll", 0)]),
        (0.003_7, [("epoll", pytest.approx(0.002_5))]),
    ],
)
def test_a_wait_is_never_longer_than_asked(
    selector: ExactSelector,
    asked: list[tuple[str, float | None]],
    timeout: float | None,
    waits: list[tuple[str, float | None]],
) -> None:
    """epoll makes 3 ms of 2.5: the loop then asks for the rest, which select() waits exactly."""
    assert selector.select(timeout) == []
    assert asked == waits


def test_a_high_descriptor_waits_as_epoll_does(
    selector: ExactSelector,
    asked: list[tuple[str, float | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """select() would refuse it."""
    monkeypatch.setattr(module, "SELECTED_MAX", 0)
    assert selector.select(0.000_4) == []
    assert asked == [("epoll", 0.000_4)]


def test_what_is_ready_ends_a_short_wait(selector: ExactSelector) -> None:
    """A descriptor of epoll is ready when one of its own is."""
    here, there = socket.socketpair()
    with here, there:
        selector.register(here, EVENT_READ)
        there.send(b"x")
        ((key, events),) = selector.select(0.000_9)
        assert (key.fileobj, events) == (here, EVENT_READ)


def test_no_timer_ends_before_its_time() -> None:
    """A wait that is over too early is followed by another one."""

    late: list[float] = []

    async def measure() -> None:
        loop = asyncio.get_running_loop()

        def end(due_s: float) -> None:
            late.append(loop.time() - due_s)

        for delay_s in (0.002_3, 0.000_2, 0.001_1, 0):
            due_s = loop.time() + delay_s
            loop.call_at(due_s, end, due_s)
        await asyncio.sleep(0.003)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(ExactSelector())) as runner:
        runner.run(measure())
    assert len(late) == 4
    assert min(late) > -0.000_001
