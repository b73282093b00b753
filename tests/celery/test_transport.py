"""Kombu's transport by itself: what it publishes, receives, settles and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from kombu import Connection, Exchange, Queue
from kombu.exceptions import ChannelError, OperationalError

import rmqlite.celery as rmqlite_celery
from rmqlite.celery.names import due_ms, key_of, tag_of, topic_of
from rmqlite.client import AdminClient, LeasedMessage, Message, Producer
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.names import check_topic
from rmqlite.testing import BrokerProcess, broker, free_port
from tests.support.celery_worker import url_of
from tests.support.eventually import eventually

assert rmqlite_celery.REQUEST
TOMORROW = datetime.now(UTC) + timedelta(days=1)
TASKS = Exchange("tasks", "direct")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
def connection(running: BrokerProcess) -> Iterator[Any]:
    with Connection(url_of(running.endpoint)) as opened:
        yield opened


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> Any:
    name = request.node.name.replace("[", "-").replace("]", "")
    return Queue(name, TASKS, routing_key=name)


def publish(connection: Any, queue: Any, *bodies: Any, **how: Any) -> None:
    with connection.Producer() as producer:
        for body in bodies:
            producer.publish(body, **queue_of(queue), **how)


def queue_of(queue: Any) -> dict[str, Any]:
    return {"exchange": TASKS, "routing_key": queue.routing_key, "declare": [queue]}


def is_not(handle: str, leased: LeasedMessage) -> bool:
    return leased.handle != handle


def drain(connection: Any, count: int) -> None:
    for _ in range(count):
        connection.drain_events(timeout=30)


def test_text_bytes_and_values_come_as_they_were_sent(connection: Any, queue: Any) -> None:
    """Kombu's own envelope, whatever its serializer made."""
    got: list[Any] = []
    publish(connection, queue, {"order": "ä"}, "text", b"\x00\xff")
    with connection.Consumer([queue], no_ack=True, callbacks=[lambda body, _: got.append(body)]):
        drain(connection, 3)
    assert got == [{"order": "ä"}, "text", b"\x00\xff"]


def test_the_prefetch_limit_holds_over_all_queues(connection: Any, queue: Any) -> None:
    """Messages of the second queue do not wait until the first one is empty."""
    other = Queue(f"{queue.name}-2", TASKS, routing_key=f"{queue.name}-2")
    publish(connection, queue, *range(6))
    publish(connection, other, *range(10, 16))
    waiting: list[Any] = []
    order: list[int] = []

    def received(body: int, message: Any) -> None:
        order.append(body)
        waiting.append(message)

    with connection.Consumer([queue, other], callbacks=[received]) as consumer:
        consumer.qos(prefetch_count=2)
        drain(connection, 2)
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.3)
        while len(order) < 12:
            waiting.pop(0).ack()
            drain(connection, 1)
        for each in waiting:
            each.ack()
    assert sorted(order) == [*range(6), *range(10, 16)]
    assert any(each >= 10 for each in order[:4]), order


def test_a_message_can_be_requeued_and_rejected(
    connection: Any, queue: Any, running: BrokerProcess
) -> None:
    """What AMQP's users know by basic.reject."""
    publish(connection, queue, 1)
    with connection.Consumer([queue]) as consumer:
        seen: list[Any] = []
        consumer.register_callback(lambda _, message: seen.append(message))
        drain(connection, 1)
        assert not seen[0].delivery_info["redelivered"]
        seen[0].requeue()
        drain(connection, 1)
        seen[1].reject()
    with AdminClient(running.endpoint) as admin:
        [dead] = admin.dead_letters.dead(topic_of(queue.name))
    assert dead.reason == "rejected by the worker"


def test_what_a_closed_connection_held_is_visible_again(running: BrokerProcess, queue: Any) -> None:
    """A worker that ends in good order keeps nobody waiting for its leases."""
    with Connection(url_of(running.endpoint)) as first, first.Consumer([queue]) as consumer:
        publish(first, queue, 1)
        consumer.register_callback(lambda *_: None)
        drain(first, 1)
    with Connection(url_of(running.endpoint)) as second:
        message = second.SimpleQueue(queue).get(timeout=20)
        assert message.payload == 1
        message.ack()


