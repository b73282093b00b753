"""Every wait of a scheduled message, with its begin and its end in one row, in one pass.

The record that ends a wait has `completes`, the end offset of the scheduled record; so both
have the same key.  A rescheduled record ends one wait and begins another: it has two keys.
Only numbers are aggregated: text would make Spark sort instead of hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmqlite.names import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
DELIVERED: Final = "delivered"
COMPLETIONS: Final = (DELIVERED, "fired", "rescheduled", "cancelled", "undeliverable")
MAY_BE_EARLY: Final = ("fired", "rescheduled", "cancelled")
_CODES: Final = 8
"""More than the number of completions: a code fits beside a physical offset in one number."""


def is_scheduled() -> Column:
    """Does the record begin a wait?"""
    return F.col("topic") == SCHEDULE_TOPIC


def waits(records: DataFrame, *extra: Column) -> DataFrame:
    """One row for each wait that begins or ends in these records (COLUMNS).

    Columns: end_offset (where the scheduled record ends: the key), level, deliver_ms (null if
    the scheduled record is not in these), completions (how often the wait was ended), completion
    (how it ended first; null if it did not), completed_ms (when), newest_ms.  extra: further
    columns of the scheduled record, each an aggregate over is_begin.
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
        F.max(F.when(is_begin, F.col("queue_id") + 1).otherwise(F.col("completed_level"))).alias(
            "level"
        ),
        F.max(F.when(is_begin, F.unix_millis("deliver_timestamp"))).alias("deliver_ms"),
        F.count(F.when(~is_begin, 1)).alias("completions"),
        F.min(F.when(~is_begin, place_and_code)).alias("_first"),
        F.min(F.when(~is_begin, stored_ms)).alias("completed_ms"),
        F.max(stored_ms).alias("newest_ms"),
        *extra,
    )
    first = F.array(*map(F.lit, COMPLETIONS))[(F.col("_first") % _CODES).cast("int")]
    return grouped.withColumn("completion", F.when(F.col("_first").isNotNull(), first)).drop(
        "_first"
    )


def _code(completion: Column) -> Column:
    """The index of the completion in COMPLETIONS."""
    code = F.lit(0)
    for number, name in enumerate(COMPLETIONS[1:], 1):
        code = F.when(completion == name, number).otherwise(code)
    return code
