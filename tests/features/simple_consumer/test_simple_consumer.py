"""SimpleConsumer and AsyncSimpleConsumer against a broker in a process of its own."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rmqlite.client import AdminClient, DeadLettersQuery, Message, Producer, SimpleConsumer
from rmqlite.client.asyncio import AsyncSimpleConsumer
from rmqlite.client.consuming.simple_consumer import LeasedMessage
from rmqlite.features.simple_consumer.requests import (
    RECEIVE,
    SETTLE,
    LeasedRecords,
    Outcome,
    Settlement,
    SettleRequest,
    SubscribedReceive,
)
from rmqlite.kernel.requests.groups import HeartbeatRequest, Subscription
from rmqlite.kernel.words.errors import (
    HandleInvalid,
    InvalidValue,
    RmqliteError,
    TopicUnknown,
    Unavailable,
)
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.testing import BrokerProcess
from tests.support.drawn_records import encoded
from tests.support.stores import new_record

GROUP = "workers"


@pytest.fixture
def consumer(rmqlite_broker: BrokerProcess) -> Iterator[SimpleConsumer]:
    """Subscribed to orders, which are there."""
    send(rmqlite_broker)
    with member(rmqlite_broker) as consumer:
        yield consumer


@contextmanager
def member(broker: BrokerProcess) -> Iterator[SimpleConsumer]:
    with SimpleConsumer(broker.endpoint, GROUP) as consumer:
        consumer.subscribe("orders")
        yield consumer


def send(broker: BrokerProcess, *bodies: str, topic: str = "orders", tags: str = "") -> None:
    with Producer(broker.endpoint, "shop") as producer:
        if not bodies:
            with AdminClient(broker.endpoint) as admin:
                admin.create_topic(topic)
        for body in bodies:
            producer.send(Message(topic, body.encode(), tags=tags))


def all_of(consumer: SimpleConsumer, count: int, **how: str) -> list[LeasedMessage]:
    """Receive until there are so many; each answer may have only a part of them."""
    found: list[LeasedMessage] = []
    while len(found) < count:
        some = consumer.receive(32, wait="20s", **how)
        assert some, f"{len(found)} of {count} messages came"
        found += some
    return found


def bodies(messages: list[LeasedMessage]) -> list[str]:
    return sorted(each.body.decode() for each in messages)


def dead_reasons(broker: BrokerProcess) -> list[str]:
    with AdminClient(broker.endpoint) as admin:
        dead = admin.dead_letters.list_dead(DeadLettersQuery(GROUP)).letters
        return [each.reason for each in dead]


def test_what_is_acknowledged_never_comes_again_also_after_sigkill(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer
) -> None:
    """The acknowledgement is on disk when ack() returns; what was only leased comes again."""
    send(rmqlite_broker, "a", "b", "c")
    messages = all_of(consumer, 3, invisible="10s")
    consumer.ack([each for each in messages if each.body != b"b"])
    rmqlite_broker.kill()
    rmqlite_broker.restart()
    rmqlite_broker.advance(seconds=11)
    again = consumer.receive(10, wait="20s")
    assert [(each.body, each.attempt) for each in again] == [(b"b", 2)]
    consumer.ack(again)
    assert consumer.receive(10, wait=None) == []


def test_a_slow_message_holds_up_nobody(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer
) -> None:
    """One member has the first message of a queue; another one gets the next at once."""
    send(rmqlite_broker, "slow")
    slow = consumer.receive(1, wait="20s")
    with member(rmqlite_broker) as other:
        send(rmqlite_broker, *"abcdefgh")
        assert bodies(all_of(other, 8)) == list("abcdefgh")
    consumer.ack(slow)


def test_a_held_message_stays_away_and_can_be_acknowledged(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer
) -> None:
    """The message that the program has is settled, whatever its lease is called now."""
    send(rmqlite_broker, "long")
    (message,) = consumer.receive(1, wait="20s", invisible="10s")
    for _ in range(2):
        rmqlite_broker.advance(seconds=8)
        consumer.hold(message, "10s")
    assert consumer.receive(1, wait=None) == []
    consumer.ack(message)
    rmqlite_broker.advance(seconds=11)
    assert consumer.receive(1, wait=None) == []


@pytest.mark.parametrize("after", [None, "90s"])
def test_a_failed_message_comes_again_when_it_was_asked_for(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer, after: str | None
) -> None:
    """Without a word of when, the group's policy says it: level 3, 10 seconds."""
    send(rmqlite_broker, "broken")
    (message,) = consumer.receive(1, wait="20s")
    consumer.fail(message, ValueError("no such customer"), after=after)
    rmqlite_broker.advance(seconds=89 if after else 9)
    assert consumer.receive(1, wait=None) == []
    rmqlite_broker.advance(seconds=1)
    (again,) = consumer.receive(1, wait="20s")
    assert (again.topic, again.attempt, again.message_id) == ("orders", 2, message.message_id)


