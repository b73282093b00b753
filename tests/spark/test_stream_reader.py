"""The stream's reader without a session: what Spark calls, on a real broker and its files."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.kernel.words.errors import BrokerUnreachable, InvalidValue, OffsetGone
from rmqlite.kernel.words.names import TABLES_TOPIC
from rmqlite.spark.arrow.columns import columns_named
from rmqlite.spark.data_source_api import HAS_READ_LIMITS
from rmqlite.spark.options import parse_options
from rmqlite.spark.source import RmqliteDataSource, spark_schema
from rmqlite.spark.stream.plan import from_spark
from rmqlite.spark.stream.stream import RmqliteStreamReader, check_reader
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import free_port

SEGMENT = 1 << 20
COLUMNS = ("topic", "queue_id", "queue_offset")
ALL: Any = object()
FOUR: Any = SimpleNamespace(max_rows=4)
"""Limits, as Spark passes them from 4.2 on."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    keys = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false"}
    keys |= {"mappedFileSizeCommitLog": str(SEGMENT), "maxMessageSize": str(SEGMENT // 2)}
    keys["grpcPort"] = str(free_port())
    with BrokerProcess(tmp_path / "broker", keys) as broker:
        yield broker


def send(broker: BrokerProcess, *topics: str, size: int = 10) -> None:
    with Producer(broker.endpoint, "senders") as producer:
        for topic in topics:
            producer.send(Message(topic, b"x" * size), queue_id=0)


def place_of(broker: BrokerProcess, kind: str) -> str:
    return str(broker.store) if kind == "path" else broker.endpoint


def reader_of(broker: BrokerProcess, kind: str, **options: str) -> RmqliteStreamReader:
    texts = {kind: place_of(broker, kind), "startingOffsets": "earliest", **options}
    return RmqliteStreamReader(parse_options(texts), COLUMNS)


def read(reader: RmqliteStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    """As executors do it: with a copy of the reader, which has planned nothing."""
    copied = pickle.loads(pickle.dumps(RmqliteStreamReader(reader._options, COLUMNS)))
    return [
        tuple(row.values())
        for partition in reader.partitions(start, end)
        for batch in copied.read(pickle.loads(pickle.dumps(partition)))
        for row in batch.to_pylist()
        if row["topic"] != TABLES_TOPIC
    ]


def ends(offsets: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Of the queues of users: the broker's own grow with the topics that they make."""
    return {at: end for at, end in from_spark(offsets).items() if at[0] != TABLES_TOPIC}


@pytest.mark.parametrize("kind", ["endpoint", pytest.param("path", marks=pytest.mark.long)])
def test_batches_follow_each_other(broker: BrokerProcess, kind: str) -> None:
    """From the beginning, limited, to the end; each offset survives Spark's JSON."""
    send(broker, *["a"] * 7, "b", "b")
    reader = reader_of(broker, kind, topics="a,b")
    at = json.loads(json.dumps(reader.initialOffset()))
    rows = []
    while (end := reader.latestOffset(at, FOUR)) != at:
        rows += read(reader, at, end)
        reader.commit(end)
        at = json.loads(json.dumps(end))
    assert sorted(rows) == [("a", 0, n) for n in range(7)] + [("b", 0, n) for n in range(2)]
    assert ends(at) == {("a", 0): 7, ("b", 0): 2}
    assert reader.reportLatestOffset() == {"a": {"0": 7}, "b": {"0": 2}}
    send(broker, "c", "a")
    end = reader.latestOffset(at, ALL)
    assert read(reader, at, end) == [("a", 0, 7)]
    reader.stop()


def test_a_spark_that_says_nothing_of_the_batch_gets_all_that_is_there(
    broker: BrokerProcess,
) -> None:
    """Before 4.2 it only asks where the queues end: also if one of them is gone."""
    send(broker, "a", "b", "a")
    reader = reader_of(broker, "path")
    end = reader.latestOffset()
    assert ends(end) == {("a", 0): 2, ("b", 0): 1}
    assert len(read(reader, reader.initialOffset(), end)) == 3
    with pytest.raises(InvalidValue, match="offset must be at most 0, not '9': queue 0 of topic"):
        reader.partitions({"gone": {"0": 9}}, end)
    options = parse_options({"path": "/x", "maxOffsetsPerTrigger": "4"})
    if HAS_READ_LIMITS:
        limit: Any = RmqliteStreamReader(options, COLUMNS).getDefaultReadLimit()
        assert limit.max_rows == 4
    else:
        with pytest.raises(InvalidValue, match=r"left out before Spark 4\.2"):
            check_reader(options)


def test_the_same_offsets_are_those_of_the_broker_and_of_its_files(broker: BrokerProcess) -> None:
    """So a stream may go on with the other one; also after the broker was killed."""
    send(broker, "a", "b", "a")
    at = reader_of(broker, "endpoint").latestOffset({}, ALL)
    assert reader_of(broker, "path").latestOffset({}, ALL) == at
    broker.kill()
    assert reader_of(broker, "path").latestOffset(at, ALL) == at
    broker.start()
    send(broker, "a")
    for kind in ("endpoint", "path"):
        reader = reader_of(broker, kind)
        assert read(reader, at, reader.latestOffset(at, ALL)) == [("a", 0, 2)]


def test_a_broker_that_is_killed_between_two_batches_is_found_again(broker: BrokerProcess) -> None:
    """The reader lives as long as the query, and its connection with it."""
    send(broker, "a", "a")
    reader = reader_of(broker, "endpoint")
    at = reader.latestOffset({}, ALL)
    broker.kill()
    broker.start()
    send(broker, "a")
    assert read(reader, at, reader.latestOffset(at, ALL)) == [("a", 0, 2)]
    reader.stop()


def test_a_stream_that_goes_on_waits_for_its_broker_and_a_new_one_does_not(
    broker: BrokerProcess,
) -> None:
    """Spark starts again, and the broker is just away; but a new stream's endpoint may be wrong."""
    send(broker, "a", "a")
    at = reader_of(broker, "endpoint").latestOffset({}, ALL)
    broker.kill()
    with pytest.raises(BrokerUnreachable):
        reader_of(broker, "endpoint").initialOffset()
    reader = reader_of(broker, "endpoint")
    with ThreadPoolExecutor() as pool:
        found = pool.submit(reader.latestOffset, at, ALL)
        broker.start()
        assert ends(found.result()) == ends(at)
    reader.stop()


@pytest.mark.parametrize("kind", ["endpoint", pytest.param("path", marks=pytest.mark.long)])
def test_what_retention_took_is_told_or_passed_over(broker: BrokerProcess, kind: str) -> None:
    """A stream that was away for too long."""
    send(broker, *["a"] * 8, size=SEGMENT // 3)
    broker.stop()
    # What retention does, without waiting for its hour.
    min((broker.store / "commitlog").iterdir()).unlink()
    broker.start()
    at = {"a": {"0": 1}}
    with pytest.raises(OffsetGone, match=r"queue 0 of topic 'a'.*offset 1 is gone.* kept is 2"):
        reader_of(broker, kind).latestOffset(at, ALL)
    reader = reader_of(broker, kind, failOnDataLoss="false")
    end = reader.latestOffset(at, ALL)
    assert read(reader, at, end) == [("a", 0, n) for n in range(2, 8)]


@pytest.mark.parametrize("kind", [pytest.param("endpoint", marks=pytest.mark.long), "path"])
def test_a_stream_begins_at_a_time(broker: BrokerProcess, kind: str) -> None:
    """The broker's clock; a queue without a later record begins at its end."""
    send(broker, "a", "b", "a")
    with AdminClient(broker.endpoint) as admin:
        last_ms = admin.ranges("a")[0].newest_timestamp_ms
    send(broker, "b")
    told = {"startingTimestamp": str(last_ms + 1), "topics": "a,b"}
    texts = {kind: place_of(broker, kind), **told}
    begin = RmqliteStreamReader(parse_options(texts), COLUMNS).initialOffset()
    assert begin["a"] == {"0": 2}
    assert begin["b"]["0"] in (1, 2)


def test_a_stream_says_at_once_what_is_wrong_with_its_options(tmp_path: Path) -> None:
    """When it is made, not with its first batch."""
    schema = spark_schema(columns_named(",".join(COLUMNS)))
    for options, said in (
        ({"path": str(tmp_path), "group": "g"}, "group"),
        ({"endpoint": "127.0.0.1:1", "endingOffsets": "latest"}, "endingOffsets"),
        ({"endpoint": "127.0.0.1:1", "maxOffsetPerTrigger": "1"}, "maxOffsetsPerTrigger"),
    ):
        with pytest.raises(InvalidValue, match=said):
            RmqliteDataSource(options).streamReader(schema)
