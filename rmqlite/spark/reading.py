"""Reads a store or a broker into a DataFrame, and describes what it read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.spark.arrow.columns import columns_named, columns_of
from rmqlite.spark.options import as_text, folder, parse_options
from rmqlite.spark.partitions import look

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqlite.spark.arrow.planning import Look


VIEWS_MAX: Final = 1_000
"""The views that one call makes."""


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """The log had the bytes begin_offset <= physical offset < end_offset.

    newest_timestamp_ms: store timestamp of the last record; 0 if there is none.  warnings: a
    sentence for each part of the store that a crash may have taken.
    """

    where: str
    begin_offset: int
    end_offset: int
    newest_timestamp_ms: int
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The snapshot in words."""
        newest = ""
        if self.newest_timestamp_ms:
            newest = f", newest of {local_text(self.newest_timestamp_ms)}"
        return f"{self.where}: physical offsets {self.begin_offset} to {self.end_offset}{newest}"


def snapshot(*, path: str = "", endpoint: str = "", **options: object) -> SourceSnapshot:
    """A store or a broker in its present state.  Raises InvalidValue, StoreDamaged, Unavailable.

    Several loads read the same records if they get its two offsets as startingPhysicalOffset
    and endingPhysicalOffset.  options: accessKey and secretKey, the account at the broker.
    """
    return snapshot_of(looked(path=path, endpoint=endpoint, **options))


def looked(*, path: str = "", endpoint: str = "", **options: object) -> Look:
    """A store or a broker in its present state; as snapshot()."""
    texts = load_texts(path=path, endpoint=endpoint, columns=(), options=options)
    return look(parse_options(texts))


def snapshot_of(found: Look) -> SourceSnapshot:
    """The part of a look that two loads share."""
    place = found.place
    newest_ms, warnings = found.newest_timestamp_ms, found.warnings
    return SourceSnapshot(place.where, place.begin, place.end, newest_ms, warnings)


def read_log(
    spark: SparkSession,
    *,
    path: str = "",
    endpoint: str = "",
    columns: Sequence[str] = (),
    **options: object,
) -> DataFrame:
    """The records of a store or a broker; options are those of the format, as Python values.

    A list or tuple becomes one text with commas, a mapping becomes JSON for offsets.  The first
    use of the DataFrame fixes which records it has.  Raises InvalidValue.
    """
    texts = load_texts(path=path, endpoint=endpoint, columns=columns, options=options)
    parse_options(texts)
    return _load(spark, texts)


def read_log_by_topic(
    spark: SparkSession,
    topics: Sequence[str],
    *,
    path: str = "",
    endpoint: str = "",
    columns: Sequence[str] = (),
    **options: object,
) -> DataFrame:
    """As read_log(), with the records that the log has now, and prepared for filters on topics.

    A filter topic = 'orders' for one of these topics, also in SQL, reads and gives only the rows
    that the option topic gives.  Without a filter, the records of these topics are read twice.
    Raises InvalidValue, StoreDamaged, Unavailable.
    """
    from pyspark.sql import functions as F

    texts = load_texts(path=path, endpoint=endpoint, columns=columns, options=options)
    wanted, names = parse_options(texts), dict.fromkeys(topics)
    if wanted.is_by_topic:
        raise InvalidValue("topicPattern", ",".join(names), "left out beside these topics")
    if all(column.name != "topic" for column in columns_named(wanted.columns)):
        raise InvalidValue("columns", wanted.columns, "topic, and others")
    found = look(wanted)
    found.check_topics(names)
    # A load for each of the topics and one for all others; Spark's optimizer drops each of which a
    # filter contradicts the topic.  If a reader took filters, Spark would give one query's rows to
    # another: see the test of pushed filters.
    texts = {"endingPhysicalOffset": str(found.place.end)} | texts
    table = _load(spark, texts)
    # Not NOT IN: only of single comparisons does the optimizer see the contradiction.
    for name in names:
        table = table.where(F.col("topic") != name)
    for name in names:
        part = _load(spark, texts | {"topic": name}).withColumn("topic", F.lit(name))
        table = table.unionByName(part)
    return table


def _load(spark: SparkSession, texts: Mapping[str, str]) -> DataFrame:
    return spark.read.format("rmqlite").options(**texts).load()


def read_here(
    spark: SparkSession,
    *,
    path: str = "",
    endpoint: str = "",
    columns: Sequence[str] = (),
    **options: object,
) -> DataFrame:
    """As read_log(), but this process reads the records, and now: for a small log.

    Also raises StoreDamaged, OffsetGone, Unavailable.
    """
    import pyarrow as pa

    from rmqlite.spark.arrow.decode import arrow_schema
    from rmqlite.spark.source import RmqliteDataSource, spark_schema

    texts = load_texts(path=path, endpoint=endpoint, columns=columns, options=options)
    named = columns_named(texts.get("columns", ""))
    schema, kinds = spark_schema(named), arrow_schema(named)
    reader = RmqliteDataSource(texts).reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    # Spark does not take a table without a batch.
    table = pa.Table.from_batches(batches or [pa.RecordBatch.from_pylist([], kinds)], kinds)
    return spark.createDataFrame(table, schema)


def create_views(
    spark: SparkSession,
    *,
    path: str = "",
    endpoint: str = "",
    columns: Sequence[str] = (),
    **options: object,
) -> tuple[str, ...]:
    """Make a temporary view of each topic, named as the topic, and return the names.

    All views have the records that the log has now.  options: as read_log(); topicPattern and
    topics choose the topics.  Raises InvalidValue, StoreDamaged, Unavailable.
    """
    texts = load_texts(path=path, endpoint=endpoint, columns=columns, options=options)
    wanted = parse_options(texts)
    found = look(wanted)
    found.check_topics(wanted.topics)
    names = sorted(filter(wanted.takes_topic, {*found.topics, *wanted.topics}))
    _check_views(names)
    texts = {name: text for name, text in texts.items() if not name.lower().startswith("topic")}
    texts = {"endingPhysicalOffset": str(found.place.end)} | texts
    for name in names:
        view = _load(spark, texts | {"topic": name})
        view.createOrReplaceTempView(f"`{name.replace('`', '``')}`")
    return tuple(names)


def _check_views(names: Sequence[str]) -> None:
    """Raises InvalidValue for too many names, or for two that are one to Spark."""
    if len(names) > VIEWS_MAX:
        rule = f"a pattern of at most {VIEWS_MAX} topics"
        raise InvalidValue("topicPattern", f"{len(names)} topics", rule)
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(name.lower(), name)
        if other != name:
            raise InvalidValue("topic", name, f"another name than {other} also in lower case")


def load_texts(
    *, path: str, endpoint: str, columns: Sequence[str], options: Mapping[str, object]
) -> dict[str, str]:
    """The options as texts for Spark; options with None are left out.  Raises InvalidValue."""
    texts = _place(path, endpoint)
    if columns:
        texts["columns"] = ",".join(column.name for column in columns_of(tuple(columns)))
    return texts | {name: as_text(value) for name, value in options.items() if value is not None}


def _place(path: str, endpoint: str) -> dict[str, str]:
    # The absolute path, because an executor may run in another folder.
    whole = str(Path(folder("path", path)).absolute()) if path else ""
    return {name: text for name, text in (("path", whole), ("endpoint", endpoint)) if text}
