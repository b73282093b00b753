"""begin_gathered(): what an event loop sends by itself, and what it leaves to the thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import NamedTuple

import pytest

from rmqlite.client.batcher import ALONE_BYTES_MAX, Batcher, BatchLimits, Outcome
from rmqlite.kernel.words.errors import Unavailable
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes.messages import SendResult
from tests.support.fake_broker import WAIT_S


class Started(NamedTuple):
    """A call that was started, by which thread, and how to answer it."""

    bodies: tuple[bytes, ...]
    thread: threading.Thread
    on_done: Callable[[Outcome], None]

    @property
    def is_mine(self) -> bool:
        return self.thread is threading.current_thread()

    def succeed(self) -> None:
        """On the thread of the test, as gRPC would on its own."""
        self.on_done(tuple([SendResult("orders", 0, 0, "", 0, 0, "") for _ in self.bodies]))

    def cancel(self) -> None:
        pass


class Calls:
    """A batcher, and the calls that it starts."""

    def __init__(self, linger_s: float = 0) -> None:
        self._started: SimpleQueue[Started] = SimpleQueue()
        limits = BatchLimits(linger_s, 256, 1 << 20, 10_000, WAIT_S, 2)
        self.batcher = Batcher(self._start, limits, is_begun=True)

    def _start(
        self,
        messages: tuple[Message, ...],
        _timeout_s: float,
        _wait_for_ready: bool,
        on_done: Callable[[Outcome], None],
    ) -> Started:
        bodies = tuple([each.body for each in messages])
        started = Started(bodies, threading.current_thread(), on_done)
        self._started.put(started)
        return started

    def next(self) -> Started:
        return self._started.get(timeout=WAIT_S)

    def send(self, *bodies: bytes) -> list[Future[SendResult]]:
        """In one turn of the loop."""
        sent = [self.batcher.add(Message("orders", each)) for each in bodies]
        self.batcher.begin_gathered()
        return sent

    def connect(self) -> None:
        (sent,) = self.send(b"first")
        self.next().succeed()
        sent.result(WAIT_S)


@pytest.fixture
def calls() -> Iterator[Calls]:
    found = Calls()
    yield found
    found.batcher.close()


def test_a_message_alone_needs_no_thread(calls: Calls) -> None:
    """It is sent by whoever begins it, and has its result when gRPC has it."""
    calls.connect()
    (sent,) = calls.send(b"a")
    call = calls.next()
    assert call.is_mine
    callbacks: list[threading.Thread] = []
    sent.add_done_callback(lambda _: callbacks.append(threading.current_thread()))
    call.succeed()
    assert callbacks == [threading.current_thread()]


def test_the_first_message_is_the_threads(calls: Calls) -> None:
    """It makes the connection, which takes a loop too long."""
    (sent,) = calls.send(b"a")
    call = calls.next()
    assert not call.is_mine
    call.succeed()
    assert sent.done()


def test_what_comes_in_one_turn_goes_together(calls: Calls) -> None:
    """A call for each would cost the broker thirty times as much."""
    calls.connect()
    calls.send(b"a", b"b", b"c")
    call = calls.next()
    assert (call.bodies, call.is_mine) == ((b"a", b"b", b"c"), False)
    call.succeed()


def test_what_comes_during_a_call_is_the_threads(calls: Calls) -> None:
    """The loop may have many messages to encode then."""
    calls.connect()
    calls.send(b"a")
    first = calls.next()
    (sent,) = calls.send(b"b")
    second = calls.next()
    assert (first.is_mine, second.is_mine) == (True, False)
    first.succeed()
    assert not sent.done()
    second.succeed()
    assert sent.done()


def test_what_waits_for_a_call_goes_when_one_ends(calls: Calls) -> None:
    """With as many calls under way as there may be, the end of one wakes the thread."""
    calls.connect()
    under_way = []
    for body in (b"a", b"b", b"c", b"d"):
        calls.send(body)
        under_way.append(calls.next())
    calls.send(b"e")
    calls.send(b"f")
    under_way[0].succeed()
    last = calls.next()
    assert last.bodies == (b"e", b"f")
    for each in (*under_way[1:], last):
        each.succeed()


def test_a_long_message_is_the_threads(calls: Calls) -> None:
    """To encode it takes a loop too long."""
    calls.connect()
    calls.send(bytes(ALONE_BYTES_MAX))
    call = calls.next()
    assert not call.is_mine
    call.succeed()


def test_the_thread_repeats_what_failed(calls: Calls) -> None:
    """After its pause; nobody begins it."""
    calls.connect()
    (sent,) = calls.send(b"a")
    calls.next().on_done(Unavailable("not now"))
    again = calls.next()
    assert (again.bodies, again.is_mine, sent.done()) == ((b"a",), False, False)
    again.succeed()
    assert sent.done()


def test_with_a_linger_only_the_thread_sends() -> None:
    """begin_gathered() would end the wait for other messages."""
    calls = Calls(linger_s=0.001)
    calls.connect()
    calls.send(b"a")
    call = calls.next()
    assert not call.is_mine
    call.succeed()
    calls.batcher.close()


def test_flush_and_close_send_what_nobody_began(calls: Calls) -> None:
    """A loop may end before it begins the calls of its last turn."""
    calls.connect()
    for end in (calls.batcher.flush, calls.batcher.close):
        sent = calls.batcher.add(Message("orders", b"a"))
        ending = threading.Thread(target=end)
        ending.start()
        calls.next().succeed()
        ending.join(WAIT_S)
        assert (ending.is_alive(), sent.done()) == (False, True)
