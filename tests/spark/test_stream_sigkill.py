"""A stream whose driver, JVM and workers are killed again and again: each record exactly once.

The seed of a run is in every failure; RMQLITE_SEED sets another.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqlite.client import Message, Producer
from rmqlite.client.raw import RawReader
from rmqlite.kernel.words.errors import Unavailable
from rmqlite.spark.data_source_api import HAS_READ_LIMITS
from rmqlite.spark.reading import read_log
from rmqlite.spark.streaming import read_stream
from rmqlite.testing import BrokerProcess
from tests.spark.stream_driver import COLUMNS, beginning
from tests.support.broker_processes import free_port
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = int(os.environ.get("RMQLITE_SEED", "20261121"))
KILLS = 6
"""Each costs a start of Spark."""
SPAN_S = 1.5
"""A batch takes a fifth of it, so that a kill hits any part of any of the next few."""
TOPICS = ("orders", "orders-late")
LATE_FROM = 1_500
"""Messages before the second topic."""
ROOT = Path(__file__).resolve().parents[2]


class Sending(threading.Thread):
    """Sends small batches to queues in turn until told to stop; a topic more after a while."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._stopped = threading.Event()
        self.sent = 0

    def run(self) -> None:
        with Producer(self._endpoint, "senders") as producer:
            while not self._stopped.wait(0.05):
                topic = TOPICS[self.sent > LATE_FROM and self.sent % 3 == 0]
                keys = [f"m{self.sent + n}" for n in range(25)]
                self.sent += len(keys)
                # What is not answered may be there all the same: nobody counts on it.
                with suppress(Unavailable):
                    producer.send_batch([Message(topic, b"x" * 50, keys=key) for key in keys])

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class Driver:
    """The driver in a session of its own: it, its JVM and its Python workers."""

    def __init__(self, log: Path, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.spark.stream_driver", *map(str, arguments)]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> int:
        """SIGKILL to every process; how many there were."""
        pids = self._pids()
        for pid in pids:
            # Spark ends a worker that it does not need.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        return len(pids)

    def _pids(self) -> list[int]:
        """All of the session; Spark's workers are in process groups of their own."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == self._process.pid:
                found.append(int(folder.name))
        return found


def batches(checkpoint: Path) -> int:
    """How many batches were begun, and how many done, added up."""
    return len([each for each in checkpoint.glob("[oc]*s/*") if each.name.isdigit()])


def rows_of(table: DataFrame) -> list[tuple[Any, ...]]:
    columns = table.toArrow().select(COLUMNS).to_pydict()
    return list(zip(*columns.values(), strict=True))


@pytest.mark.long
def test_each_record_is_in_the_sink_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    """Killed in the first batch from "latest", read from the broker's files, and at any moment of
    later ones, read from the broker and from its files in turn.

    The broker is killed, too, and comes back: the stream does not notice.  Topics and queues
    that come meanwhile are read from their beginning.
    """
    randomly = random.Random(SEED)
    checkpoint, sink, log = tmp_path / "checkpoint", tmp_path / "sink", tmp_path / "driver.log"
    keys = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false"}
    keys["grpcPort"] = str(free_port())
    with BrokerProcess(tmp_path / "broker", keys) as broker:
        sending = Sending(broker.endpoint)
        sending.start()
        eventually(lambda: sending.sent > 500, "there is something before the stream begins")
        places = [("path", broker.store), ("endpoint", broker.endpoint)]
        killed: list[int] = []
        drivers: list[Driver] = []
        try:
            for number in range(KILLS):
                drivers.append(driver := Driver(log, *places[number % 2], checkpoint, sink))
                # The first one as soon as its first batch has begun.
                before = batches(checkpoint)
                eventually(
                    lambda driver=driver, before=before: (  # type: ignore[misc]
                        batches(checkpoint) > before or not driver.is_running
                    ),
                    f"seed {SEED}: run {number} goes on, see {log}",
                )
                assert driver.is_running, log.read_text(errors="replace")[-3_000:]
                threading.Event().wait(randomly.random() * SPAN_S if number else 0)
                if number:
                    broker.kill()
                    broker.start()
                    assert driver.is_running, log.read_text(errors="replace")[-3_000:]
                killed.append(driver.kill())
            eventually(lambda: sending.sent > 2 * LATE_FROM, "there is a topic more")
        finally:
            sending.stop()
            for each in drivers:
                each.kill()
        # Driver and JVM at least, each time.
        assert min(killed) >= 2
        with RawReader(broker.endpoint) as reader:
            ends = {
                (each.queue.topic, each.queue.queue_id): each.max_offset
                for each in reader.snapshot(TOPICS).queues
            }
        stream = read_stream(
            spark,
            endpoint=broker.endpoint,
            checkpoint=str(checkpoint),
            columns=COLUMNS,
            topicPattern="orders*",
        )
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        writer = writer.option("path", str(sink)).trigger(availableNow=True)
        # Before 4.2 a run that repeats a batch ends with it.
        for _ in range(1 if HAS_READ_LIMITS else 2):
            assert writer.start().awaitTermination(600)
    begins = beginning(checkpoint)
    wanted_offsets = {
        (topic, queue_id, offset)
        for (topic, queue_id), end in ends.items()
        for offset in range(begins.get(topic, {}).get(str(queue_id), 0), end)
    }
    assert any(begin > 0 for queues in begins.values() for begin in queues.values())
    assert any(topic == TOPICS[1] for topic, _, _ in wanted_offsets)
    read = rows_of(spark.read.parquet(str(sink)))
    assert {row[:3] for row in read} == wanted_offsets, f"seed {SEED}"
    assert len(read) == len(wanted_offsets), f"seed {SEED}"
    # What was read is what is there: nothing else has come to have an offset since.
    there = read_log(spark, path=str(broker.store), columns=COLUMNS, topicPattern="orders*")
    assert set(read) <= set(rows_of(there)), f"seed {SEED}"
