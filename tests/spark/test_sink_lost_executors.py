"""The sink on two executors: one is killed, and a slow task gets a second attempt."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from rmqlite.client import AdminClient, PullConsumer
from rmqlite.testing import BrokerProcess
from tests.spark.lost_executors import PARTITIONS, ROWS
from tests.spark.standalone import cluster
from tests.support.broker_processes import OF_ANY_DISK

ROOT = Path(__file__).resolve().parents[2]


def bodies(endpoint: str, topic: str) -> Counter[bytes]:
    """All messages of a topic."""
    with AdminClient(endpoint) as admin, PullConsumer(endpoint, "readers") as consumer:
        found = Counter[bytes]()
        for each in admin.ranges(topic):
            at = each.min_offset
            while at < each.max_offset:
                pulled = consumer.pull(topic, each.queue.queue_id, at)
                found.update(message.body.split()[0] for message in pulled.messages)
                at = pulled.next_offset
    return found


def test_every_row_is_sent_once_whatever_becomes_of_its_executor(tmp_path: Path) -> None:
    """SIGKILL in the middle of the write, and two attempts of a task at once: the ids, made of
    partition and row, are the same, so the broker knows what it has.
    """
    marks = tmp_path / "marks"
    marks.mkdir()
    with BrokerProcess(tmp_path / "broker", OF_ANY_DISK) as broker:
        with AdminClient(broker.endpoint) as admin:
            admin.create_topic("lost")
        driver = [sys.executable, "-m", "tests.spark.lost_executors", broker.endpoint, str(marks)]
        with cluster(tmp_path) as master:
            done = subprocess.run([*driver, master], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3_000:]
        assert {each.name for each in marks.iterdir()} == {"killed", "speculated"}
        with AdminClient(broker.endpoint) as admin:
            job = admin.job("lost")
        sent = bodies(broker.endpoint, "lost")
    assert job.accepted == PARTITIONS * ROWS
    assert job.duplicates > ROWS // 5, "few rows were sent again: this shows little"
    assert sent == Counter({str(number).encode(): 1 for number in range(PARTITIONS * ROWS)})
