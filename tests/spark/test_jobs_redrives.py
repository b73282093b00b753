"""What became of redriven messages, counted by Spark: the same as the broker itself counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqlite import client
from rmqlite.client import AdminClient
from rmqlite.features.operating.requests import GroupStatus, QueueProgress
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.kernel.requests.groups import GroupInfo, OffsetsCommit
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import GroupUnknown
from rmqlite.kernel.words.message import REDRIVEN_BY, Message, StoredMessage
from rmqlite.kernel.words.names import retry_topic
from rmqlite.spark.jobs import redrives
from rmqlite.spark.jobs.committed import committed
from rmqlite.spark.reading import read_log
from rmqlite.spark.tables import collected
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import save_group, send_back
from tests.support.pending import deliver_all
from tests.support.redrives import GROUP, bury, bury_many, redrive
from tests.support.steps import done

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETRY = retry_topic(GROUP)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    """One with a group that fails messages."""
    broker = BrokerUnderTest(tmp_path / "store")
    save_group(broker, group=GROUP)
    yield broker
    broker.close()


def test_a_group_that_is_deleted_meanwhile_has_no_offsets(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was in the list of groups, and is no more when the job asks for its progress."""
    read = QueueProgress(Queue("orders", 2), 0, 9, 7, "")

    class Admin(AdminClient):
        def list_groups(self) -> tuple[GroupInfo, ...]:
            return GroupInfo("gone"), GroupInfo("stays")

        def group(self, group: str) -> GroupStatus:
            if group == "gone":
                raise GroupUnknown(group)
            return GroupStatus(GroupInfo(group), (), (read,))

    monkeypatch.setattr(client, "AdminClient", Admin)
    rows = committed(spark, endpoint="127.0.0.1:1").collect()
    assert [tuple(row) for row in rows] == [("stays", "orders", 2, 7)]


def counted(spark: SparkSession, broker: BrokerUnderTest, job_id: str = "") -> list[dict[str, Any]]:
    """The summary of the redrives in a broker's files; job_id: only of this one."""
    broker.sync()
    path = str(broker.config.store_path)
    log = read_log(spark, path=path, columns=redrives.COLUMNS)
    found = redrives.redriven(log, committed(spark, path=path))
    rows = collected(redrives.summary(found))
    return [row for row in rows if not job_id or row["redriven_by"] == job_id]


def check_same(spark: SparkSession, broker: BrokerUnderTest, job_id: str) -> tuple[int, int, int]:
    """Consumed, waiting, dead: Spark's figures, which are the broker's."""
    (row,) = counted(spark, broker, job_id=job_id)
    own = done(broker.broker[Redrive].results.of(job_id))
    found = row["consumed"], row["waiting"], row["dead"]
    assert found == (own.consumed, own.waiting, own.dead)
    assert row["sent"] == broker.broker[Redrive].get(job_id).sent == sum(found)
    return found


def commit(broker: BrokerUnderTest, offset: int, topic: str = RETRY, queue_id: int = 0) -> None:
    broker.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(topic, queue_id): offset}))
    broker.persist()


def redriven(broker: BrokerUnderTest, topic: str = RETRY) -> list[StoredMessage]:
    """The redriven messages in a topic."""
    queues = [broker.messages(topic, n) for n in range(4 if topic != RETRY else 1)]
    return [each for queue in queues for each in queue if REDRIVEN_BY in each.properties]


def test_the_figures_are_those_of_the_broker(spark: SparkSession, broker: BrokerUnderTest) -> None:
    """Failed and not committed, delivered again, consumed, dead again."""
    bury_many(broker, 6)
    job_id = redrive(broker).job_id
    first, second = redriven(broker)[:2]
    send_back(broker, first, group=GROUP)
    send_back(broker, second, group=GROUP, delay_level=-1)
    commit(broker, 4)
    assert check_same(spark, broker, job_id) == (2, 3, 1)
    deliver_all(broker)
    commit(broker, 7)
    assert check_same(spark, broker, job_id) == (5, 0, 1)


def test_a_message_that_is_dead_again_stays_so(
    spark: SparkSession, broker: BrokerUnderTest
) -> None:
    """Its letter may be redriven by another job: that one's message is another."""
    bury_many(broker, 2)
    first = redrive(broker).job_id
    for message in redriven(broker):
        send_back(broker, message, group=GROUP, delay_level=-1)
    commit(broker, 2)
    broker.clock.forward(60_000)
    second = redrive(broker).job_id
    assert check_same(spark, broker, first) == (0, 0, 2)
    assert check_same(spark, broker, second) == (0, 2, 0)
    rows = counted(spark, broker)
    assert [(row["redriven_by"], row["top_kind"]) for row in rows] == [
        (second, None),
        (first, "(no reason)"),
    ]


def test_only_the_group_that_failed_counts(spark: SparkSession, broker: BrokerUnderTest) -> None:
    """Another group may read, and fail, the same message; a program may copy its properties."""
    bury(broker, Message("orders", b"a"))
    commit(broker, 0, "orders")
    job_id = redrive(broker, to_topic="orders").job_id
    (again,) = redriven(broker, "orders")
    commit(broker, 0, "orders", again.queue_id)
    send_back(broker, again, group="others")
    send_back(broker, again, group="others", delay_level=-1)
    copy = {name: text for name, text in again.properties.items() if name.startswith("REDRIVEN")}
    broker.send(Message("orders", b"copy", properties=copy))
    assert check_same(spark, broker, job_id) == (0, 1, 0)
    commit(broker, again.queue_offset + 1, "orders", again.queue_id)
    assert check_same(spark, broker, job_id) == (1, 0, 0)


def test_what_waits_in_the_schedule_waits_and_what_nobody_reads_is_elsewhere(
    spark: SparkSession, broker: BrokerUnderTest
) -> None:
    """A topic that the group has never read says nothing about the group."""
    bury_many(broker, 1)
    delayed = redrive(broker, delay_level=3).job_id
    assert check_same(spark, broker, delayed) == (0, 1, 0)
    bury_many(broker, 1)
    away = redrive(broker, to_topic="elsewhere").job_id
    (row,) = counted(spark, broker, job_id=away)
    assert (row["sent"], row["elsewhere"], row["success_rate"]) == (1, 1, None)
