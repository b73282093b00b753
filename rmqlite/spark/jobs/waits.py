"""Every wait of a scheduled message, with its begin and its end in one row.

The record that ends a wait has `completes`, the end offset of the scheduled record; so both
have the same key, and waits() finds the pairs in one pass.  A rescheduled record ends one wait
and begins another: it has two keys.  Only numbers are aggregated: text would make Spark sort
instead of hash.

RocketMQ's own deliveries do not point back.  ended() also finds these, by message id,
destination and reconsume times.  It costs a second pass, which paired() saves if pointers alone
have ended every message that is due.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from rmqlite.names import TIMER_TOPIC, WAIT_TOPICS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Read = Callable[[Sequence[str]], DataFrame]
    """Reads these columns of all records of a log."""

COLUMNS: Final = (
    "topic",
    "queue_id",
    "deliver_timestamp",
    "store_timestamp",
    "physical_offset",
    "end_offset",
    "completes",
    "completed_level",
    "completion",
)
SAME: Final = ("unique_key", "real_topic", "real_queue_id", "reconsume_times")
"""The columns that a scheduled record and its delivery by RocketMQ have in common."""
MORE_COLUMNS: Final = (*COLUMNS, "delay_level", *SAME)
"""The columns for ended()."""
DELIVERED: Final = "delivered"
CANCELLED: Final = "cancelled"
COMPLETIONS: Final = (DELIVERED, "fired", "rescheduled", CANCELLED, "undeliverable", "carried")
MAY_BE_EARLY: Final = ("fired", "rescheduled", CANCELLED, "carried")
TIMERS: Final = -1
"""The level of a timer, as in every answer of the broker."""
_CODES: Final = 8
"""More than the number of completions: a code fits beside a physical offset in one number."""


def is_scheduled() -> Column:
    """Does the record begin a wait?"""
    return F.col("topic").isin(*WAIT_TOPICS)


def _level() -> Column:
    """The level at which a scheduled record waits; TIMERS for a timer."""
    return F.when(F.col("topic") == TIMER_TOPIC, TIMERS).otherwise(F.col("queue_id") + 1)


def waits(records: DataFrame, *names: str) -> DataFrame:
    """One row for each wait that begins or ends in these records (COLUMNS).

    Columns: end_offset (where the scheduled record ends: the key), level (TIMERS for a timer),
    deliver_ms (null if the scheduled record is not in these), completions (how often the wait was
    ended), completion (how it ended first; null if it did not), completed_ms (when), newest_ms.
    names: further columns of the scheduled record.
    """
    begins = F.when(is_scheduled(), F.col("end_offset"))
    keyed = (
        records.where(is_scheduled() | F.col("completes").isNotNull())
        .withColumn("key", F.explode(F.array_compact(F.array(begins, F.col("completes")))))
        .withColumn("is_begin", is_scheduled() & (F.col("key") == F.col("end_offset")))
    )
    is_begin = F.col("is_begin")
    stored_ms = F.unix_millis("store_timestamp")
    # The first record in the log is the first completion; store times ascend with the log.
    place_and_code = F.col("physical_offset") * _CODES + _code(F.col("completion"))
    grouped = keyed.groupBy(F.col("key").alias("end_offset")).agg(
        F.max(F.when(is_begin, _level()).otherwise(F.col("completed_level"))).alias("level"),
        F.max(F.when(is_begin, F.unix_millis("deliver_timestamp"))).alias("deliver_ms"),
        F.count(F.when(~is_begin, 1)).alias("completions"),
        F.min(F.when(~is_begin, place_and_code)).alias("_first"),
        F.min(F.when(~is_begin, stored_ms)).alias("completed_ms"),
        F.max(stored_ms).alias("newest_ms"),
        *[F.max(F.when(is_begin, F.col(name))).alias(name) for name in names],
    )
    first = F.array(*map(F.lit, COMPLETIONS))[(F.col("_first") % _CODES).cast("int")]
    return grouped.withColumn("completion", F.when(F.col("_first").isNotNull(), first)).drop(
        "_first"
    )


def ended(records: DataFrame) -> DataFrame:
    """Every wait of waits() with its message, and with the deliveries that RocketMQ wrote.

    records: MORE_COLUMNS.  Columns beside those of waits(): SAME, and without_pointer: its
    delivery was found by these four.
    """
    found = waits(records, *SAME)
    is_open = F.col("completion").isNull()
    order = Window.partitionBy(*SAME).orderBy("end_offset")
    opened = found.where(is_open).select(
        "*",
        F.row_number().over(order).alias("nth"),
        F.count("*").over(Window.partitionBy(*SAME)).alias("scheduled"),
    )
    matched = opened.join(_unpointed(records), [*SAME, "nth"], "left")
    is_matched = F.col("stored_ms").isNotNull()
    surplus = F.greatest(F.col("deliveries") - F.col("scheduled"), F.lit(0))
    completed = matched.select(
        "end_offset",
        "level",
        "deliver_ms",
        F.when(is_matched, 1 + F.when(F.col("nth") == 1, surplus).otherwise(0))
        .otherwise(0)
        .alias("completions"),
        F.col("stored_ms").alias("completed_ms"),
        F.greatest("newest_ms", "stored_ms").alias("newest_ms"),
        *SAME,
        F.when(is_matched, DELIVERED).alias("completion"),
        is_matched.alias("without_pointer"),
    )
    return found.where(~is_open).withColumn("without_pointer", F.lit(False)).unionByName(completed)


def paired(
    read: Read, answer: Callable[[DataFrame], DataFrame], has_overdue: Column, *names: str
) -> DataFrame:
    """The answer for all waits of a log, persisted.

    answer: makes a table of waits.  has_overdue: marks the rows of this table that stand for
    messages that are due and not ended; without any, RocketMQ has delivered nothing here.
    names: of SAME, the columns of the scheduled record that the answer needs.
    """
    found = answer(waits(read((*COLUMNS, *names)), *names)).persist()
    if found.where(has_overdue).isEmpty():
        return found
    found.unpersist()
    return answer(ended(read(MORE_COLUMNS))).persist()


def _unpointed(records: DataFrame) -> DataFrame:
    """RocketMQ's deliveries: records that waited, without a pointer to the wait that they end."""
    delivered = records.where(
        ~is_scheduled()
        & F.col("completes").isNull()
        & (F.col("real_topic") == F.col("topic"))
        & (F.col("real_queue_id") == F.col("queue_id"))
    )
    same = Window.partitionBy(*SAME)
    return delivered.select(
        *SAME,
        F.row_number().over(same.orderBy("physical_offset")).alias("nth"),
        F.count("*").over(same).alias("deliveries"),
        F.unix_millis("store_timestamp").alias("stored_ms"),
    )


def _code(completion: Column) -> Column:
    """The index of the completion in COMPLETIONS."""
    code = F.lit(0)
    for number, name in enumerate(COMPLETIONS[1:], 1):
        code = F.when(completion == name, number).otherwise(code)
    return code
