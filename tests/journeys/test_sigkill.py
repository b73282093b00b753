"""A broker killed at random moments, while delayed messages are sent, delivered and consumed.

The seed of a run is in its test's name and in every failure; RMQLITE_SEED sets another.
"""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from rmqlite.client import (
    CONSUME_SUCCESS,
    RECONSUME_LATER,
    AdminClient,
    ConsumeResult,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    StoredMessage,
)
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.names import retry_topic
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually
from tests.support.sending import SEED, TOPIC, Sending, kill_and_restart

LEVELS = "1s 2s 1s 1s"
KILLS = 2
KILLS_IN_A_LONG_RUN = 6


def drained(endpoint: str) -> None:
    """Wait until nothing waits in the schedule."""
    with AdminClient(endpoint) as admin:
        eventually(
            lambda: not sum(level.pending for level in admin.broker_status().levels),
            "everything due is delivered",
        )


def everything_in(endpoint: str, topic: str) -> Counter[str]:
    """How often each message, by its first key, is in a topic."""
    found: Counter[str] = Counter()
    with PullConsumer(endpoint, "auditors") as consumer:
        for queue in consumer.queues(topic):
            offset = 0
            while True:
                result = consumer.pull(topic, queue.queue_id, offset, max_messages=500)
                if result.next_offset == offset:
                    break
                offset = result.next_offset
                found.update(message.keys[0] for message in result.messages)
    return found


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("seed", [SEED])
def test_every_acknowledged_message_arrives_exactly_once(
    start_broker: StartBroker, flush: str, seed: int, is_long: bool
) -> None:
    """A SIGKILL costs neither a message nor a duplicate, wherever it strikes."""
    chance = random.Random(seed)
    broker = start_broker(messageDelayLevel=LEVELS, flushDiskType=flush)
    sending = Sending(broker.endpoint, seed, with_timers=True)
    sending.start()
    for _ in range(KILLS_IN_A_LONG_RUN if is_long else KILLS):
        kill_and_restart(broker, sending, chance)
    sending.stop()
    drained(broker.endpoint)
    arrived = everything_in(broker.endpoint, TOPIC)
    missing = [name for name in sending.acknowledged if name not in arrived]
    twice = [name for name, times in arrived.items() if times > 1]
    assert not missing, f"seed={seed}: lost {missing[:5]} of {len(sending.acknowledged)}"
    assert not twice, f"seed={seed}: delivered twice {twice[:5]} of {len(arrived)}"


@pytest.mark.parametrize("seed", [SEED])
def test_every_message_is_consumed_and_retried_across_kills(
    start_broker: StartBroker, seed: int, is_long: bool
) -> None:
    """Consumers reconnect by themselves; each message succeeds, retries included."""
    chance = random.Random(seed)
    broker = start_broker(messageDelayLevel=LEVELS)
    succeeded: Counter[str] = Counter()
    failed_first: set[str] = set()
    guard = threading.Lock()

    def listener(message: StoredMessage) -> ConsumeResult:
        name = message.keys[0]
        with guard:
            if message.topic != TOPIC:
                raise AssertionError(message.topic)
            if int(name[1:]) % 5 == 0 and message.reconsume_times == 0:
                failed_first.add(name)
                return RECONSUME_LATER
            succeeded[name] += 1
            return CONSUME_SUCCESS

    consumer = PushConsumer(broker.endpoint, "workers", listener, commit_interval_ms=200)
    consumer.subscribe(TOPIC)
    sending = Sending(broker.endpoint, seed)
    sending.start()
    with consumer:
        consumer.start()
        for _ in range(KILLS_IN_A_LONG_RUN if is_long else KILLS):
            kill_and_restart(broker, sending, chance)
        sending.stop()
        wanted = set(sending.acknowledged)
        eventually(lambda: wanted <= set(succeeded), f"seed={seed}: all is consumed")
    assert failed_first


def test_a_clean_stop_delivers_nothing_twice(start_broker: StartBroker) -> None:
    """SIGTERM drains and closes; the next start has nothing to recover."""
    broker = start_broker(messageDelayLevel=LEVELS)
    with Producer(broker.endpoint, "senders") as producer:
        producer.send_batch([Message(TOPIC, b"x", keys=f"m{n}", delay_level=1) for n in range(50)])
    drained(broker.endpoint)
    broker.stop()
    assert not (broker.folder / "store" / "abort").exists()
    broker.start()
    drained(broker.endpoint)
    assert set(everything_in(broker.endpoint, TOPIC).values()) == {1}


def test_offsets_survive_a_clean_stop(start_broker: StartBroker) -> None:
    """What a group committed it does not read again."""
    broker = start_broker()
    with Producer(broker.endpoint, "senders") as producer:
        results = producer.send_batch([Message(TOPIC, b"x") for _ in range(10)])
    queue = Queue(TOPIC, results[0].queue_id)
    with PullConsumer(broker.endpoint, "readers") as consumer:
        assert len(consumer.pull(TOPIC, queue.queue_id, max_messages=4).messages) == 4
        consumer.commit()
    broker.stop()
    broker.start()
    with PullConsumer(broker.endpoint, "readers") as consumer:
        assert consumer.committed(queue) == 4
        assert len(consumer.pull(TOPIC, queue.queue_id).messages) == 6


def test_a_retry_topic_belongs_to_its_group(start_broker: StartBroker) -> None:
    """A group that heartbeats has its retry topic, so that a failure always has a place."""
    broker = start_broker()
    with PushConsumer(broker.endpoint, "workers", lambda _: CONSUME_SUCCESS) as consumer:
        consumer.subscribe(TOPIC)
        consumer.start()
        with AdminClient(broker.endpoint) as admin:
            assert retry_topic("workers") in [topic.topic for topic in admin.list_topics()]


def test_the_largest_message_survives_a_kill(start_broker: StartBroker) -> None:
    """Recovery reads in windows; a body of 4 MiB is larger than any of them."""
    broker = start_broker()
    bodies = [bytes([65 + n]) * (4 << 20) for n in range(3)]
    with Producer(broker.endpoint, "senders", send_timeout_ms=30_000) as producer:
        results = [producer.send(Message(TOPIC, body), queue_id=0) for body in bodies]
    broker.kill()
    broker.start()
    with PullConsumer(broker.endpoint, "readers") as consumer:
        found = [
            consumer.pull(TOPIC, 0, result.queue_offset, max_messages=1).messages[0].body
            for result in results
        ]
    assert found == bodies
