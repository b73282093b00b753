"""Sends of several threads: together when calls are under way, each with its own outcome."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from rmqlite.client.batcher import CALLS_MAX, BatchLimits, Results, SharedCalls
from rmqlite.kernel.words.errors import BrokerUnreachable, InvalidValue
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes.messages import SendResult
from tests.support.eventually import eventually
from tests.support.fake_broker import WAIT_S

LIMITS = BatchLimits(
    linger_s=0,
    messages_max=8,
    size_bytes_max=1 << 20,
    in_flight_max=100,
    timeout_s=WAIT_S,
    retries=0,
)


class Broker:
    """Answers calls when its gate opens; refuses a call with a bad message in it."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []
        self.gate = threading.Event()
        self.down = False
        self._guard = threading.Lock()

    def __call__(self, messages: tuple[Message, ...]) -> Results:
        with self._guard:
            self.calls.append([message.body for message in messages])
        assert self.gate.wait(WAIT_S)
        if self.down:
            raise BrokerUnreachable("no answer from the broker")
        if any(message.body == b"bad" for message in messages):
            raise InvalidValue("body", "bad", "good")
        return tuple(
            [SendResult("t", 0, 0, message.body.decode(), 0, 0, "") for message in messages]
        )


@pytest.fixture
def broker() -> Broker:
    return Broker()


def send_all(shared: SharedCalls, broker: Broker, *bodies: bytes) -> list[Future[Results]]:
    """One thread for each body; all have asked before the broker answers the first."""
    with ThreadPoolExecutor(len(bodies)) as threads:
        asked = []
        for number, body in enumerate(bodies, 1):
            asked.append(threads.submit(shared.send, (Message("t", body),), len(body)))
            eventually(partial(_have_asked, shared, broker, number), "the sender has asked")
        broker.gate.set()
    return asked


def _have_asked(shared: SharedCalls, broker: Broker, senders: int) -> bool:
    return sum([len(call) for call in broker.calls]) + len(shared._waiting) == senders


def ids(outcome: Future[Results]) -> list[str]:
    return [result.message_id for result in outcome.result()]


def test_a_lone_sender_waits_for_nobody(broker: Broker) -> None:
    """Sharing must cost nothing when there is nobody to share with."""
    broker.gate.set()
    shared = SharedCalls(broker, LIMITS)
    assert [r.message_id for r in shared.send((Message("t", b"a"), Message("t", b"b")), 2)] == [
        "a",
        "b",
    ]
    assert broker.calls == [[b"a", b"b"]]


def test_who_comes_while_calls_are_under_way_goes_together(broker: Broker) -> None:
    """Fewer calls than senders, and each gets its own results."""
    bodies = [b"%d" % number for number in range(CALLS_MAX + 4)]
    outcomes = send_all(SharedCalls(broker, LIMITS), broker, *bodies)
    assert [ids(outcome) for outcome in outcomes] == [[body.decode()] for body in bodies]
    assert [len(call) for call in broker.calls] == [1] * CALLS_MAX + [4]


def test_a_shared_call_keeps_to_the_limits(broker: Broker) -> None:
    """The broker's limits are per call, whoever fills it."""
    bodies = [b"%d" % number for number in range(CALLS_MAX + LIMITS.messages_max + 3)]
    send_all(SharedCalls(broker, LIMITS), broker, *bodies)
    assert max(len(call) for call in broker.calls) <= LIMITS.messages_max


def test_a_bad_message_fails_only_its_own_sender(broker: Broker) -> None:
    """A call is all or none, so a refused one is made again for each sender alone."""
    bodies = [b"%d" % number for number in range(CALLS_MAX)] + [b"x", b"bad", b"y"]
    outcomes = send_all(SharedCalls(broker, LIMITS), broker, *bodies)
    *good, x, bad, y = outcomes
    assert [ids(each) for each in (*good, x, y)] == [[b.decode()] for b in bodies if b != b"bad"]
    with pytest.raises(InvalidValue, match="good"):
        bad.result()


def test_every_sender_gets_an_error_of_its_own(broker: Broker) -> None:
    """Tracebacks and notes of one thread do not appear in another's."""
    broker.down = True
    bodies = [b"%d" % number for number in range(CALLS_MAX + 3)]
    outcomes = send_all(SharedCalls(broker, LIMITS), broker, *bodies)
    errors = [outcome.exception() for outcome in outcomes]
    assert all(isinstance(error, BrokerUnreachable) for error in errors)
    assert len({id(error) for error in errors}) == len(errors)


def test_calls_go_on_after_a_failure(broker: Broker) -> None:
    """No sender is left waiting for a call that nobody makes."""
    shared = SharedCalls(broker, LIMITS)
    broker.down = True
    send_all(shared, broker, *[b"%d" % number for number in range(CALLS_MAX + 3)])
    broker.down = False
    assert [r.message_id for r in shared.send((Message("t", b"after"),), 5)] == ["after"]
