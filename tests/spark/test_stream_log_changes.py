"""Streams whose log changes under them: a broker's retention deletes, `store repair` cuts.

Real brokers, and what a stream's reader says of an endpoint.  With --long also of a path, and both
as streams of a real session that go on from their checkpoint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqlite.client import Message, Producer
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.spark.data_source_api import HAS_READ_LIMITS
from rmqlite.spark.options import parse_options
from rmqlite.spark.stream.stream import RmqliteStreamReader
from rmqlite.spark.streaming import read_stream
from rmqlite.testing import BrokerProcess
from tests.spark.stream_sinks import Sink, run
from tests.support.broker_processes import OF_ANY_DISK, free_port
from tests.support.eventually import eventually
from tests.support.looking import run_store
from tests.support.plain_decoder import every
from tests.support.repairs import overwrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENT = 1 << 20
COLUMNS = ("keys", "queue_id", "queue_offset")
ALL: Any = object()
"""No limit, as Spark passes it."""
EVERY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Its retention looks ten times a second for files that were last written an hour ago."""
    keys = OF_ANY_DISK | {"grpcPort": str(free_port()), "deleteWhen": EVERY_HOUR}
    keys |= {"mappedFileSizeCommitLog": str(SEGMENT), "maxMessageSize": str(SEGMENT // 2)}
    keys |= {"fileReservedTime": "1", "cleanResourceInterval": "100"}
    with BrokerProcess(tmp_path / "broker", keys) as broker:
        yield broker


def send(broker: BrokerProcess, *keys: str, size: int = 10) -> None:
    with Producer(broker.endpoint, "senders") as producer:
        for key in keys:
            producer.send(Message("orders", b"x" * size, keys=key), queue_id=0)


def age(log_file: Path) -> None:
    """As if it had last been written before the hour."""
    hours_ago = wall_ms() / 1000 - 7_200
    os.utime(log_file, (hours_ago, hours_ago))


class Readers:
    """Readers of a broker as Spark calls them; each goes on where the one before it was."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._at: dict[str, Any] = {}
        self._where = {"endpoint": broker.endpoint}

    def read(self, *, fails: bool = True) -> dict[str, list[str]]:
        """What is there now, by kind: the keys, or the line of an error."""
        given = {"topic": "orders", "startingOffsets": "earliest", "failOnDataLoss": f"{fails}"}
        reader = RmqliteStreamReader(parse_options(given | self._where), COLUMNS)
        at = self._at or reader.initialOffset()
        try:
            end = reader.latestOffset(at, ALL)
            batches = [batch for part in reader.partitions(at, end) for batch in reader.read(part)]
        except RmqliteError as error:
            return {"endpoint": [f"{type(error).__module__}.{type(error).__name__}: {error}"]}
        finally:
            reader.stop()
        self._at = json.loads(json.dumps(end))
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        return {"endpoint": [str(row[0]) for row in sorted(rows, key=at_offset)]}

    def read_all(self, *keys: str, fails: bool = True) -> bool:
        """Does each of them read these keys?"""
        return all(found == [*keys] for found in self.read(fails=fails).values())


class Streams(Readers):
    """A stream of each kind, with its checkpoint and its sink."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, folder: Path) -> None:
        super().__init__(broker)
        self._spark, self._broker, self._folder = spark, broker, folder
        self._sinks = {kind: Sink() for kind in ("endpoint", "path")}

    def read(self, *, fails: bool = True) -> dict[str, list[str]]:
        """What is there now, by kind: the keys, or the last line of Python's error."""
        found = {}
        for kind, sink in self._sinks.items():
            where = {kind: str(self._broker.store) if kind == "path" else self._broker.endpoint}
            stream = read_stream(
                self._spark,
                checkpoint=str(self._folder / kind),
                columns=COLUMNS,
                topic="orders",
                startingOffsets="earliest",
                failOnDataLoss=fails,
                **where,
            )
            sink.batches.clear()
            error = run(stream, self._folder / kind, sink)
            lines = [
                line
                for line in str(error).splitlines()
                if line.startswith("rmqlite.kernel.words.errors.")
            ]
            rows = [str(row[0]) for _, rows in sink.batches for row in sorted(rows, key=at_offset)]
            found[kind] = lines[-1:] if error else rows
        return found


@pytest.fixture
def streams(spark: SparkSession, broker: BrokerProcess, tmp_path: Path, is_long: bool) -> Readers:
    return Streams(spark, broker, tmp_path) if is_long else Readers(broker)


def at_offset(row: tuple[Any, ...]) -> int:
    return int(row[2])


@pytest.mark.long
def test_records_that_retention_deletes_unread_are_told(
    broker: BrokerProcess, streams: Readers
) -> None:
    """The broker itself deletes them; they were never skipped in silence, nor is anything else."""
    send(broker, "m0")
    assert streams.read_all("m0")
    send(broker, *(f"m{n}" for n in range(1, 9)), size=SEGMENT // 3)
    first, second, *_ = sorted((broker.store / "commitlog").iterdir())
    for log_file in (first, second):
        age(log_file)
    eventually(lambda: not second.exists(), "retention has deleted two log files")
    for told in streams.read().values():
        assert told[0].startswith(
            "rmqlite.kernel.words.errors.OffsetGone: queue 0 of topic 'orders'"
        )
        assert told[0].endswith("offset 1 is gone, the first one kept is 5")
    assert streams.read_all("m5", "m6", "m7", "m8", fails=False)
    send(broker, "m9")
    assert streams.read_all("m9")


def test_a_record_that_was_repaired_before_it_was_read_is_told(
    broker: BrokerProcess, streams: Readers
) -> None:
    """Its place gives no row: a stream went on behind it without a word."""
    send(broker, "m0")
    assert streams.read_all("m0")
    send(broker, "m1", "lost", "m3")
    broken = place_of(broker, "lost") + 90
    broker.stop()
    repair(broker, broken, 4)
    broker.start()
    for told in streams.read().values():
        assert "queue 0 of topic 'orders', which rmqlite store repair has mended" in told[0]
        assert told[0].endswith("offset 2 is gone, the first one kept is 3")
    assert streams.read_all("m1", "m3", fails=False)
    send(broker, "m4")
    assert streams.read_all("m4")


def test_a_log_that_was_cut_and_has_grown_again_is_told(
    broker: BrokerProcess, streams: Readers
) -> None:
    """The offsets that a stream has read are those of other records: it skipped new ones."""
    send(broker, *(f"m{n}" for n in range(10)))
    assert streams.read_all(*(f"m{n}" for n in range(10)))
    broken = place_of(broker, "m7")
    broker.stop()
    repair(broker, broken, 4_096)
    broker.start()
    send(broker, "new7", "new8")
    # Before 4.2 Spark would repeat a batch that ends before its begin until the loss is allowed.
    for told in streams.read().values() if HAS_READ_LIMITS else ():
        assert "queue 0 of topic 'orders' ends there; the store is not the one" in told[0]
    fresh = [f"new{n}" for n in range(9, 14)]
    send(broker, *fresh)
    for told in streams.read().values():
        assert "the record before it in queue 0 of topic 'orders' was stored at" in told[0]
        assert "the log was cut, as rmqlite store repair does, and has grown again" in told[0]
    assert streams.read_all("new7", "new8", *fresh, fails=False)
    send(broker, "m14")
    assert streams.read_all("m14")


def place_of(broker: BrokerProcess, key: str) -> int:
    """The physical offset of a message."""
    return next(int(row["physical_offset"]) for row in every(broker.store) if row["keys"] == key)


def repair(broker: BrokerProcess, begin: int, size: int) -> None:
    """Break these bytes of a stopped broker's log, then repair it as an operator does."""
    overwrite(min((broker.store / "commitlog").iterdir()), begin, b"?" * size)
    done = run_store("repair", broker.store, "--yes")
    assert "checked again: all is sound" in done.stdout
