"""Leases of a group that consumes in order: per message group, from the first unacknowledged."""

from __future__ import annotations

import pytest

from rmqlite.kernel.requests.groups import GroupChange
from rmqlite.kernel.words.message import MESSAGE_GROUP
from rmqlite.kernel.words.names import dlq_topic, retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.leases import INVISIBLE_MS, Consumer, expire
from tests.support.messages import GROUP, plain


@pytest.fixture
def shops(under_test: BrokerUnderTest) -> BrokerUnderTest:
    """Messages of two message groups, one after the other."""
    under_test.broker.groups.change(GroupChange(GROUP, orderly=True, max_reconsume_times=2))
    for number in range(3):
        for shop in "ab":
            under_test.send(plain(f"{shop}{number}", properties={MESSAGE_GROUP: shop}))
    return under_test


def test_a_message_group_waits_for_its_first_message(shops: BrokerUnderTest) -> None:
    """The other message group goes on."""
    first, second = Consumer(shops), Consumer(shops, client_id="client-2")
    (a0,) = first.receive(1).messages
    assert second.bodies(1) == ["b0"]
    assert second.bodies() == []
    first.ack(a0)
    assert second.bodies() == ["a1", "a2"]


def test_one_receive_may_get_several_of_a_message_group(shops: BrokerUnderTest) -> None:
    """They come in order to one client, which consumes them in order."""
    assert Consumer(shops).bodies() == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_what_fails_comes_again_before_what_follows(shops: BrokerUnderTest) -> None:
    """In its place, not behind the others in the retry topic."""
    consumer = Consumer(shops)
    deliveries = consumer.receive(4).messages
    consumer.ack(deliveries[1], deliveries[3])
    assert consumer.bodies() == ["b2"]
    shops.clock.forward(INVISIBLE_MS)
    expire(shops)
    again = [each for each in consumer.receive().messages if each.record.body[:1] == b"a"]
    assert [(each.record.body, each.attempt) for each in again] == [
        (b"a0", 2),
        (b"a1", 2),
        (b"a2", 1),
    ]
    assert shops.broker.store.queue(retry_topic(GROUP), 0) is None


def test_a_message_that_always_fails_is_dead_and_the_next_one_comes(
    shops: BrokerUnderTest,
) -> None:
    """After as many deliveries as everywhere; its count survives a crash."""
    consumer = Consumer(shops)
    for attempt in (1, 2, 3):
        found = consumer.receive(1).messages[0]
        assert (found.record.body, found.attempt) == (b"a0", attempt)
        shops.clock.forward(INVISIBLE_MS)
        expire(shops)
        if attempt == 2:
            shops.persist()
        shops.crash()
        shops.open()
    (dead,) = shops.messages(dlq_topic(GROUP), 0)
    assert dead.body == b"a0"
    assert consumer.bodies(2) == ["b0", "a1"]


def test_order_survives_a_crash(shops: BrokerUnderTest) -> None:
    """What is leased is leased still, so what follows it still waits."""
    consumer = Consumer(shops)
    (a0,) = consumer.receive(1).messages
    shops.crash()
    shops.open()
    assert consumer.bodies() == ["b0", "b1", "b2"]
    consumer.ack(a0)
    assert consumer.bodies() == ["a1", "a2"]


def test_messages_without_a_message_group_are_in_order_too(shops: BrokerUnderTest) -> None:
    """As in RocketMQ, where a group in order takes one batch of a queue at a time."""
    consumer = Consumer(shops)
    consumer.ack(*consumer.receive().messages)
    shops.send(plain("x"), plain("y"))
    assert consumer.bodies(1) == ["x"]
    assert consumer.bodies(1) == []


def test_a_message_can_be_held_in_its_place(shops: BrokerUnderTest) -> None:
    """The client takes longer; nothing of its message group passes it."""
    consumer = Consumer(shops)
    handle = consumer.hold(consumer.receive(1).messages[0].handle, 60_000)
    shops.clock.forward(INVISIBLE_MS)
    expire(shops)
    assert consumer.bodies() == ["b0", "b1", "b2"]
    assert consumer.is_valid(handle)
