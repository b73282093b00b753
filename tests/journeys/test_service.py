"""What a client meets at a real broker: errors it can act on, company, and shutdown."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import grpc
import pytest

from rmqlite.client import (
    CONSUME_SUCCESS,
    AdminClient,
    ConsumeResult,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    StoredMessage,
)
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.words import errors
from rmqlite.protocols.native.bytes import rpcs
from rmqlite.protocols.native.bytes.messages import PullResult
from rmqlite.protocols.native.bytes.rpcs import rpc_of
from rmqlite.protocols.shared.status import ERROR_METADATA, error_from_metadata
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually

TOPIC = "orders"
POLLS = 5_000


def ignore(_: StoredMessage) -> ConsumeResult:
    return CONSUME_SUCCESS


@pytest.mark.parametrize(
    ("ask", "error", "field", "response_code"),
    [
        (lambda p: p.send(Message("a b", b"x")), errors.InvalidName, "topic", 1),
        (lambda p: p.send(Message("t" * 128, b"x")), errors.InvalidName, "topic", 1),
        (lambda p: p.send(Message("orders", b"x")), errors.TopicUnknown, "topic", 17),
        (
            lambda p: p.send(Message("SCHEDULE_TOPIC_XXXX", b"x")),
            errors.PermissionMissing,
            "topic",
            16,
        ),
        (
            lambda p: p.send(Message("here", bytes(4 * 1024 * 1024 + 1))),
            errors.MessageTooLarge,
            "body",
            13,
        ),
        (
            lambda p: p.send(Message("here", b"x", properties={"p": "x" * 32_767})),
            errors.MessageTooLarge,
            "properties",
            13,
        ),
        (lambda p: p.send(Message("here", b"x"), queue_id=9), errors.QueueUnknown, "queue_id", 1),
        (lambda p: p.send(Message("here", b"x", delay="7s")), errors.DelayUnknown, "delay", 13),
    ],
)
def test_a_bad_request_says_which_field_breaks_which_rule(
    shared_broker: str,
    ask: Callable[[Producer], object],
    error: type[errors.RmqliteError],
    field: str,
    response_code: int,
) -> None:
    """The same class arrives that the broker raised, with RocketMQ's response code."""
    with Producer(shared_broker, "senders") as producer, pytest.raises(error) as caught:
        ask(producer)
    assert caught.value.field == field
    assert caught.value.rule
    assert caught.value.response_code == response_code


def test_bytes_that_are_no_request_are_refused_by_name(shared_broker: str) -> None:
    """Another program's mistake gets a sentence, not an internal error."""
    with grpc.insecure_channel(shared_broker) as channel:
        send: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(rpcs.SEND.path)
        with pytest.raises(grpc.RpcError) as caught:
            send(b"\xff\xff\xff")
    call = caught.value
    assert isinstance(call, grpc.Call)
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
    metadata = dict(call.trailing_metadata() or ())
    error = error_from_metadata(bytes(metadata[ERROR_METADATA]))
    assert isinstance(error, errors.InvalidValue)
    assert "rmqlite.v1.SendRequest" in error.rule


def test_thousands_of_parked_polls_disturb_nobody(start_broker: StartBroker) -> None:
    """Each waits for the same queue; sends elsewhere go on, and one message wakes them all."""
    broker = start_broker(maxPullWait=600_000)
    with (
        Producer(broker.endpoint, "senders") as producer,
        AdminClient(broker.endpoint) as admin,
        grpc.insecure_channel(broker.endpoint) as channel,
    ):
        admin.create_topic("quiet", queues=1)
        pull = channel.unary_unary(
            rpcs.PULL.path,
            request_serializer=rpc_of(rpcs.PULL).encode_request,
            response_deserializer=rpc_of(rpcs.PULL).decode_response,
        )
        request = PullRequest("readers", "quiet", 0, 0, wait_ms=600_000)
        polls: list[grpc.Future[PullResult]] = [pull.future(request) for _ in range(POLLS)]
        eventually(lambda: admin.broker_status().parked_polls == POLLS, "all polls are parked")
        assert len(producer.send_batch([Message(TOPIC, b"x") for _ in range(100)])) == 100
        assert admin.broker_status().parked_polls == POLLS
        producer.send(Message("quiet", b"news"))
        answers = [poll.result(timeout=180) for poll in polls]
    assert {answer.messages[0].body for answer in answers} == {b"news"}


