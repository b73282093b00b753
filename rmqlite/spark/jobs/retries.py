"""The retry funnel: how often a failed message is tried again, and which try succeeds.

The log has a record for each failure (one that waits for %RETRY%group, or a dead letter) and
one for each time that the message was given out again (in %RETRY%group).  It has no record of a
success: a success only moves the group's offset.  So a message that was given out and did not
fail again counts as succeeded, unless the group's committed offset shows that no consumer has
read it yet: then it is in hand.  Messages that never failed do not appear here.  A letter that was
redriven stays dead; the message that the redrive sent is counted as another message if it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from rmqlite.kernel.words.message import REDRIVE_ID_PREFIX
from rmqlite.kernel.words.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_GROUP
from rmqlite.spark.jobs.dead_letters import kind_of
from rmqlite.spark.jobs.waits import CANCELLED, is_scheduled

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "unique_key",
    "delay_level",
    "real_topic",
    "born_timestamp",
    "store_timestamp",
    "reconsume_times",
    "store_size",
    "origin_topic",
    "origin_message_id",
    "failure_reason",
    "end_offset",
    "completes",
    "completion",
)
STATES: Final = ("succeeded", "in_hand", "waiting", "cancelled", "dead")
"""What has become of a message that failed; columns of summary()."""
REASONS: Final = 5
"""How many kinds of reasons reasons() returns for each group."""
_FAILED: Final = "failed"
_AGAIN: Final = "given out again"
_DEAD: Final = "dead"
_OF_MESSAGE: Final = ("consumer_group", "origin_topic", "message_id")


def failures(
    records: DataFrame, committed: DataFrame | None = None, groups: Sequence[str] = ()
) -> DataFrame:
    """The failures and retries among the records (COLUMNS), in one pass.

    Columns: consumer_group, origin_topic, message_id, kind (failed, given out again, dead),
    attempt (1 is the first retry), delay_level, failure_kind, born_ms, stored_ms, record_bytes,
    is_read, is_cancelled.  committed: from committed(); without it every record counts as read.
    groups: only of these, or of all.
    """
    topic = F.col("topic")
    waits = is_scheduled() & F.col("real_topic").startswith(RETRY_PREFIX)
    is_again, is_dead = topic.startswith(RETRY_PREFIX), topic.startswith(DLQ_PREFIX)
    kind = F.when(waits, _FAILED).when(is_again, _AGAIN).when(is_dead, _DEAD)
    place = F.when(waits, F.col("real_topic")).otherwise(topic)
    # A scheduled message that could not be delivered has failed in no consumer group, and a
    # redriven one whose attempts begin anew has not failed yet.
    is_failure = is_dead | ((waits | is_again) & (F.col("reconsume_times") > 0))
    group = F.regexp_replace(place, f"^({RETRY_PREFIX}|{DLQ_PREFIX})", "")
    is_failure &= topic != DLQ_PREFIX + SCHEDULE_GROUP
    if groups:
        is_failure &= group.isin(*groups)
    is_cancellation = F.col("completion") == CANCELLED
    of_wait = F.when(is_cancellation, F.col("completes")).otherwise(F.col("end_offset"))
    cancelled = F.max(is_cancellation).over(Window.partitionBy("of_wait"))
    failed = (
        records.withColumn("is_failure", is_failure)
        .where(F.col("is_failure") | is_cancellation)
        .withColumn("of_wait", of_wait)
        .withColumn("is_cancelled", F.coalesce(cancelled, F.lit(False)))
        .where("is_failure")
        .withColumn("consumer_group", group)
    )
    is_read: Column = F.lit(True)
    if committed is not None:
        keys = ["consumer_group", "topic", "queue_id"]
        failed = failed.join(F.broadcast(committed), keys, "left")
        is_read = F.col("queue_offset") < F.coalesce("committed_offset", F.lit(0))
    return failed.select(
        "consumer_group",
        "origin_topic",
        # A redriven message is another one than that which died.
        F.when(F.col("unique_key").startswith(REDRIVE_ID_PREFIX), F.col("unique_key"))
        .otherwise(F.coalesce("origin_message_id", "unique_key"))
        .alias("message_id"),
        kind.alias("kind"),
        F.col("reconsume_times").alias("attempt"),
        F.when(waits, F.col("delay_level")).alias("delay_level"),
        kind_of("failure_reason").alias("failure_kind"),
        F.unix_millis("born_timestamp").alias("born_ms"),
        F.unix_millis("store_timestamp").alias("stored_ms"),
        F.col("store_size").alias("record_bytes"),
        is_read.alias("is_read"),
        "is_cancelled",
    )


def messages(failures: DataFrame) -> DataFrame:
    """One row for each message that failed, with its last retry and its state.

    Columns: consumer_group, origin_topic, message_id, given_out (the last retry that was given
    out, 0 for none), failed (how often), state (succeeded, in hand, waiting, cancelled, dead),
    to_success_ms (if it succeeded: from its birth to the last time that it was given out).
    """
    kind, attempt = F.col("kind"), F.col("attempt")
    grouped = failures.groupBy(*_OF_MESSAGE).agg(
        F.coalesce(F.max(F.when(kind == _AGAIN, attempt)), F.lit(0)).alias("given_out"),
        F.coalesce(F.max(F.when((kind == _AGAIN) & F.col("is_read"), attempt)), F.lit(0)).alias(
            "read"
        ),
        F.max(attempt).alias("failed"),
        F.count(F.when(kind == _DEAD, 1)).alias("letters"),
        F.max(F.when(F.col("is_cancelled"), attempt)).alias("cancelled"),
        F.min("born_ms").alias("born_ms"),
        F.max(F.when(kind == _AGAIN, F.col("stored_ms"))).alias("again_ms"),
    )
    is_open = F.col("given_out") < F.col("failed")
    state = (
        F.when(F.col("letters") > 0, "dead")
        .when(is_open & (F.col("cancelled") == F.col("failed")), "cancelled")
        .when(is_open, "waiting")
        .when(F.col("read") < F.col("given_out"), "in hand")
        .otherwise("succeeded")
    )
    took_ms = F.when(F.col("state") == "succeeded", F.col("again_ms") - F.col("born_ms"))
    return grouped.withColumn("state", state).select(
        *_OF_MESSAGE, "given_out", "failed", "state", took_ms.alias("to_success_ms")
    )


def funnel(messages: DataFrame) -> DataFrame:
    """The outcomes of each retry, one row per group, topic and attempt; attempt 1 first.

    Columns: consumer_group, origin_topic, attempt, reached (messages that got this retry),
    succeeded (and did not fail since), failed (again after it), dead (of those), in_hand,
    success_rate (succeeded / (succeeded + failed)), waiting (for this retry), cancelled.
    """
    attempt, state = F.col("attempt"), F.col("state")
    last = F.greatest(
        "given_out", F.when(state.isin("waiting", "cancelled"), F.col("failed")), F.lit(1)
    )
    is_last = attempt == F.col("given_out")
    counts = {
        "reached": attempt <= F.col("given_out"),
        "succeeded": is_last & (state == "succeeded"),
        "failed": (attempt <= F.col("given_out")) & (F.col("failed") > attempt),
        "dead": is_last & (state == "dead"),
        "in_hand": is_last & (state == "in hand"),
        "waiting": (state == "waiting") & (attempt == F.col("failed")),
        "cancelled": (state == "cancelled") & (attempt == F.col("failed")),
    }
    table = (
        messages.withColumn("attempt", F.explode(F.sequence(F.lit(1), last)))
        .groupBy("consumer_group", "origin_topic", "attempt")
        .agg(*[F.count(F.when(is_so, 1)).alias(name) for name, is_so in counts.items()])
    )
    known = F.col("succeeded") + F.col("failed")
    return table.select(
        "consumer_group",
        "origin_topic",
        "attempt",
        "reached",
        "succeeded",
        "failed",
        "dead",
        "in_hand",
        F.when(known > 0, F.col("succeeded") / known).alias("success_rate"),
        "waiting",
        "cancelled",
    ).orderBy("consumer_group", "origin_topic", "attempt")


def summary(messages: DataFrame) -> DataFrame:
    """The states of the failed messages, one row per group and origin topic.

    Columns: consumer_group, origin_topic, messages, succeeded, in_hand, waiting, cancelled,
    dead, and the time to success: to_success_p50_ms, to_success_p99_ms.
    """
    took = F.percentile("to_success_ms", [0.5, 0.99])
    return (
        messages.groupBy("consumer_group", "origin_topic")
        .agg(
            F.count("*").alias("messages"),
            *[
                F.count(F.when(F.col("state") == name.replace("_", " "), 1)).alias(name)
                for name in STATES
            ],
            took[0].alias("to_success_p50_ms"),
            took[1].alias("to_success_p99_ms"),
        )
        .orderBy("consumer_group", "origin_topic")
    )


def reasons(failures: DataFrame, *, most: int = REASONS) -> DataFrame:
    """The kinds of reasons that consumers gave most often, and one row for the rest of a group.

    Columns: consumer_group, failure_kind (null for the rest), failures, kinds (how many kinds the
    row counts).
    """
    per_group = Window.partitionBy("consumer_group").orderBy(F.desc("failures"), "failure_kind")
    return (
        _each_once(failures)
        .groupBy("consumer_group", "failure_kind")
        .agg(F.count("*").alias("failures"))
        .withColumn("nth", F.least(F.row_number().over(per_group), F.lit(most + 1)))
        .groupBy("consumer_group", "nth")
        .agg(
            F.when(F.col("nth") <= most, F.first("failure_kind")).alias("failure_kind"),
            F.sum("failures").alias("failures"),
            F.count("*").alias("kinds"),
        )
        .orderBy("consumer_group", "nth")
        .drop("nth")
    )


def levels(failures: DataFrame) -> DataFrame:
    """The levels at which retries wait: consumer_group, delay_level, retries, attempts (a list)."""
    return (
        failures.where(F.col("kind") == _FAILED)
        .groupBy("consumer_group", "delay_level")
        .agg(
            F.count("*").alias("retries"),
            F.sort_array(F.collect_set("attempt")).alias("attempts"),
        )
        .orderBy("consumer_group", "delay_level")
    )


def costs(failures: DataFrame) -> DataFrame:
    """What failures cost each group: one row per group and origin topic, the most bytes first.

    Columns: consumer_group, origin_topic, messages (that failed), attempts (times that they were
    given out again), dead, records and record_bytes (of the log: what failures and retries added),
    waited_ms (all waits between a failure and the next attempt, without those that go on).
    """
    is_again = F.col("kind") == _AGAIN
    # A retry that was rescheduled has several records of one failure: the wait began at the first.
    of_attempt = failures.groupBy(*_OF_MESSAGE, "attempt").agg(
        F.count(F.when(is_again, 1)).alias("attempts"),
        F.count(F.when(F.col("kind") == _DEAD, 1)).alias("dead"),
        F.count("*").alias("records"),
        F.sum("record_bytes").alias("record_bytes"),
        (
            F.max(F.when(is_again, F.col("stored_ms")))
            - F.min(F.when(~is_again, F.col("stored_ms")))
        ).alias("waited_ms"),
    )
    sums = ("attempts", "dead", "records", "record_bytes", "waited_ms")
    return (
        of_attempt.groupBy("consumer_group", "origin_topic")
        .agg(
            F.count_distinct("message_id").alias("messages"),
            *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in sums],
        )
        .orderBy(F.desc("record_bytes"), "consumer_group", "origin_topic")
    )


def _each_once(failures: DataFrame) -> DataFrame:
    """Every failure once; a retry that was rescheduled has several records of one failure."""
    return failures.where(F.col("kind") != _AGAIN).dropDuplicates([*_OF_MESSAGE, "attempt"])