def test_a_channel_that_is_closed_gives_back_and_forgets(connection: Any, queue: Any) -> None:
    """Its connection goes on, and nothing of the channel stays: no lease, no failure noted."""
    publish(connection, queue, 1, 2)
    with connection.channel() as channel:
        held, done = [queue(channel).get() for _ in range(2)]
        done.ack()
        channel.note_failure(done.delivery_tag, ValueError("early"), is_lost=False)
        assert not channel._failures
        assert list(channel.leases) == [held.delivery_tag]
    assert not channel.leases
    again = queue(connection.default_channel).get()
    assert again.payload == held.payload
    again.ack()


def test_a_lease_is_made_longer_while_its_connection_lives(
    running: BrokerProcess, queue: Any
) -> None:
    """So that a task may take longer than any visibility timeout."""
    options = {"visibility_timeout": 1}
    with (
        Connection(url_of(running.endpoint), transport_options=options) as holding,
        holding.Consumer([queue], callbacks=[lambda _, message: got.append(message)]),
    ):
        got: list[Any] = []
        publish(holding, queue, 1)
        drain(holding, 1)
        channel = got[0].channel
        [(_, leased)] = channel.leases.values()
        for _ in range(4):
            eventually(partial(is_not, leased.handle, leased), "another lease")
        got[0].ack()
        assert not channel.leases


def test_what_was_due_at_a_time_has_none_any_more(connection: Any, queue: Any) -> None:
    """Else a worker would take any number of due tasks: Celery raises its limit for each."""
    got: list[Any] = []
    at = datetime.now(UTC) + timedelta(milliseconds=200)
    publish(connection, queue, 1, headers={"eta": at.isoformat()})
    with connection.Consumer([queue], callbacks=[lambda _, message: got.append(message)]):
        drain(connection, 1)
    assert datetime.now(UTC) >= at
    assert got[0].headers["eta"] is None
    got[0].ack()


def test_an_acknowledgement_after_the_connection_is_lost_is_no_fault(
    running: BrokerProcess, queue: Any
) -> None:
    """A pool of threads still has tasks that it was given before; they come again."""
    got: list[Any] = []
    with (
        Connection(url_of(running.endpoint)) as lost,
        lost.Consumer([queue], callbacks=[lambda _, message: got.append(message)]),
    ):
        publish(lost, queue, 1)
        drain(lost, 1)
        lost.collect()
        got[0].ack()


def test_get_count_and_purge(connection: Any, queue: Any) -> None:
    """What administrators do by kombu, and `celery purge` by it."""
    bound = queue(connection.default_channel)
    bound.declare()
    assert bound.get() is None
    publish(connection, queue, 1, 2, 3)
    publish(connection, queue, 4, headers={"eta": TOMORROW.isoformat()})
    assert bound.queue_declare(passive=True).message_count == 3
    message = bound.get()
    assert message.payload in (1, 2, 3)
    message.ack()
    eventually(lambda: bound.queue_declare(passive=True).message_count == 2, "one less")
    failed = bound.get()
    failed.channel.note_failure(failed.delivery_tag, ValueError("x"), is_lost=True)
    failed.requeue()
    # One of the ready, one that waits for its time, one for its retry.
    assert bound.purge() == 3
    assert bound.get() is None


def test_a_message_of_somebody_else_is_a_dead_letter(
    connection: Any, queue: Any, running: BrokerProcess
) -> None:
    """It must not stop the queue, nor be lost."""
    publish(connection, queue, 1)
    with Producer(running.endpoint, "others") as producer:
        producer.send(Message(topic_of(queue.name), b"no JSON"))
    got: list[Any] = []
    with connection.Consumer([queue], no_ack=True, callbacks=[lambda body, _: got.append(body)]):
        drain(connection, 1)
        with AdminClient(running.endpoint) as admin:

            def dead() -> list[str]:
                with pytest.raises(TimeoutError):
                    connection.drain_events(timeout=0.1)
                return [each.reason for each in admin.dead_letters.dead(topic_of(queue.name))]

            eventually(lambda: dead() == ["not a message of Celery's"], "it is a dead letter")
    assert got == [1]


