"""Did a redrive work?  What became of each dead letter that was sent again.

Every record of a redriven message has the dead letter's place, and a message id that is made of
it.  So a dead letter, or else the last record of a message, says where it is:

    waiting      in the schedule, or given out and not read by the group yet
    consumed     given out, and read: the group's committed offset is behind it
    dead         a dead letter again, whatever was done to that one since
    cancelled    its delivery was cancelled
    elsewhere    sent to a topic that the group has never read

Only the group that had failed the message counts, also if other groups read the same topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmqlite.kernel.words.message import REDRIVE_ID_PREFIX
from rmqlite.kernel.words.names import CANCELLED_TOPIC, DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_GROUP
from rmqlite.spark.jobs.waits import is_scheduled

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS: Final = (
    *("topic", "queue_id", "queue_offset", "real_topic", "unique_key", "physical_offset"),
    *("store_timestamp", "redriven_from", "redriven_by", "reconsume_times", "failure_kind"),
)
"""The columns to read from the log."""
STATES: Final = ("consumed", "waiting", "dead", "cancelled", "elsewhere")


def redriven(records: DataFrame, committed: DataFrame | None = None) -> DataFrame:
    """One row for each redriven message among the records (COLUMNS).

    Columns: redriven_by, consumer_group (that failed it), redriven_from, unique_key,
    sent_timestamp, state (of STATES), attempts (how often it failed since), failure_kind (of the
    last failure, if any), changed_timestamp (of its last record).  committed: from committed();
    without it what was given out counts as consumed.
    """
    found = _of_the_group(records)
    is_read: Column = F.lit(True)
    if committed is not None:
        keys = ["consumer_group", "topic", "queue_id"]
        found = found.join(F.broadcast(committed), keys, "left")
        # A group reads its retry topic; that it reads another one its offset there says.
        unread = F.when(F.col("topic").startswith(RETRY_PREFIX), F.lit(-1))
        is_read = F.col("queue_offset") < F.coalesce("committed_offset", unread)
    is_dead = F.col("topic").startswith(DLQ_PREFIX)
    state = (
        F.when(is_dead, "dead")
        .when(is_scheduled(), "waiting")
        .when(F.col("topic") == CANCELLED_TOPIC, "cancelled")
        .when(is_read, "consumed")
        .otherwise(F.when(is_read.isNull(), "elsewhere").otherwise("waiting"))
    )
    last = F.struct("consumer_group", "redriven_by", state.alias("state"), "failure_kind")
    return (
        found.groupBy("redriven_from", "unique_key")
        .agg(
            F.max_by(last, F.struct(is_dead, "physical_offset")).alias("last"),
            F.min("store_timestamp").alias("sent_timestamp"),
            F.max("store_timestamp").alias("changed_timestamp"),
            F.max("reconsume_times").alias("attempts"),
        )
        .select(
            "last.redriven_by",
            "last.consumer_group",
            "redriven_from",
            "unique_key",
            "sent_timestamp",
            "last.state",
            "attempts",
            F.when(F.col("attempts") > 0, F.col("last.failure_kind")).alias("failure_kind"),
            "changed_timestamp",
        )
    )


def only(
    redriven: DataFrame,
    job_id: str = "",
    since_ms: int | None = None,
    until_ms: int | None = None,
    groups: Sequence[str] = (),
) -> DataFrame:
    """The rows of redriven() of a job and of these groups, sent at since_ms <= time < until_ms."""
    sent_ms, wanted = F.unix_millis("sent_timestamp"), F.lit(True)
    if job_id:
        wanted &= F.col("redriven_by") == job_id
    if groups:
        wanted &= F.col("consumer_group").isin(*groups)
    if since_ms is not None:
        wanted &= sent_ms >= since_ms
    if until_ms is not None:
        wanted &= sent_ms < until_ms
    return redriven.where(wanted)


def summary(redriven: DataFrame) -> DataFrame:
    """One row for each job and group, the last job first.

    Columns: redriven_by, consumer_group, sent_timestamp (of the first message), sent, one column
    for each of STATES, success_rate (consumed / (consumed + dead)), top_kind (the most frequent
    kind of failure of those that are dead again).
    """
    state = F.col("state")
    counts = [F.count(F.when(state == name, 1)).alias(name) for name in STATES]
    is_over = F.col("consumed") + F.col("dead")
    kind = F.when(state == "dead", F.coalesce("failure_kind", F.lit("(no reason)")))
    return (
        redriven.withColumn("kind", kind)
        .groupBy("redriven_by", "consumer_group")
        .agg(
            F.min("sent_timestamp").alias("sent_timestamp"),
            F.count("*").alias("sent"),
            *counts,
            F.mode("kind", deterministic=True).alias("top_kind"),
        )
        .withColumn("success_rate", F.when(is_over > 0, F.col("consumed") / is_over))
        .select(
            "redriven_by",
            "consumer_group",
            "sent_timestamp",
            "sent",
            *STATES,
            "success_rate",
            "top_kind",
        )
        .orderBy(F.desc("sent_timestamp"), "redriven_by", "consumer_group")
    )


def _of_the_group(records: DataFrame) -> DataFrame:
    """The records of redriven messages with consumer_group, without those of other groups."""
    # A listener may forward a redriven message with all its properties: that is another message.
    own = F.concat(F.lit(REDRIVE_ID_PREFIX), F.col("redriven_from"))
    key = F.col("unique_key")
    is_own = (key == own) | key.startswith(F.concat(own, F.lit(":")))
    # On its way to its real topic, or stopped there.
    topic = F.col("topic")
    is_before = is_scheduled() | topic.isin(CANCELLED_TOPIC, DLQ_PREFIX + SCHEDULE_GROUP)
    place = F.when(is_before, F.col("real_topic")).otherwise(topic)
    in_group = F.regexp_extract(place, f"^(?:{RETRY_PREFIX}|{DLQ_PREFIX})(.+)$", 1)
    from_group = F.regexp_extract("redriven_from", f"^{DLQ_PREFIX}(.+):[0-9]+:[0-9]+$", 1)
    # No group has failed a dead letter of the schedule: it counts in the group that gets it.
    is_any = (from_group == SCHEDULE_GROUP) & (in_group != "")
    group = F.when(is_any, in_group).otherwise(from_group)
    return records.withColumn("consumer_group", group).where(is_own & in_group.isin("", group))