def test_what_is_buried_is_a_dead_letter_with_the_reason(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer
) -> None:
    """Of an exception it is type and text, as with PushConsumer."""
    send(rmqlite_broker, "never")
    consumer.bury(consumer.receive(1, wait="20s"), ValueError("no such customer"))
    assert dead_reasons(rmqlite_broker) == ["ValueError: no such customer"]


def test_what_is_given_back_is_there_at_once_and_has_not_failed(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer
) -> None:
    """Both by its word, and because its consumer is closed."""
    send(rmqlite_broker, "mine")
    with member(rmqlite_broker) as other:
        other.give_back(other.receive(1, wait="20s"))
        assert [each.attempt for each in other.receive(1, wait="20s")] == [1]
    assert [each.attempt for each in consumer.receive(1, wait="20s")] == [1]


def test_a_lease_that_has_ended_is_named_and_the_others_are_done(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer
) -> None:
    """A batch with one late message must not come again as a whole."""
    send(rmqlite_broker, "late")
    late = consumer.receive(1, wait="20s", invisible="10s")
    rmqlite_broker.advance(seconds=11)
    send(rmqlite_broker, "in time")
    in_time = all_of(consumer, 1)
    with pytest.raises(HandleInvalid, match="acknowledged, expired or foreign"):
        consumer.ack([*late, *[each for each in in_time if each.body == b"in time"]])
    with pytest.raises(HandleInvalid):
        consumer.ack(late)
    rmqlite_broker.advance(minutes=10)
    assert bodies(all_of(consumer, 1)) == ["late"]


def test_a_receive_that_waits_is_woken_by_a_message_of_any_of_its_topics(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer
) -> None:
    """Also by a retry; and neither topic hides the other one."""
    send(rmqlite_broker, topic="bills")
    consumer.subscribe("bills")
    for topic in ("orders", "bills", "orders"):
        sender = threading.Timer(0.05, send, (rmqlite_broker, topic), {"topic": topic})
        sender.start()
        (message,) = consumer.receive(1, wait="20s")
        sender.join()
        assert (message.topic, message.body.decode()) == (topic, topic)
        consumer.ack(message)
    for topic in ("orders", "bills"):
        send(rmqlite_broker, *[topic] * 8, topic=topic)
    first = {consumer.receive(1, wait="20s")[0].topic for _ in range(2)}
    assert first == {"orders", "bills"}


def test_another_tag_with_the_same_hash_does_not_come(rmqlite_broker: BrokerProcess) -> None:
    """The broker compares hashes; "Aa" and "BB" have the same one."""
    send(rmqlite_broker)
    with SimpleConsumer(rmqlite_broker.endpoint, GROUP) as consumer:
        consumer.subscribe("orders", "Aa")
        send(rmqlite_broker, "wrong", tags="BB")
        send(rmqlite_broker, "right", tags="Aa")
        found = consumer.receive(32, wait="20s") or consumer.receive(32, wait="20s")
        assert bodies(found) == ["right"]
        consumer.ack(found)
        rmqlite_broker.advance(minutes=1)
        assert consumer.receive(32, wait=None) == []


def test_a_body_that_cannot_be_inflated_fails_its_message_only() -> None:
    """With the reason; the others are handed out, inflated."""
    bodies_in_log = [(b"plain", 0), (zlib.compress(b"x" * 900), 1), (b"no stream", 1)]
    records = encoded(
        [new_record(body, "%RETRY%workers", 0, sys_flag=flag) for body, flag in bodies_in_log]
    )
    answer = LeasedRecords("orders", records, ("h1", "h2", "h3"), (2, 2, 2))
    with SimpleConsumer("127.0.0.1:1", GROUP) as consumer:
        consumer.subscribe("orders")
        messages, said = consumer._sorted(0, answer)
    assert [(each.body, each.topic) for each in messages] == [
        (b"plain", "orders"),
        (b"x" * 900, "orders"),
    ]
    (failed,) = said
    assert (failed.handle, failed.outcome) == ("h3", Outcome.FAIL)
    assert "cannot be inflated" in failed.reason


def test_who_receives_is_shown_as_a_member(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer
) -> None:
    """Without a thread for it; another kind of consumer in the group is refused."""
    consumer.receive(1, wait=None)
    with AdminClient(rmqlite_broker.endpoint) as admin:
        members = admin.group(GROUP).members
        assert [each.client_id for each in members] == [consumer.client_id]
    other = HeartbeatRequest(GROUP, "other", (Subscription("orders"),))
    with pytest.raises(InvalidValue, match=GROUP):
        consumer._connection.call(rpcs.HEARTBEAT, other, 10)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (lambda it: it.receive(33), "max_messages"),
        (lambda it: it.receive(1, wait="2h"), "wait_ms"),
        (lambda it: it.receive(1, invisible="13h"), "invisible_ms"),
        (lambda it: it.receive(1, invisible=20), "invisible"),
        (lambda it: it.subscribe("a b"), "topic"),
    ],
)
def test_wrong_values_are_named(
    consumer: SimpleConsumer, wrong: Callable[[SimpleConsumer], object], field: str
) -> None:
    """With the rule."""
    with pytest.raises((InvalidValue, RmqliteError)) as refused:
        wrong(consumer)
    assert field in str(refused.value)