def test_a_stop_answers_parked_polls_and_ends_cleanly(start_broker: StartBroker) -> None:
    """Nobody waits out a long poll for a broker that goes."""
    broker = start_broker(maxPullWait=600_000)
    with (
        AdminClient(broker.endpoint) as admin,
        PullConsumer(broker.endpoint, "readers", timeout_ms=600_000) as consumer,
    ):
        admin.create_topic("quiet", queues=1)
        results: list[PullResult] = []
        poll = threading.Thread(
            target=lambda: results.append(consumer.pull("quiet", 0, wait_ms=600_000))
        )
        poll.start()
        eventually(lambda: admin.broker_status().parked_polls == 1, "the poll is parked")
        broker.stop()
        poll.join(180)
    assert [result.messages for result in results] == [()]


def test_members_share_queues_and_take_over(start_broker: StartBroker) -> None:
    """Joining, leaving in order, and being killed: each time the others have all queues."""
    broker = start_broker(defaultTopicQueueNums=8)
    with AdminClient(broker.endpoint) as admin:
        admin.create_topic(TOPIC, queues=8)

        def shares() -> list[int]:
            progress = admin.group("workers").progress
            readers = [p.client_id for p in progress if p.queue.topic == TOPIC]
            return sorted(readers.count(client) for client in set(readers) - {""})

        with PushConsumer(broker.endpoint, "workers", ignore) as first:
            first.subscribe(TOPIC)
            first.start()
            eventually(lambda: shares() == [8], "one reads all")
            with PushConsumer(broker.endpoint, "workers", ignore) as second:
                second.subscribe(TOPIC)
                second.start()
                eventually(lambda: shares() == [4, 4], "two share")
                third = consuming_process(broker.endpoint)
                eventually(lambda: shares() == [2, 3, 3], "three share")
                third.kill()
                third.wait()
                # At once when a poll of its is here, at the latest a poll and 15 s later.
                eventually(lambda: shares() == [4, 4], "a killed one is gone")
            eventually(lambda: shares() == [8], "one reads all again")


def consuming_process(endpoint: str) -> subprocess.Popen[bytes]:
    """A member of the group in a process of its own."""
    command = [sys.executable, "-m", "rmqlite", "consume", TOPIC, "--group", "workers"]
    return subprocess.Popen([*command, "--endpoint", endpoint], stdout=subprocess.DEVNULL)


def test_a_hanging_listener_holds_up_no_other_group(start_broker: StartBroker) -> None:
    """Each group has its own pace; the broker waits for none of them."""
    broker = start_broker()
    hang = threading.Event()
    reached: list[str] = []

    def hanging(_: StoredMessage) -> ConsumeResult:
        hang.wait(600)
        return CONSUME_SUCCESS

    def quick(message: StoredMessage) -> ConsumeResult:
        reached.append(message.message_id)
        return CONSUME_SUCCESS

    with (
        Producer(broker.endpoint, "senders") as producer,
        PushConsumer(broker.endpoint, "slow", hanging) as slow,
        PushConsumer(broker.endpoint, "quick", quick) as fast,
    ):
        slow.subscribe(TOPIC)
        fast.subscribe(TOPIC)
        slow.start()
        fast.start()
        sent = producer.send_batch([Message(TOPIC, bytes(1000)) for _ in range(3_000)])
        eventually(
            lambda: {result.message_id for result in sent} == set(reached), "all reached the quick"
        )
        hang.set()
