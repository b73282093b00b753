"""Messages that expire: real consumers of both kinds, SIGKILL, and a redrive."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import pytest

from rmqlite.client import (
    CONSUME_SUCCESS,
    AdminClient,
    ConsumeResult,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    RedriveSpec,
    SimpleConsumer,
    StoredMessage,
)
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.message import FAILURE_REASON
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually

COUNT = 300


Given = Counter[str]
"""How often each body was handed out."""


@contextmanager
def pushed(endpoint: str) -> Iterator[Given]:
    """A consumer that pulls."""
    given: Given = Counter()

    def listen(message: StoredMessage) -> ConsumeResult:
        given[message.body.decode()] += 1
        return CONSUME_SUCCESS

    with PushConsumer(endpoint, "shop", listen) as consumer:
        consumer.subscribe("orders")
        consumer.start()
        yield given


@contextmanager
def leased(endpoint: str) -> Iterator[Given]:
    """A consumer that is leased each message."""
    given: Given = Counter()
    is_over = threading.Event()

    def consume() -> None:
        with SimpleConsumer(endpoint, "shop") as consumer:
            consumer.subscribe("orders")
            while not is_over.is_set():
                with suppress(RmqliteError):
                    if messages := consumer.receive(32, invisible="5s"):
                        given.update([each.body.decode() for each in messages])
                        consumer.ack(messages)

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        yield given
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("consuming", [pushed, leased])
def test_what_expires_is_handed_to_nobody_and_buried_across_kills(
    start_broker: StartBroker, consuming: Callable[[str], AbstractContextManager[Given]]
) -> None:
    """None of the others is lost, and the offset comes to the end; a redrive hands them out."""
    broker = start_broker()
    soon = [Message("orders", b"soon-%d" % n, expires_after="1ms") for n in range(COUNT)]
    never = [Message("orders", b"never-%d" % n) for n in range(COUNT)]
    with AdminClient(broker.endpoint) as admin, Producer(broker.endpoint, "makers") as producer:
        admin.set_group("shop", bury_expired=True)
        for pair in zip(soon, never, strict=True):
            producer.send_batch(pair)
    # When it is there again, its clock is past the last of them.
    broker.kill()
    broker.start()
    with consuming(broker.endpoint) as given:
        eventually(lambda: len(given) > COUNT // 10, "some came")
        broker.kill()
        broker.start()
        eventually(lambda: len(given) >= COUNT, "all others came")
        with AdminClient(broker.endpoint) as admin:
            eventually(lambda: not lag(admin), "the group is at the end")
            assert admin.group("shop").info.bury_expired
            assert given.keys() == {each.body.decode() for each in never}
            dead = dead_letters(broker.endpoint)
            assert sorted([each.body for each in dead]) == sorted([each.body for each in soon])
            assert {each.properties[FAILURE_REASON] for each in dead} == {"expired"}
            admin.redrives.start(RedriveSpec("shop"))
            eventually(lambda: len(given) == 2 * COUNT, "those that had expired came")


def lag(admin: AdminClient) -> int:
    return sum(each.lag for each in admin.group("shop").progress)


def dead_letters(endpoint: str) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    with PullConsumer(endpoint, "readers") as reader:
        while messages := reader.pull("%DLQ%shop", 0, len(found), max_messages=500).messages:
            found += messages
    return found
