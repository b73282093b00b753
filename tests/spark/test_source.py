"""spark.read.format("rmqlite") as a user writes it; tests/arrow has what needs no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.spark.arrow.columns import COLUMNS, columns_of
from rmqlite.spark.options import parse_options
from rmqlite.spark.reading import read_log, snapshot
from rmqlite.spark.source import LogReader, checked_columns, spark_schema
from tests.support.plain_decoder import Row, decoded_rows, every
from tests.support.stores import StoreUnderTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> StoreUnderTest:
    """Nobody writes to it."""
    store = StoreUnderTest(tmp_path_factory.mktemp("source") / "store")
    store.fill()
    store.close()
    return store


def reader(root: Path, *columns: str, **options: str) -> LogReader:
    given = {"path": str(root), **options}
    return LogReader(parse_options(given), spark_schema(columns_of(columns)))


def read(found: LogReader) -> list[Row]:
    return [row for each in found.partitions() for row in decoded_rows(found.read(each))]


def test_the_reader_gives_the_columns_of_its_schema(filled: StoreUnderTest) -> None:
    """In the order in which they were asked for."""
    rows = read(reader(filled.root, "queue_offset", "topic"))
    assert list(rows[0]) == ["queue_offset", "topic"]
    assert [row["topic"] for row in rows] == [row["topic"] for row in every(filled.root)]


def test_every_partition_may_be_read_again(filled: StoreUnderTest) -> None:
    """A task that failed is tried once more."""
    found = reader(filled.root, "physical_offset", sliceBytes="2000")
    for task in found.partitions():
        assert decoded_rows(found.read(task)) == decoded_rows(found.read(task))


def test_a_load_without_partitions_is_empty(filled: StoreUnderTest) -> None:
    """Spark makes one of an empty list, and it is None."""
    found = reader(filled.root, "topic", topicPattern="nothing-*")
    assert found.partitions() == []
    assert list(found.read(None)) == []


def test_a_schema_must_be_of_these_columns() -> None:
    """A wrong type would be a wrong answer or Spark's own riddle."""
    from pyspark.sql.types import StringType, StructField, StructType

    wanted = "schema must be queue_id int, not 'queue_id string'"
    with pytest.raises(InvalidValue) as caught:
        checked_columns(StructType([StructField("queue_id", StringType())]))
    assert str(caught.value) == wanted
    with pytest.raises(InvalidValue, match="did you mean topic"):
        checked_columns(StructType([StructField("topci", StringType())]))


def test_a_snapshot_says_what_there_was(filled: StoreUnderTest) -> None:
    """Several loads that are to see the same are bound by it."""
    found = snapshot(path=str(filled.root))
    rows = every(filled.root)
    assert (found.begin_offset, found.end_offset) == (0, rows[-1]["end_offset"])
    assert found.newest_timestamp_ms == rows[-1]["store_timestamp"]
    assert f"physical offsets 0 to {found.end_offset}, newest of" in found.text


# ---- through Spark


def test_spark_reads_what_is_there(spark: SparkSession, filled: StoreUnderTest) -> None:
    """All columns at once: Spark compares types, order and nullability to the letter."""
    names = tuple(column.name for column in COLUMNS)
    frame = read_log(spark, path=str(filled.root), columns=names, sliceBytes=3000)
    found = sorted(frame.collect(), key=lambda row: row["physical_offset"])
    wanted = every(filled.root)
    assert [row["body"] for row in found] == [row["body"] for row in wanted]
    assert [row["properties"] for row in found] == [row["properties"] for row in wanted]
    assert [row["completes"] for row in found] == [row["completes"] for row in wanted]
    assert frame.schema == spark_schema(COLUMNS)