def test_all_hear_what_a_fanout_exchange_is_told(running: BrokerProcess) -> None:
    """Remote control and events stand on it."""
    news = Exchange("news", "fanout", durable=False)
    heard: list[tuple[str, Any]] = []
    with (
        Connection(url_of(running.endpoint)) as one,
        Connection(url_of(running.endpoint)) as two,
        one.Consumer([Queue("one", news, auto_delete=True)], no_ack=True) as first,
        two.Consumer([Queue("two", news, auto_delete=True)], no_ack=True) as second,
    ):
        first.register_callback(lambda body, _: heard.append(("one", body)))
        second.register_callback(lambda body, _: heard.append(("two", body)))
        with one.Producer() as producer:
            producer.publish("rain", exchange=news, declare=[news])
        drain(one, 1)
        drain(two, 1)
    assert sorted(heard) == [("one", "rain"), ("two", "rain")]


def test_a_routing_key_without_a_queue_is_an_error(connection: Any) -> None:
    """A virtual transport would lose the message without a word."""
    with connection.Producer() as producer, pytest.raises(ChannelError, match="declare the queue"):
        producer.publish(1, exchange=TASKS, routing_key="nobody", declare=[TASKS])


def test_a_broker_that_is_away_is_an_error_of_the_connection() -> None:
    """Celery then tries again by itself."""
    with (
        Connection(f"rmqlite://127.0.0.1:{free_port()}") as nobody,
        pytest.raises(OperationalError, match="nothing listens there"),
    ):
        nobody.ensure_connection(max_retries=1, interval_start=0)


def test_hosts_account_and_certificates_come_from_the_url(tmp_path: Any) -> None:
    """Celery's users configure a broker by one URL."""
    ca = tmp_path / "ca.pem"
    ca.write_text("PEM")
    url = "rmqlites://shop:secret@a:1;rmqlites://shop:secret@b"
    clients = Connection(url, ssl={"ca_certs": str(ca)}).transport.clients
    assert clients.endpoint == "tls://a:1,tls://b:8081"
    assert (clients.credentials.access_key, clients.credentials.secret) == ("shop", "secret")
    assert clients.credentials.ca == "PEM"
    with pytest.raises(InvalidValue, match="ca_certs"):
        assert Connection(url, ssl={"ca_certs": str(tmp_path)}).transport
    assert Connection("rmqlite://[::1]:7//").transport.clients.endpoint == "[::1]:7"
    with pytest.raises(InvalidValue, match="secretKey"):
        assert Connection("rmqlite://shop@a").transport.clients.producer


@pytest.mark.parametrize("text", ["celery", "celery@host.pidbox", "ä b", "a%2Eb", "a.b"])
def test_names_and_tokens_are_unique_and_allowed(text: str) -> None:
    """RocketMQ allows few characters; two queues must not become one."""
    others = {"celery", "celery@host.pidbox", "ä b", "a%2Eb", "a.b"} - {text}
    assert topic_of(text) not in {topic_of(each) for each in others}
    check_topic(topic_of(text))
    assert Message("t", b"x", tags=tag_of(text), keys=[key_of(text)]).keys == (key_of(text),)


def test_a_time_is_never_rounded_down() -> None:
    """Never early."""
    assert due_ms({}) == due_ms({"eta": None}) == due_ms({"eta": "2002-01-01T00:00:00"}) == 0
    assert due_ms({"eta": "2099-01-01T00:00:00.000001"}) == 4_070_908_800_001
    assert due_ms({"eta": "2099-01-01T01:00:00+01:00"}) == 4_070_908_800_000
    with pytest.raises(InvalidValue, match="eta must be"):
        due_ms({"eta": "tomorrow"})
