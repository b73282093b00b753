"""The account of a Spark job: from options or the driver's environment, to every task."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types

from rmqlite.features.raw_log.requests import LogSnapshot
from rmqlite.kernel.requests.broker import DatedTable
from rmqlite.kernel.requests.topics import Queue, QueueRange
from rmqlite.kernel.words.errors import InvalidValue, OffsetGone, RmqliteError
from rmqlite.protocols.shared.signing import is_right, read_signed
from rmqlite.spark.arrow.columns import columns_of
from rmqlite.spark.arrow.partitions import ReadOptions
from rmqlite.spark.options import credentials_of, options_of, parse_options, with_credentials
from rmqlite.spark.sink.rows import SinkOptions
from rmqlite.spark.sink.sink import BulkWriter
from rmqlite.spark.source import LogReader, RmqliteDataSource, spark_schema
from rmqlite.spark.stream.plan import BrokerRanges
from tests.spark.sinks import SinkBroker
from tests.support.fake_broker import raises

ENDPOINT = "127.0.0.1:1"
SECRET = "a secret of some length"
GIVEN = {"endpoint": ENDPOINT, "accessKey": "operator", "secretKey": SECRET}
SCHEMA = types.StructType([types.StructField("body", types.BinaryType())])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SinkBroker]:
    made = SinkBroker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process with the account in its environment."""
    monkeypatch.setenv("RMQLITE_ACCESS_KEY", "operator")
    monkeypatch.setenv("RMQLITE_SECRET_KEY", SECRET)
    return monkeypatch


def to_a_task(value: Any, driver: pytest.MonkeyPatch) -> Any:
    """The value in a process without this environment."""
    driver.undo()
    return pickle.loads(pickle.dumps(value))


def check_signed(broker: SinkBroker, *names: str) -> None:
    asked = {path.rpartition("/")[2] for path, _ in broker.service.metadata}
    assert asked == set(names)
    for path, metadata in broker.service.metadata:
        found = read_signed(metadata)
        assert found is not None, path
        assert is_right(found, path, SECRET)


@pytest.mark.parametrize("parse", [parse_options, SinkOptions.parse])
def test_the_options_give_the_account(parse: Any) -> None:
    """They come before the environment; Spark may change the case of their names."""
    options = parse({name.lower(): text for name, text in GIVEN.items()})
    found = credentials_of(with_credentials(options))
    assert found is not None
    assert (found.access_key, found.secret) == ("operator", SECRET)
    assert SECRET not in repr(options)
    assert options_of(found).items() <= GIVEN.items()


@pytest.mark.parametrize("parse", [parse_options, SinkOptions.parse])
@pytest.mark.parametrize(
    ("given", "missing"), [("accessKey", "secretKey"), ("secretKey", "accessKey")]
)
def test_one_option_alone_is_an_error_that_names_the_other(
    parse: Any, given: str, missing: str
) -> None:
    """The rest would come from somewhere else."""
    with pytest.raises(InvalidValue) as raised:
        parse({"endpoint": ENDPOINT, given: SECRET})
    assert raised.value.field == missing
    assert SECRET not in str(raised.value)


def test_an_option_given_twice_is_not_shown() -> None:
    """A dictionary may have it in two spellings, and either text may be the secret."""
    with pytest.raises(InvalidValue) as raised:
        parse_options({**GIVEN, "secretkey": SECRET})
    assert SECRET not in str(raised.value)


@pytest.mark.usefixtures("driver")
def test_a_folder_needs_no_account() -> None:
    """So a task that reads files gets no secret."""
    options = parse_options({"path": "/store"})
    assert with_credentials(options) == options


@pytest.mark.usefixtures("driver")
def test_the_source_sends_the_drivers_account_to_its_tasks() -> None:
    """Spark pickles readers to executors, which have another environment."""
    source = RmqliteDataSource({"endpoint": ENDPOINT})
    for reader in (source.reader(source.schema()), source.streamReader(source.schema())):
        assert SECRET.encode() in pickle.dumps(reader)
        assert SECRET not in repr(reader)


def test_a_reader_signs_on_the_driver_and_in_tasks(
    broker: SinkBroker, driver: pytest.MonkeyPatch
) -> None:
    """One unsigned call would end the job."""
    levels = (DatedTable(0, "1s 5s"),)
    queues = (QueueRange(Queue("t", 0), 0, 5),)
    snapshot = LogSnapshot(0, 1_000, 1 << 20, 1, 1, "b", levels, queues)
    broker.service.answers["GetLogSnapshot"] = lambda _: snapshot
    broker.service.answers["ReadLog"] = raises(OffsetGone("the log", 0, 7))
    options = with_credentials(ReadOptions(endpoint=broker.service.endpoint))
    ranges = BrokerRanges(options)
    reader = to_a_task(LogReader(options, spark_schema(columns_of(()))), driver)
    (partition,) = reader.partitions()
    with pytest.raises(OffsetGone):
        list(reader.read(partition))
    ranges.ranges(is_new=True)
    ranges.close()
    check_signed(broker, "GetLogSnapshot", "ReadLog")


def test_a_writer_signs_on_the_driver_and_in_tasks(
    broker: SinkBroker, driver: pytest.MonkeyPatch
) -> None:
    """The plan asks for the levels, a task sends."""
    pa = pytest.importorskip("pyarrow")
    writer = BulkWriter(with_credentials(broker.options(topic="t")), SCHEMA, overwrite=False)
    rows = pa.RecordBatch.from_pydict({"body": [b"x"]})
    sent = to_a_task(writer, driver).write(iter([rows]))
    assert sent.accepted == 1
    check_signed(broker, "GetLevels", "ScheduleBulk")


def test_wrong_credentials_of_the_driver_fail_before_any_task(driver: pytest.MonkeyPatch) -> None:
    """Not once for each task."""
    driver.delenv("RMQLITE_SECRET_KEY")
    source = RmqliteDataSource({"endpoint": ENDPOINT})
    with pytest.raises(RmqliteError, match="RMQLITE_SECRET_KEY"):
        source.reader(source.schema())
