"""A group's settings and a sender's limit with a real broker, a real consumer, and SIGKILL."""

from __future__ import annotations

from itertools import pairwise

from rmqlite.client import (
    CONSUME_SUCCESS,
    AdminClient,
    ChangeOutcome,
    ConsumeResult,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    RetryLater,
    reconsume_later,
)
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.message import DELIVERY_ATTEMPTS, FAILURE_REASON, StoredMessage
from tests.support.broker_processes import StartBroker
from tests.support.command_processes import run_command
from tests.support.eventually import eventually

SLACK_MS = 1_000_000
"""However slow the machine: no level of an hour was taken, and nothing came early."""


def test_a_failing_message_comes_again_by_the_policy_and_dies(start_broker: StartBroker) -> None:
    """Set while the broker runs, kept over a SIGKILL, changed between two failures."""
    broker = start_broker(messageDelayLevel="1s 2s 4s 1h")
    given: list[StoredMessage] = []

    def listen(message: StoredMessage) -> ConsumeResult:
        given.append(message)
        return reconsume_later(reason=f"attempt {len(given)}")

    with AdminClient(broker.endpoint) as admin:
        admin.set_group("shop", max_reconsume_times=3, retry_policy="exponential(1s, 2, 1h)")
    broker.kill()
    broker.start()
    with AdminClient(broker.endpoint) as admin, Producer(broker.endpoint, "makers") as producer:
        kept = GroupInfo("shop", 3, retry_policy="exponential(1s, 2, 1h)")
        assert admin.group("shop").info == kept
        producer.send(Message("orders", b"order"))
        with PushConsumer(broker.endpoint, "shop", listen) as consumer:
            consumer.subscribe("orders")
            consumer.start()
            eventually(lambda: len(given) == 3, "two retries came")
            admin.set_group("shop", retry_policy="1")
            eventually(lambda: admin.broker_status().dead == 1, "it died")
    assert [message.reconsume_times for message in given] == [0, 1, 2, 3]
    came = [message.store_timestamp_ms for message in given]
    waited = [after - before for before, after in pairwise(came)]
    # The third failure may be older than the change, and then waits as long as was said.
    assert 1_000 <= waited[0] < 1_000 + SLACK_MS
    assert 2_000 <= waited[1] < 2_000 + SLACK_MS
    assert 1_000 <= waited[2] < 4_000 + SLACK_MS
    with PullConsumer(broker.endpoint, "readers") as reader:
        (dead,) = reader.pull("%DLQ%shop", 0).messages
    assert (dead.properties[DELIVERY_ATTEMPTS], dead.properties[FAILURE_REASON]) == (
        "4",
        "attempt 4",
    )


def test_an_exact_retry_survives_sigkill_and_comes_once(start_broker: StartBroker) -> None:
    """Killed between the failure and its time: neither lost, nor twice, nor early; a buried one is
    dead."""
    broker = start_broker()
    given: list[tuple[bytes, int]] = []
    came_at_ms: list[int] = []

    def listen(message: StoredMessage) -> None:
        given.append((message.body, message.reconsume_times))
        if message.body == b"buried":
            raise RetryLater("1h", "not yet")
        if message.reconsume_times == 0:
            raise RetryLater(3, "busy")
        came_at_ms.append(message.store_timestamp_ms)

    with Producer(broker.endpoint, "makers") as producer:
        producer.send(Message("orders", b"later"))
        buried = producer.send(Message("orders", b"buried"))
    with PushConsumer(broker.endpoint, "shop", listen) as consumer:
        consumer.subscribe("orders")
        consumer.start()
        with AdminClient(broker.endpoint) as admin:
            eventually(lambda: len(list(admin.schedule.pending())) == 2, "both wait")
            due_ms = min(each.deliver_at_ms for each in admin.schedule.pending())
            (outcome,) = admin.schedule.bury("shop", buried.message_id, reason="refunded")
            assert outcome.outcome is ChangeOutcome.DONE
        broker.kill()
        broker.start()
        eventually(lambda: bool(came_at_ms), "the retry came")
    assert came_at_ms[0] >= due_ms
    assert sorted(given) == [(b"buried", 0), (b"later", 0), (b"later", 1)]
    with AdminClient(broker.endpoint) as admin:
        (dead,) = admin.dead_letters.dead("shop")
        assert (dead.reason, dead.delivery_attempts) == ("refunded", 1)
        assert list(admin.schedule.pending()) == []


def test_a_senders_limit_is_kept_through_schedule_and_retries(start_broker: StartBroker) -> None:
    """One dies at its first failure, one after a single retry, whatever the consumer says."""
    broker = start_broker(messageDelayLevel="1s 1h")
    given: list[tuple[bytes, int]] = []

    def listen(message: StoredMessage) -> ConsumeResult:
        given.append((message.body, message.reconsume_times))
        return reconsume_later(reason="no")

    with AdminClient(broker.endpoint) as admin, Producer(broker.endpoint, "makers") as producer:
        admin.set_group("shop", retry_policy="1")
        producer.send(Message("orders", b"once", max_reconsume_times=0, delay_level=1))
        producer.send(Message("orders", b"twice", max_reconsume_times=1))
        with PushConsumer(
            broker.endpoint, "shop", listen, max_reconsume_times=9, consume_threads=1
        ) as consumer:
            consumer.subscribe("orders")
            consumer.start()
            eventually(lambda: admin.broker_status().dead == 2, "both died")
    assert sorted(given) == [(b"once", 0), (b"twice", 0), (b"twice", 1)]


def test_a_group_that_may_not_consume_waits_until_it_may(start_broker: StartBroker) -> None:
    """Said on the command line, while its consumer runs; nothing is lost in between."""
    broker = start_broker()
    given: list[bytes] = []

    def listen(message: StoredMessage) -> ConsumeResult:
        given.append(message.body)
        return CONSUME_SUCCESS

    def group_set(*options: str) -> str:
        done = run_command("group", "set", "shop", *options, "--endpoint", broker.endpoint)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with Producer(broker.endpoint, "makers") as producer:
        producer.send(Message("orders", b"first"))
        with PushConsumer(broker.endpoint, "shop", listen) as consumer:
            consumer.subscribe("orders")
            consumer.start()
            eventually(lambda: given == [b"first"], "the first came")
            said = [line.split() for line in group_set("--no-consume").splitlines()]
            assert ["can", "consume", "yes", "no", "changed"] in said
            producer.send_batch([Message("orders", b"second")] * 8)
            with AdminClient(broker.endpoint) as admin:
                lag = sum([each.lag for each in admin.group("shop").progress])
            assert given == [b"first"]
            assert lag >= 8
            group_set("--consume", "--retry-queues", "2")
            eventually(lambda: len(given) == 9, "the rest came")
            retries = Queue("%RETRY%shop", 1)
            eventually(lambda: retries in consumer.queues, "the new retry queue is read")
