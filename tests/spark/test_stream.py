"""Streams in a real session, from a real broker and from its files while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.kernel.words.errors import Refused
from rmqlite.spark.data_source_api import HAS_READ_LIMITS
from rmqlite.spark.streaming import read_stream
from rmqlite.testing import BrokerProcess
from tests.spark.stream_driver import beginning, limit
from tests.spark.stream_sinks import Rows, Sink, run
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("topic", "queue_id", "queue_offset")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    keys = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), keys) as broker:
        yield broker


def send(broker: BrokerProcess, topic: str, count: int) -> None:
    """To the topic's queues in turn."""
    with Producer(broker.endpoint, "senders") as producer:
        for _ in range(count):
            producer.send(Message(topic, b"x"))


def numbered(topic: str, *counts: int) -> Rows:
    """The first so many of each queue."""
    return [(topic, queue_id, n) for queue_id, count in enumerate(counts) for n in range(count)]


@pytest.mark.parametrize("kind", ["endpoint", pytest.param("path", marks=pytest.mark.long)])
def test_a_stream_reads_batch_after_batch_and_goes_on_where_it_was(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, kind: str
) -> None:
    """A batch that failed is read again as it was, though more has come, and a queue more."""
    topic = f"orders-{kind}"
    send(broker, topic, 13)
    options: dict[str, Any] = {
        kind: str(broker.store) if kind == "path" else broker.endpoint,
        "topicPattern": f"{topic}*",
        "startingOffsets": "earliest",
        "columns": ",".join(COLUMNS),
    }
    stream = spark.readStream.format("rmqlite").options(**options)
    sink = Sink()
    assert (
        run(
            spark.readStream.format("rmqlite").options(**options, **limit(6)).load(),
            tmp_path,
            sink,
        )
        is None
    )
    assert [len(rows) for _, rows in sink.batches] == ([6, 6, 1] if HAS_READ_LIMITS else [13])
    begun = len(sink.batches)
    assert len(set(sink.rows())) == 13
    send(broker, topic, 7)
    sink.fails = True
    assert "the sink is full" in str(run(stream.load(), tmp_path, sink))
    send(broker, topic, 3)
    send(broker, f"{topic}-new", 5)
    sink.fails = False
    assert run(stream.load(), tmp_path, sink) is None
    (_, failed), (number, again), (_, rest) = sink.batches[begun:]
    assert (number, len(again), again) == (begun, 7, failed)
    assert (len(rest), len({topic for topic, _, _ in rest})) == (8, 2)
    assert len(sink.rows()) - len(failed) == len(set(sink.rows())) == 28
    assert run(stream.load(), tmp_path, sink) is None
    assert len(sink.batches) == begun + 3


def test_what_came_after_the_beginning_is_read_whatever_becomes_of_the_first_batch(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """From "latest", settled when the stream was made: not at its start, not at its restart.

    Its group shows how far it is as soon as a batch is done, also the last one, which Spark does
    not tell the source.
    """
    send(broker, "first", 8)

    def made() -> DataFrame:
        return read_stream(
            spark,
            endpoint=broker.endpoint,
            checkpoint=str(tmp_path),
            columns=COLUMNS,
            topic="first",
            group="pipeline",
        )

    def lag() -> int | None:
        with AdminClient(broker.endpoint) as admin:
            try:
                progress = admin.group("pipeline").progress
            except Refused:
                return None
        return sum(each.lag for each in progress if each.queue.topic == "first")

    stream, sink = made(), Sink()
    assert beginning(tmp_path) == {"first": {"0": 2, "1": 2, "2": 2, "3": 2}}
    send(broker, "first", 4)
    sink.fails = True
    assert run(stream, tmp_path, sink) is not None
    send(broker, "first", 4)
    sink.fails = False
    assert run(made(), tmp_path, sink) is None
    late = [row for row in numbered("first", 4, 4, 4, 4) if row[2] >= 2]
    assert sink.batches[0][1] == sink.batches[1][1]
    assert sorted(row for _, rows in sink.batches[1:] for row in rows) == late
    eventually(lambda: lag() == 0, "the group has no lag")
    send(broker, "first", 3)
    assert lag() == 3


@pytest.mark.long
def test_expired_records_end_a_stream_with_one_clear_line(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Topic, queue, what was asked for and what there is, ours and last in Python's trace."""
    send(broker, "short", 4)
    stream = spark.readStream.format("rmqlite").option("endpoint", broker.endpoint)
    stream = stream.option("startingOffsets", '{"short": {"0": 23}}').option("topic", "short")
    error = str(run(stream.load(), tmp_path, Sink()))
    lines = [line for line in error.splitlines() if line.startswith("rmqlite.kernel.words.errors.")]
    assert len(lines) == 1
    told = "offset must be at most 1, not '23': queue 0 of topic 'short' ends there"
    assert lines[0].startswith(f"rmqlite.kernel.words.errors.InvalidValue: {told}")
