"""When the waiting messages come due, by topic and level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmqlite.spark.jobs import waits as w

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET_MS: Final = 60_000
SPAN_MS: Final = 6 * 3_600_000


def log_forecast(
    read: w.Read, *, now_ms: int, span_ms: int = SPAN_MS, bucket_ms: int = BUCKET_MS
) -> DataFrame:
    """The forecast() of a log, persisted; RocketMQ's deliveries end waits, too."""

    def answer(waits: DataFrame) -> DataFrame:
        return forecast(waits, now_ms=now_ms, span_ms=span_ms, bucket_ms=bucket_ms)

    return w.paired(read, answer, F.col("state") == "overdue", "real_topic")


def forecast(
    waits: DataFrame, *, now_ms: int, span_ms: int = SPAN_MS, bucket_ms: int = BUCKET_MS
) -> DataFrame:
    """How many messages come due in each bucket from now on.

    waits: from waits() with real_topic, or ended(); ended waits are left out.  Columns: state
    (overdue, due, or later than the span), due_timestamp (the begin of the bucket; null unless
    due), real_topic, level, messages.
    """
    ahead_ms = F.col("deliver_ms") - now_ms
    state = F.when(ahead_ms <= 0, "overdue").when(ahead_ms <= span_ms, "due").otherwise("later")
    # (begin, end]: a message that is due now is overdue, so the first bucket begins behind now.
    bucket = F.floor((ahead_ms - 1) / bucket_ms) * bucket_ms + now_ms
    waiting = waits.where(F.col("completion").isNull() & F.col("deliver_ms").isNotNull())
    return (
        waiting.withColumn("state", state)
        .groupBy(
            "state",
            F.when(F.col("state") == "due", F.timestamp_millis(bucket)).alias("due_timestamp"),
            "real_topic",
            "level",
        )
        .agg(F.count("*").alias("messages"))
        .orderBy(
            F.expr("array_position(array('overdue', 'due', 'later'), state)"),
            "due_timestamp",
            "real_topic",
            "level",
        )
    )
