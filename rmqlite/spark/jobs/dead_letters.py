"""Dead letters as one table, and as Parquet files by group and day.

An export adds the letters that it does not have yet, and never writes a day anew, because
retention may have deleted half of that day from the log.  If a run is cut off, some letters may
be missing; the next run adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from rmqlite.features.failure_kinds import failure_kind
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import DLQ_ORIGIN_TOPIC, REAL_TOPIC, RETRY_TOPIC
from rmqlite.kernel.words.names import DLQ_PREFIX, SCHEDULE_GROUP
from rmqlite.spark import hadoop
from rmqlite.spark.arrow.columns import columns_of
from rmqlite.spark.hadoop import HadoopFolder
from rmqlite.spark.source import spark_schema
from rmqlite.spark.tables import utc_day

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rmqlite.spark.arrow.planning import Look

COLUMNS: Final = (
    *("topic", "queue_id", "queue_offset", "body", "keys", "tags", "unique_key"),
    *("origin_topic", "origin_message_id", "origin_queue_id", "origin_queue_offset"),
    *("delivery_attempts", "first_failure_timestamp", "last_failure_timestamp"),
    *("failure_reason", "reconsume_times", "born_timestamp", "store_timestamp"),
    *("flag", "sys_flag", "physical_offset", "properties"),
)
"""The columns to read from the log."""
TOPIC_PATTERN: Final = f"{DLQ_PREFIX}*"
"""The value for the option topicPattern of a reader."""
IDENTITY: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")
"""No two letters have all of these, not even those of two brokers."""
_NAMES: Final = ("export", "group", "an export of dead letters")
_PLACE: Final = ("group", "day")
"""The columns that name the folders of an export."""


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Selects dead letters; an empty field does not matter.

    topic: the topic that they were sent to first.  failure_kind: see failure_kind() of
    features/dead_letters/requests.py.  reason: part of the reason or of its kind, in upper or lower
    case.  since_ms <= the time they died < until_ms.
    """

    groups: tuple[str, ...] = ()
    topic: str = ""
    failure_kind: str = ""
    reason: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    def read_options(self) -> dict[str, object]:
        """The part of the filter that a reader of the log applies already."""
        options: dict[str, object] = {
            "startingTimestamp": self.since_ms,
            "endingTimestamp": self.until_ms,
        }
        if self.groups:
            options["topics"] = ",".join(DLQ_PREFIX + group for group in self.groups)
        else:
            options["topicPattern"] = TOPIC_PATTERN
        return {name: value for name, value in options.items() if value is not None}

    def check(self, found: Look) -> None:
        """Raises InvalidValue for a group or a topic that a log does not have."""
        found.check_groups(self.groups)
        found.check_topics([self.topic] if self.topic else [])


@dataclass(frozen=True, slots=True)
class ExportedLetters:
    """The result of an export.

    counts: rows of group, day, dead_letters, added, top_kind, for the letters of this run.
    """

    place: str
    added: int
    known: int
    counts: list[dict[str, Any]]


def dead_letters(log: DataFrame, wanted: LetterFilter | None = None) -> DataFrame:
    """The dead letters of a log, with group and day in front, then COLUMNS and failure_kind.

    log: has COLUMNS.  day: of the time they died, in UTC.  Letters of RocketMQ and scheduled
    messages that could not be delivered have an origin_topic, too.
    """
    found = log.where(F.col("topic").startswith(DLQ_PREFIX)).select(
        F.substring("topic", len(DLQ_PREFIX) + 1, 127).alias("group"),
        utc_day("store_timestamp").alias("day"),
        *[_origin().alias(name) if name == "origin_topic" else F.col(name) for name in COLUMNS],
        kind_of("failure_reason").alias("failure_kind"),
    )
    return only(found, wanted or LetterFilter())


def only(dead: DataFrame, wanted: LetterFilter) -> DataFrame:
    """The rows of a table of dead letters that match a filter."""
    conditions: list[Column] = []
    if wanted.groups:
        conditions.append(F.col("group").isin(*wanted.groups))
    if wanted.topic:
        conditions.append(F.col("origin_topic") == wanted.topic)
    if wanted.failure_kind:
        conditions.append(F.col("failure_kind") == wanted.failure_kind)
    if wanted.reason:
        part = F.lit(wanted.reason.lower())
        texts = [F.coalesce("failure_reason", F.lit("")), F.col("failure_kind")]
        in_reason, in_kind = [F.contains(F.lower(text), part) for text in texts]
        conditions.append(in_reason | in_kind)
    if wanted.since_ms is not None:
        conditions.append(F.unix_millis("store_timestamp") >= wanted.since_ms)
    if wanted.until_ms is not None:
        conditions.append(F.unix_millis("store_timestamp") < wanted.until_ms)
    for condition in conditions:
        dead = dead.where(condition)
    return dead


