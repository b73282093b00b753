"""Bulk scheduling into a broker that is killed again and again: each message once, counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from rmqlite.client import AdminClient, BulkMessage, BulkScheduler, BulkStatus, PullConsumer
from rmqlite.features.finding.requests import MessageQuery
from rmqlite.spark.sink.rows import SinkOptions
from rmqlite.spark.sink.sink import send
from rmqlite.store_tools.check import check
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually

MESSAGES = 12_000
KILLS, KILLS_IN_A_LONG_RUN = 2, 4


def kill(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def delivered(broker: BrokerProcess, topic: str) -> Counter[bytes]:
    """Everything in a topic's queues."""
    found: Counter[bytes] = Counter()
    with AdminClient(broker.endpoint) as admin, PullConsumer(broker.endpoint, "readers") as pull:
        for each in admin.ranges(topic):
            offset = each.min_offset
            while offset < each.max_offset:
                result = pull.pull(topic, each.queue.queue_id, offset, max_messages=1_000)
                found.update([message.body for message in result.messages])
                offset = result.next_offset
    return found


@pytest.fixture
def kills(is_long: bool) -> int:
    return KILLS_IN_A_LONG_RUN if is_long else KILLS


def test_a_sender_outlives_its_broker(start_broker: StartBroker, kills: int) -> None:
    """Calls that were under way are made again; what they had stored already is a duplicate."""
    broker = start_broker()

    def messages() -> Iterator[BulkMessage]:
        for n in range(MESSAGES):
            if n % (MESSAGES // kills) == MESSAGES // kills - 1:
                kill(broker)
            yield BulkMessage("orders", str(n).encode(), f"order-{n}", delay="1s" if n % 2 else "")

    with BulkScheduler(broker.endpoint, job_id="import", batch_messages=50) as sender:
        outcomes = list(sender.schedule(messages()))
        assert [each.message_id for each in outcomes] == [f"order-{n}" for n in range(MESSAGES)]
        assert not [each for each in outcomes if each.status is BulkStatus.REFUSED]
        progress = sender.progress
    kill(broker)
    with AdminClient(broker.endpoint) as admin:
        job = admin.job("import")
        assert job.accepted == MESSAGES
        assert job.duplicates >= progress.duplicates
        (found,) = admin.find_messages(MessageQuery("orders", "order-0", True)).messages
        assert found.message.body == b"0"
    with BulkScheduler(broker.endpoint, job_id="import") as sender:
        again = sender.schedule_all(
            BulkMessage("orders", b"again", f"order-{n}") for n in range(MESSAGES)
        )
        assert again.duplicates == MESSAGES
    assert_all_delivered(broker)


def test_a_task_of_the_sink_outlives_its_broker(start_broker: StartBroker, kills: int) -> None:
    """And a task that is tried again after it, from its first row."""
    broker = start_broker()

    def batches(*, is_killed: bool) -> Iterator[pa.RecordBatch]:
        for start in range(0, MESSAGES, 1_000):
            if is_killed and start and start % (MESSAGES // kills) == 0:
                kill(broker)
            bodies = [str(n).encode() for n in range(start, start + 1_000)]
            yield pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})

    options = SinkOptions(endpoint=broker.endpoint, topic="orders", delay_level=1, batch_size=100)
    for is_killed in (True, False):
        done = send(batches(is_killed=is_killed), options, job_id="sink", id_prefix="sink:0")
        assert done.messages == MESSAGES
    with AdminClient(broker.endpoint) as admin:
        assert admin.job("sink").accepted == MESSAGES
    assert_all_delivered(broker)


def assert_all_delivered(broker: BrokerProcess) -> None:
    """Each message once, and the store is sound."""
    with AdminClient(broker.endpoint) as admin:
        eventually(lambda: not admin.schedule.count_pending(), "everything is delivered")
    found = delivered(broker, "orders")
    assert found == Counter([str(n).encode() for n in range(MESSAGES)])
    broker.stop()
    assert list(check(broker.store)) == []
