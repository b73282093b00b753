"""How late scheduled messages were delivered: store time of the delivery - deliver time.

All figures are exact.  There are few distinct latenesses in milliseconds, so one pass counts the
messages of each, and every table and plot is made from these counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmqlite.spark.jobs import waits as w

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LATE_MS: Final = 100
BY_LEVEL_AND_HOUR: Final = ("level", "hour")


def log_counts(
    read: w.Read, *, now_ms: int, since_ms: int | None = None, until_ms: int | None = None
) -> DataFrame:
    """The lateness_counts() of a log, persisted; RocketMQ's deliveries count, too.

    now_ms: the store time of the newest record.
    """

    def answer(waits: DataFrame) -> DataFrame:
        return lateness_counts(waits, now_ms=now_ms, since_ms=since_ms, until_ms=until_ms)

    return w.paired(read, answer, F.col("late_ms").isNull())


def lateness_counts(
    waits: DataFrame,
    *,
    now_ms: int = 0,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> DataFrame:
    """How many messages had which lateness: level, hour (of the delivery), late_ms, messages.

    waits: from waits() or ended(); only deliveries that were stored in [since_ms, until_ms) are
    counted.  Fired, rescheduled and cancelled messages are left out, because they were not
    meant to wait until their deliver time.  A row without hour and late_ms counts the messages
    that are due at now_ms and not ended.
    """
    completed_ms, deliver_ms = F.col("completed_ms"), F.col("deliver_ms")
    is_wanted = (F.col("completion") == w.DELIVERED) & deliver_ms.isNotNull()
    if since_ms is not None:
        is_wanted &= completed_ms >= since_ms
    if until_ms is not None:
        is_wanted &= completed_ms < until_ms
    is_overdue = F.col("completion").isNull() & (deliver_ms <= now_ms) | F.col("is_unsettled")
    return (
        waits.where(is_wanted | is_overdue)
        .groupBy(
            "level",
            F.timestamp_millis(completed_ms - completed_ms % 3_600_000).alias("hour"),
            (completed_ms - deliver_ms).alias("late_ms"),
        )
        .agg(F.count("*").alias("messages"))
        .select("level", "hour", "late_ms", "messages")
    )


def lateness(
    counts: DataFrame, *, by: Sequence[str] = BY_LEVEL_AND_HOUR, late_ms: int = LATE_MS
) -> DataFrame:
    """The figures of lateness_counts(): by, messages, p50_ms, p90_ms, p99_ms, min_ms,
    max_ms, late_share, early.

    A percentile between two values is interpolated.  late_share: the share of messages that were
    more than late_ms late.  early: how many were delivered before their deliver time, which
    should be none.
    """
    late, messages = F.col("late_ms"), F.col("messages")

    def those(is_one: Column) -> Column:
        return F.sum(F.when(is_one, messages).otherwise(0))

    percentiles = F.percentile(late, [0.5, 0.9, 0.99], messages)
    table = (
        counts.where(late.isNotNull())
        .groupBy(*by)
        .agg(
            F.sum(messages).alias("messages"),
            percentiles.alias("_percentiles"),
            F.min(late).alias("min_ms"),
            F.max(late).alias("max_ms"),
            (those(late > late_ms) / F.sum(messages)).alias("late_share"),
            those(late < 0).alias("early"),
        )
    )
    figures = [
        F.col("_percentiles")[number].alias(name)
        for number, name in enumerate(("p50_ms", "p90_ms", "p99_ms"))
    ]
    columns: list[str | Column] = [
        *by,
        "messages",
        *figures,
        "min_ms",
        "max_ms",
        "late_share",
        "early",
    ]
    shown = table.select(columns)
    return shown.orderBy(*by) if by else shown
