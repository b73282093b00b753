"""Dead letters as one table, and as Parquet files by group and day that only ever grow.

An export takes what it does not have yet, letter by letter: retention may have deleted half
a day from the log since, so a day that was exported is never written anew.  Cut off at any
moment it leaves some letters or all of them, and the next run adds the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from rmqlite.arrow.columns import columns_of
from rmqlite.errors import InvalidValue
from rmqlite.message import DLQ_ORIGIN_TOPIC, REAL_TOPIC, RETRY_TOPIC
from rmqlite.names import DLQ_PREFIX, SCHEDULE_GROUP
from rmqlite.spark.hadoop import HadoopFolder
from rmqlite.spark.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS: Final = (
    *("topic", "queue_id", "queue_offset", "body", "keys", "tags", "unique_key"),
    *("origin_topic", "origin_message_id", "origin_queue_id", "origin_queue_offset"),
    *("delivery_attempts", "first_failure_timestamp", "last_failure_timestamp"),
    *("failure_reason", "reconsume_times", "born_timestamp", "store_timestamp"),
    *("flag", "sys_flag", "physical_offset", "properties"),
)
"""What is read of the log."""
TOPIC_PATTERN: Final = f"{DLQ_PREFIX}*"
"""For the option topicPattern of a reader."""
IDENTITY: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")
"""No two letters have all of these, not even those of two brokers."""
_PLACE: Final = ("group", "day")
"""What the folders of an export are named by."""


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters; what is empty does not matter.

    topic: where they were sent to first.  reason: part of the reason, in any case.
    since_ms <= the time they died < until_ms.
    """

    groups: tuple[str, ...] = ()
    topic: str = ""
    reason: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    def read_options(self) -> dict[str, object]:
        """What a reader of the log can leave out already."""
        options: dict[str, object] = {
            "startingTimestamp": self.since_ms,
            "endingTimestamp": self.until_ms,
        }
        if self.groups:
            options["topics"] = ",".join(DLQ_PREFIX + group for group in self.groups)
        else:
            options["topicPattern"] = TOPIC_PATTERN
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Exported:
    """An export that is done.

    counts: rows of group, day, dead_letters, added, top_reason; of what was looked at.
    """

    place: str
    added: int
    known: int
    counts: list[dict[str, Any]]


def dead_letters(log: DataFrame, wanted: LetterFilter | None = None) -> DataFrame:
    """The dead letters of a log, with group and day in front, then COLUMNS.

    log: with COLUMNS.  day: UTC, of the time they died.  origin_topic is told for letters of
    RocketMQ's, too, and for scheduled messages that could not be delivered.
    """
    found = log.where(F.col("topic").startswith(DLQ_PREFIX)).select(
        F.substring("topic", len(DLQ_PREFIX) + 1, 127).alias("group"),
        _utc_day("store_timestamp").alias("day"),
        *[_origin().alias(name) if name == "origin_topic" else F.col(name) for name in COLUMNS],
    )
    return only(found, wanted or LetterFilter())


def only(dead: DataFrame, wanted: LetterFilter) -> DataFrame:
    """Those of a table of dead letters that are wanted."""
    conditions: list[Column] = []
    if wanted.groups:
        conditions.append(F.col("group").isin(*wanted.groups))
    if wanted.topic:
        conditions.append(F.col("origin_topic") == wanted.topic)
    if wanted.reason:
        reason = F.lower(F.coalesce("failure_reason", F.lit("")))
        conditions.append(F.contains(reason, F.lit(wanted.reason.lower())))
    if wanted.since_ms is not None:
        conditions.append(F.unix_millis("store_timestamp") >= wanted.since_ms)
    if wanted.until_ms is not None:
        conditions.append(F.unix_millis("store_timestamp") < wanted.until_ms)
    for condition in conditions:
        dead = dead.where(condition)
    return dead


def export(dead: DataFrame, place: str) -> Exported:
    """Add to an export what it does not have yet; place: any folder that Hadoop knows.

    dead: as dead_letters() gives them.  Two exports to one place must not run at once.
    Raises InvalidValue for a place that holds something else.
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
    return Exported(place, added, looked_at - added, counts)


def read_export(spark: SparkSession, place: str) -> DataFrame:
    """The dead letters of an export, as dead_letters() gives them.  Raises InvalidValue."""
    if not _is_export(spark, place):
        raise InvalidValue("export", place, "a folder that rmqlite pipeline dlq-export has written")
    # A group may be called 123, and Spark would make a number of it.
    schema = export_schema()
    return spark.read.schema(schema).parquet(place).select(*schema.names)


def export_schema() -> T.StructType:
    """The columns of an export."""
    own = [T.StructField("group", T.StringType()), T.StructField("day", T.DateType())]
    return T.StructType([*own, *spark_schema(columns_of(COLUMNS)).fields])


def _origin() -> Column:
    """Where it was sent to: RocketMQ keeps that in RETRY_TOPIC, the schedule in REAL_TOPIC."""
    of_schedule = F.col("topic") == DLQ_PREFIX + SCHEDULE_GROUP
    return F.coalesce(
        _property(DLQ_ORIGIN_TOPIC),
        _property(RETRY_TOPIC),
        F.when(of_schedule, _property(REAL_TOPIC)),
    )


def _property(name: str) -> Column:
    return F.element_at("properties", name)


def _utc_day(name: str) -> Column:
    """Whatever the session's time zone is."""
    return F.date_from_unix_date((F.floor(F.unix_millis(name) / 86_400_000)).cast("int"))


def _is_export(spark: SparkSession, place: str) -> bool:
    """Is there an export?  Raises InvalidValue for a folder that holds something else."""
    names = [name for name in HadoopFolder(spark, place).names() if name[0] not in "._"]
    strange = next((name for name in names if not name.startswith("group=")), None)
    if strange is not None:
        rule = f"an export of dead letters, or a folder of its own; this has {strange} in it"
        raise InvalidValue("export", place, rule)
    return bool(names)


def _marked(dead: DataFrame, known: DataFrame) -> DataFrame:
    """The letters, and whether an export lacks them."""
    there = known.select(*IDENTITY, F.lit(False).alias("is_known")).distinct()
    joined = dead.join(there, list(IDENTITY), "left")
    is_new = F.col("is_known").isNull().alias("is_new")
    return joined.select(*dead.columns, is_new)


def _counted(marked: DataFrame) -> DataFrame:
    """Per group and day: how many, how many of them new, and why most of them died."""
    reasons = marked.groupBy(*_PLACE, "failure_reason").agg(
        F.count("*").alias("n"), F.sum(F.col("is_new").cast("bigint")).alias("new")
    )
    return (
        reasons.groupBy(*_PLACE)
        .agg(
            F.sum("n").alias("dead_letters"),
            F.sum("new").alias("added"),
            F.max_by("failure_reason", F.struct("n", "failure_reason")).alias("top_reason"),
        )
        .orderBy(*_PLACE)
    )
