"""Messages with keys are found in a real broker: before and after delivery, and after SIGKILL."""

from __future__ import annotations

import pytest

from rmqlite.client import (
    DEAD_LETTER,
    AdminClient,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    StoredMessage,
    reconsume_later,
)
from rmqlite.features.finding.requests import FoundMessages, MessageQuery, MessageState
from rmqlite.kernel.words.errors import InvalidValue, MessageNotFound, TopicUnknown
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, dlq_topic, retry_topic
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually

TOPIC = "orders"
STATES = [MessageState.SCHEDULED, MessageState.STORED]


def test_a_delayed_message_is_found_before_and_after_its_delivery(
    start_broker: StartBroker,
) -> None:
    """By key and by message id; a killed broker knows as much when it is back."""
    broker = start_broker(messageDelayLevel="1s 1h")
    with Producer(broker.endpoint, "senders") as producer, AdminClient(broker.endpoint) as admin:
        soon = producer.send(Message(TOPIC, b"soon", keys="order-1 soon", delay_level=1))
        late = producer.send(Message(TOPIC, b"late", keys="order-1 late", delay_level=2))

        def hops(key: str, *, by_id: bool = False) -> FoundMessages:
            return admin.find_messages(MessageQuery(TOPIC, key, by_message_id=by_id, history=True))

        def check() -> None:
            assert [each.state for each in hops("soon").messages] == STATES
            assert hops("soon") == hops(soon.message_id, by_id=True)
            (waiting,) = hops("late").messages
            assert (waiting.deliver_at_ms, waiting.is_pending) == (late.deliver_at_ms, True)
            assert waiting == admin.message_at(late.offset_message_id)
            assert [each.message.body for each in hops("order-1").messages] == [
                *(b"soon", b"late", b"soon")
            ]

        (waiting,) = hops("late").messages
        assert (waiting.state, waiting.is_pending) == (MessageState.SCHEDULED, True)
        eventually(lambda: len(hops("soon").messages) == 2, "it is delivered")
        check()
        broker.kill()
        broker.start()
        check()
        producer.send(Message(TOPIC, b"after", keys="order-1"))
        assert hops("order-1").messages[-1].message.body == b"after"


def fail_once_then_for_good(message: StoredMessage) -> ConsumeResult:
    return reconsume_later(delay_level=DEAD_LETTER if message.reconsume_times else 1)


def test_a_dead_letter_is_found_by_the_key_it_was_sent_with(start_broker: StartBroker) -> None:
    """What an operator asks first: how did this message come to its end?"""
    broker = start_broker(messageDelayLevel="1s")
    query = MessageQuery(TOPIC, "order-1", history=True)
    with (
        Producer(broker.endpoint, "senders") as producer,
        PushConsumer(broker.endpoint, "workers", fail_once_then_for_good) as consumer,
        AdminClient(broker.endpoint) as admin,
    ):
        producer.send(Message(TOPIC, b"order", keys="order-1"))
        consumer.subscribe(TOPIC)
        consumer.start()
        eventually(lambda: len(admin.find_messages(query).messages) == 4, "it is dead")
        found = admin.find_messages(query).messages
    assert [each.message.topic for each in found] == [
        *(TOPIC, SCHEDULE_TOPIC, retry_topic("workers"), dlq_topic("workers"))
    ]
    assert [each.state.name for each in found] == ["STORED", "SCHEDULED", "RETRY", "DEAD"]


def test_what_cannot_be_found_is_an_error_of_its_own(shared_broker: str) -> None:
    """The same classes arrive that the broker raised."""
    with AdminClient(shared_broker) as admin:
        assert admin.find_messages(MessageQuery("here", "k")) == FoundMessages(())
        with pytest.raises(TopicUnknown):
            admin.find_messages(MessageQuery("there", "k"))
        with pytest.raises(InvalidValue, match="max_messages"):
            admin.find_messages(MessageQuery("here", "k", max_messages=65))
        with pytest.raises(InvalidValue, match="hexadecimal"):
            admin.message_at("here")
        with pytest.raises(MessageNotFound):
            admin.message_at("0" * 16 + "7" * 16)