def test_nothing_is_received_without_a_subscription_or_topic(rmqlite_broker: BrokerProcess) -> None:
    """Both are mistakes of a first day."""
    with SimpleConsumer(rmqlite_broker.endpoint, GROUP) as consumer:
        with pytest.raises(InvalidValue, match="subscribe"):
            consumer.receive()
        consumer.subscribe("nowhere")
        with pytest.raises(TopicUnknown):
            consumer.receive()


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        (Settlement("orders", "x", Outcome.HOLD), "with HOLD"),
        (Settlement("orders", "x", Outcome.FAIL, -1), "with FAIL"),
        (Settlement("orders", "x", Outcome.ACK, 5), "with ACK"),
    ],
)
def test_a_settlement_with_a_wrong_time_settles_nothing(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer, said: Settlement, rule: str
) -> None:
    """Of a call from another program: also what stands before it."""
    send(rmqlite_broker, "a")
    (message,) = consumer.receive(1, wait="20s")
    right = Settlement("orders", message.handle, Outcome.ACK)
    ask = consumer._connection.call
    with pytest.raises(InvalidValue, match=rule):
        ask(SETTLE, SettleRequest(GROUP, (right, said)), 10)
    consumer.ack(message)


def test_the_same_attempt_gets_the_same_messages(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer
) -> None:
    """The first answer may be lost: a repeated call must not leave messages in nobody's hands."""
    send(rmqlite_broker, topic="bills")
    send(rmqlite_broker, "a", "b")
    send(rmqlite_broker, "c", topic="bills")
    both = (Subscription("orders"), Subscription("bills"))
    asked = SubscribedReceive(GROUP, "one", both, 10, 60_000, 20_000, "attempt")
    first, second = [consumer._connection.call(RECEIVE, asked, 30) for _ in range(2)]
    assert first.handles
    assert first == second


def test_a_receive_in_the_background_gets_what_a_lost_answer_had(
    rmqlite_broker: BrokerProcess, consumer: SimpleConsumer
) -> None:
    """A receive that was given up may have leased messages: they would come late, and as failed."""
    given_up = consumer.receive_async(2, wait="20s")
    given_up.give_up()
    assert isinstance(given_up.exception(30), Unavailable)
    waiting = consumer.receive_async(2, wait="20s")
    send(rmqlite_broker, "a")
    [message] = waiting.result(30)
    assert (message.body, message.attempt) == (b"a", 1)
    consumer.ack(message)
    # As if an answer had been lost.
    send(rmqlite_broker, "b", "c")
    future = consumer.receive_async(2, wait="20s")
    attempt = consumer._unanswered
    first = future.result(30)
    consumer._unanswered = attempt
    assert [each.handle for each in consumer.receive_async(2, wait="20s").result(30)] == [
        each.handle for each in first
    ]


def test_the_consumer_of_an_event_loop_does_the_same(rmqlite_broker: BrokerProcess) -> None:
    """Ten receives wait at once without a thread; each method has its effect."""
    send(rmqlite_broker)

    async def run() -> None:
        async with AsyncSimpleConsumer(rmqlite_broker.endpoint, GROUP) as consumer:
            consumer.subscribe("orders")
            before = threading.active_count()
            waiting = [asyncio.create_task(consumer.receive(1, wait="20s")) for _ in range(10)]
            await asyncio.sleep(0)
            assert threading.active_count() <= before + 2
            await asyncio.to_thread(send, rmqlite_broker, *"abcdefghij")
            found = [each for some in await asyncio.gather(*waiting) for each in some]
            assert bodies(found) == list("abcdefghij")
            done, held, failed, dead, returned, *rest = found
            await consumer.ack([done, *rest])
            await consumer.hold(held, "10m")
            await consumer.fail(failed, "later", after="1m")
            await consumer.bury(dead, "never")
            await consumer.give_back(returned)
            again = await consumer.receive(1, wait="20s")
            assert again == [returned]
            await consumer.ack([held, *again])
            with pytest.raises(HandleInvalid):
                await consumer.ack(done)

    asyncio.run(run())
    assert dead_reasons(rmqlite_broker) == ["never"]


def test_a_receive_that_is_given_up_leases_nothing(rmqlite_broker: BrokerProcess) -> None:
    """A task that is cancelled while it waits."""
    send(rmqlite_broker)

    async def run() -> None:
        async with AsyncSimpleConsumer(rmqlite_broker.endpoint, GROUP) as consumer:
            consumer.subscribe("orders")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.receive(1, wait="20s"), 0.3)
            await asyncio.to_thread(send, rmqlite_broker, "a")
            assert bodies(await consumer.receive(1, wait="20s")) == ["a"]

    asyncio.run(run())