def check_names(names: Sequence[str], place: str) -> None:
    """Raises InvalidValue for names that are not those of an export."""
    hadoop.check_names(names, place, *_NAMES)


def export(dead: DataFrame, place: str) -> ExportedLetters:
    """Add the letters to an export that it does not have yet.

    dead: from dead_letters().  place: a folder on any file system that Hadoop supports.  Two
    exports to one place must not run at once.  Raises InvalidValue for a folder with other files.
    """
    spark = dead.sparkSession
    known = read_export(spark, place) if _is_export(spark, place) else None
    marked = dead.withColumn("is_new", F.lit(True)) if known is None else _marked(dead, known)
    marked = marked.persist()
    try:
        counts = [row.asDict() for row in _counted(marked).collect()]
        added = sum(row["added"] for row in counts)
        if added:
            fresh = marked.where("is_new").drop("is_new").repartition(*_PLACE)
            fresh.sortWithinPartitions(*_PLACE, "topic", "queue_id", "queue_offset").write.mode(
                "append"
            ).partitionBy(*_PLACE).parquet(place)
    finally:
        marked.unpersist()
    looked_at = sum(row["dead_letters"] for row in counts)
    return ExportedLetters(place, added, looked_at - added, counts)


def read_export(spark: SparkSession, place: str) -> DataFrame:
    """The dead letters of an export, with the columns of dead_letters().  Raises InvalidValue."""
    if not _is_export(spark, place):
        raise InvalidValue("export", place, "a folder that rmqlite pipeline dlq-export has written")
    # A group may have the name 123, and Spark would make a number of it.
    schema = export_schema()
    found = spark.read.schema(schema).parquet(place).select(*schema.names)
    # The files may have the kinds of an older rule, or none.
    return found.withColumn("failure_kind", kind_of("failure_reason"))


def export_schema() -> T.StructType:
    """The columns of an export."""
    own = [T.StructField("group", T.StringType()), T.StructField("day", T.DateType())]
    return T.StructType([*own, *spark_schema(columns_of((*COLUMNS, "failure_kind"))).fields])


def kind_of(reason: str) -> Column:
    """The kind of the failure reason in a column."""
    # With Arrow it would need pandas.
    return F.udf(_kind_of, T.StringType(), useArrow=False)(reason)


def _kind_of(reason: str | None) -> str:
    return failure_kind(reason or "")


def _origin() -> Column:
    """The topic of the first send: RocketMQ has it in RETRY_TOPIC, the schedule in REAL_TOPIC."""
    of_schedule = F.col("topic") == DLQ_PREFIX + SCHEDULE_GROUP
    return F.coalesce(
        _property(DLQ_ORIGIN_TOPIC),
        _property(RETRY_TOPIC),
        F.when(of_schedule, _property(REAL_TOPIC)),
    )


def _property(name: str) -> Column:
    return F.element_at("properties", name)


def _is_export(spark: SparkSession, place: str) -> bool:
    """Is there an export?  Raises InvalidValue for a folder with other files."""
    folder = HadoopFolder(spark, place)
    folder.check_names(*_NAMES)
    return bool(folder.files("group=*"))


def _marked(dead: DataFrame, known: DataFrame) -> DataFrame:
    """The letters with the column is_new: an export lacks this one."""
    there = known.select(*IDENTITY, F.lit(False).alias("is_known")).distinct()
    joined = dead.join(there, list(IDENTITY), "left")
    is_new = F.col("is_known").isNull().alias("is_new")
    return joined.select(*dead.columns, is_new)


def _counted(marked: DataFrame) -> DataFrame:
    """Per group and day: the number of letters, of new letters, and the most frequent kind."""
    kinds = marked.groupBy(*_PLACE, "failure_kind").agg(
        F.count("*").alias("n"), F.sum(F.col("is_new").cast("bigint")).alias("new")
    )
    return (
        kinds.groupBy(*_PLACE)
        .agg(
            F.sum("n").alias("dead_letters"),
            F.sum("new").alias("added"),
            F.max_by("failure_kind", F.struct("n", "failure_kind")).alias("top_kind"),
        )
        .orderBy(*_PLACE)
    )
