"""Were the messages of each topic and day delivered in time, and all of them?

A service level: of the messages that were due on a day, the share that was delivered at most so
late, and the share that was delivered at all.  Fired, rescheduled and cancelled messages do not
count, because nobody waited for their deliver time; nor do deliveries whose scheduled record
retention has deleted, because nobody knows when they were due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmqlite.spark.jobs import waits as w
from rmqlite.spark.tables import utc_day

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNDELIVERABLE: Final = "undeliverable"


@dataclass(frozen=True, slots=True)
class Target:
    """At least these shares, 0 to 1, of the messages of a topic and day.

    within_ms: a delivery is in time if it was at most so late.
    """

    within_ms: int = 1_000
    in_time: float = 0.999
    complete: float = 1.0


@dataclass(frozen=True, slots=True)
class Due:
    """Which messages: of these topics (empty: all), due at since_ms <= time < until_ms."""

    topics: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None


EVERYTHING: Final = Due()


def log_service_levels(
    read: w.Read, target: Target, *, now_ms: int, due: Due = EVERYTHING
) -> DataFrame:
    """The service_levels() of a log, persisted; RocketMQ's deliveries count, too.

    now_ms: the store time of the newest record.
    """

    def answer(waits: DataFrame) -> DataFrame:
        return service_levels(waits, target, now_ms=now_ms, due=due)

    is_open = (F.col("undelivered") > 0) | (F.col("undecided") > 0)
    return w.paired(read, answer, is_open, "real_topic")


def service_levels(
    waits: DataFrame, target: Target, *, now_ms: int, due: Due = EVERYTHING
) -> DataFrame:
    """One row for each topic and day (UTC) on which messages of it were due until now_ms.

    waits: from waits() with real_topic, or ended().  Columns: real_topic, day, due (all but the
    undecided), in_time, late, undelivered (due, and neither delivered nor in time any more),
    undecided (due, not delivered, and still in time), p99_ms and max_ms (late), in_time_share and
    complete_share (of due), is_met.
    """
    deliver_ms, is_open = F.col("deliver_ms"), F.col("completion").isNull()
    late_ms = F.col("completed_ms") - deliver_ms
    is_delivered = F.col("completion").eqNullSafe(w.DELIVERED)
    is_unsettled = F.col("is_unsettled")
    is_undecided = is_open & (deliver_ms + target.within_ms >= now_ms) | is_unsettled
    is_in_time = is_delivered & (late_ms <= target.within_ms)
    counts = {
        "due": ~is_undecided,
        "in_time": is_in_time,
        "late": is_delivered & ~is_in_time,
        "undelivered": ~is_delivered & ~is_undecided,
        "undecided": is_undecided,
    }
    wanted = (deliver_ms <= now_ms) & (
        is_open | F.col("completion").isin(w.DELIVERED, _UNDELIVERABLE)
    )
    if due.topics:
        wanted &= F.col("real_topic").isin(*due.topics)
    if due.since_ms is not None:
        wanted &= deliver_ms >= due.since_ms
    if due.until_ms is not None:
        wanted &= deliver_ms < due.until_ms
    wanted |= is_unsettled
    columns = [F.count(F.when(is_so, 1)).alias(name) for name, is_so in counts.items()]
    shares = {"in_time_share": F.col("in_time"), "complete_share": F.col("in_time") + F.col("late")}
    is_met = (F.col("in_time_share") >= target.in_time) & (
        F.col("complete_share") >= target.complete
    )
    return (
        waits.where(wanted)
        .withColumn("due_timestamp", F.timestamp_millis(deliver_ms))
        .withColumn("late_ms", F.when(is_delivered, late_ms))
        .groupBy("real_topic", utc_day("due_timestamp").alias("day"))
        .agg(
            *columns,
            F.percentile("late_ms", 0.99).alias("p99_ms"),
            F.max("late_ms").alias("max_ms"),
        )
        .withColumns(
            {name: F.when(F.col("due") > 0, n / F.col("due")) for name, n in shares.items()}
        )
        .withColumn("is_met", F.coalesce(is_met, F.lit(True)))
        .orderBy("day", "real_topic")
    )