def test_a_delivery_is_joined_to_its_schedule(spark: SparkSession, filled: StoreUnderTest) -> None:
    """One load split in two: the shape that a pushed filter would break."""
    from pyspark.sql import functions as F

    names = ("topic", "completes", "end_offset", "body", "deliver_timestamp", "store_timestamp")
    log = read_log(spark, path=str(filled.root), columns=names)
    waited = log.where(F.col("deliver_timestamp").isNotNull()).alias("waited")
    ended = log.where(F.col("completes").isNotNull()).alias("ended")
    joined = waited.join(ended, F.col("waited.end_offset") == F.col("ended.completes"))
    rows = joined.select("waited.body", F.col("ended.body").alias("given")).collect()
    assert len(rows) == 7
    assert all(row["body"] == row["given"] for row in rows)


def test_options_and_schemas_as_users_write_them(
    spark: SparkSession, filled: StoreUnderTest
) -> None:
    """load(path), a schema in words, an SQL view, names in any case."""
    root = str(filled.root)
    orders = sum(row["topic"] == "orders" for row in every(filled.root))
    named = spark.read.format("rmqlite").schema("topic string, queue_offset bigint")
    assert named.option("TOPIC", "orders").load(root).count() == orders
    view = f"USING rmqlite OPTIONS (path '{root}', columns 'topic', topicPattern 'ord*')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW letters {view}")
    assert spark.sql("SELECT count(*) FROM letters").collect()[0][0] == orders


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": "/nowhere/store"}, "store must be a folder that exists, not '/nowhere/store'"),
        ({"topci": "x"}, "did you mean topic?"),
        ({"topic": "ordesr"}, "a topic of {root}, not 'ordesr'; did you mean orders?"),
        ({"columns": "topic, quue_id"}, "did you mean queue_id?"),
        (
            {"startingOffsets": '{"orders": {"0": 999}}'},
            "startingOffsets must be at most 13, where that queue ends now,"
            " not 'orders queue 0: 999'",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_line_last(
    spark: SparkSession, filled: StoreUnderTest, options: dict[str, str], told: str
) -> None:
    """Above it may stand what Spark has to say."""
    from pyspark.errors import PySparkException

    given = {"path": str(filled.root), **options}
    with pytest.raises(PySparkException) as caught:
        spark.read.format("rmqlite").options(**given).load().collect()
    lines = str(caught.value).split("JVM stacktrace")[0].splitlines()
    line = [each for each in lines if each.strip() and "SQLSTATE" not in each][-1]
    assert line.startswith("rmqlite.kernel.words.errors.InvalidValue: ")
    assert line.endswith(told.replace("{root}", str(filled.root)))


def test_damage_met_by_a_task_is_told_last(spark: SparkSession, tmp_path: Path) -> None:
    """With the file and the byte, through Java and back."""
    from pyspark.errors import PySparkException

    store = StoreUnderTest(tmp_path / "store")
    store.fill()
    store.close()
    path = store.log_files()[0]
    data = bytearray(path.read_bytes())
    position = every(store.root)[2]["physical_offset"]
    data[position + 4] ^= 1
    path.write_bytes(data)
    with pytest.raises(PySparkException) as caught:
        read_log(spark, path=str(store.root)).collect()
    told = f"StoreDamaged: {path} is damaged at byte {position}: expected a record"
    assert told in str(caught.value)


@pytest.mark.xfail(strict=True, reason="Spark keeps pushed filters for all scans of one load")
def test_pushed_filters_belong_to_one_scan(spark: SparkSession) -> None:
    """Once this holds, filters may be pushed down to the reader, and not before."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition

    class Filtered(DataSourceReader):
        def __init__(self) -> None:
            self.wanted: list[int] = [1, 2, 3]

        def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
            for each in filters:
                if isinstance(each, EqualTo):
                    self.wanted = [each.value]
                else:
                    yield each

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            del partition
            return iter([(number,) for number in self.wanted])

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbers"

        def schema(self) -> str:
            return "a int"

        def reader(self, schema: Any) -> Filtered:
            del schema
            return Filtered()

    key = "spark.sql.python.filterPushdown.enabled"
    spark.dataSource.register(Numbers)
    spark.conf.set(key, "true")
    try:
        frame = spark.read.format("numbers").load()
        both = frame.where("a = 1").union(frame.where("a = 3")).collect()
    finally:
        spark.conf.unset(key)
    assert sorted(row["a"] for row in both) == [1, 3]
