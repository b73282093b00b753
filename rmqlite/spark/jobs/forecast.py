"""When the waiting messages come due, by topic and level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmqlite.spark.jobs import waits as w

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET_MS: Final = 60_000
SPAN_MS: Final = 6 * 3_600_000
STATES: Final = ("overdue", "sooner", "due", "later")


def log_forecast(
    read: w.Read,
    *,
    now_ms: int,
    from_ms: int | None = None,
    span_ms: int = SPAN_MS,
    bucket_ms: int = BUCKET_MS,
) -> DataFrame:
    """The forecast() of a log, persisted; RocketMQ's deliveries end waits, too."""

    def answer(waits: DataFrame) -> DataFrame:
        return forecast(waits, now_ms=now_ms, from_ms=from_ms, span_ms=span_ms, bucket_ms=bucket_ms)

    return w.paired(read, answer, F.col("state") == "overdue", "real_topic")


def forecast(
    waits: DataFrame,
    *,
    now_ms: int,
    from_ms: int | None = None,
    span_ms: int = SPAN_MS,
    bucket_ms: int = BUCKET_MS,
) -> DataFrame:
    """How many messages come due in each bucket from now on, or in [from_ms, from_ms + span_ms).

    waits: from waits() with real_topic, or ended(); ended waits are left out.  Columns: state
    (overdue, sooner than from_ms, due, or later than the span), due_timestamp (the begin of the
    bucket; null unless due), real_topic, level, messages.
    """
    due_ms = F.col("deliver_ms")
    # (begin, end]: a message that is due now is overdue, so the first bucket begins behind now.
    first_ms = now_ms + 1 if from_ms is None else from_ms
    state = (
        F.when(F.col("is_unsettled") | (due_ms <= now_ms), "overdue")
        .when(due_ms < first_ms, "sooner")
        .when(due_ms < first_ms + span_ms, "due")
        .otherwise("later")
    )
    begin_ms = now_ms if from_ms is None else from_ms
    bucket = F.floor((due_ms - first_ms) / bucket_ms) * bucket_ms + begin_ms
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
            F.array_position(F.array(*map(F.lit, STATES)), F.col("state")),
            "due_timestamp",
            "real_topic",
            "level",
        )
    )
