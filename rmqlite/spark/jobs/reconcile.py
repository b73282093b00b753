"""Was every scheduled message delivered exactly once, and none early?

Each wait in the log is in one state:

    delivered, fired, rescheduled,    ended; the first record that ended it has the word
    cancelled, undeliverable
    pending     not ended, and not due when the newest record was stored
    overdue     due and not ended, and no message that was due clearly later has been delivered:
                the broker has a backlog, or was stopped
    missing     due and not ended, but a message that was due clearly later has been delivered
    orphan      ended, but the log lacks the scheduled record, although it reaches back to it
    expired     ended, and retention has deleted the scheduled record

The broker delivers messages in the order of their deliver times, across all levels.  So the
latest deliver time of a delivered message is a horizon: messages that were due more than slack
before it have had their turn.  Slack is for a level that rests for some seconds because its
files could not be read, and for a delivery that was just being written.  Fired messages do not
count for the horizon.

A second pass finds what RocketMQ's own records ended (see waits.py); it runs only if a due message
has not ended, or RocketMQ has copied or cancelled a timer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from rmqlite.spark.jobs import waits as w
from rmqlite.spark.tables import collected

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS: Final = w.COLUMNS
SLACK_MS: Final = 60_000
ENDED: Final = w.COMPLETIONS
OPEN: Final = ("pending", "overdue", "missing")
STATES: Final = (*ENDED, *OPEN, "orphan", "expired")
BROKEN: Final = ("missing", "orphan", "duplicates", "early")
"""The counts that are 0 if the promises held."""
OFFENDERS_SCHEMA: Final = (
    "what string, level int, unique_key string, real_topic string, real_queue_id int,"
    " end_offset bigint, deliver_timestamp timestamp, completion string, completions bigint,"
    " completed_timestamp timestamp, early_ms bigint"
)
"""The columns of offenders()."""
_COUNTS: Final = ("messages", "duplicates", "early", "without_pointer")
_SECOND_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of audit(); rows: the table of reconcile().

    now_ms: a message that is due later is pending.  horizon_ms: see above; None if no message
    was delivered.
    """

    rows: Sequence[dict[str, Any]]
    now_ms: int | None
    horizon_ms: int | None
    offenders: DataFrame | None
    """The table of offenders(); None if the promises held."""

    @property
    def held(self) -> bool:
        return not any(self.total(name) for name in BROKEN)

    def total(self, name: str) -> int:
        """The messages in a state, or the sum of duplicates, early or without_pointer."""
        if name in STATES:
            return sum(row["messages"] for row in self.rows if row["state"] == name)
        return sum(row[name] for row in self.rows)


def audit(
    read: w.Read,
    *,
    begin_offset: int = 0,
    now_ms: int = 0,
    slack_ms: int = SLACK_MS,
) -> Audit:
    """Reconcile the records of read(), and a second time if that can find more.

    begin_offset: the physical offset at which the records begin.  now_ms: the store time of the
    newest record; 0 means that of the newest record that begins or ends a wait.
    """
    first = collected(
        reconcile(read(COLUMNS), begin_offset=begin_offset, now_ms=now_ms, slack_ms=slack_ms)
    )
    found = _audit(first, None)
    if found.held and not found.total("overdue"):
        return found
    # What stated() adds needs the waits twice; to find them is the work.
    ended = w.ended(read(w.MORE_COLUMNS)).persist()
    found_waits = stated(ended, begin_offset=begin_offset, now_ms=now_ms, slack_ms=slack_ms)
    second = _audit(collected(counted(found_waits)), None)
    if second.held:
        ended.unpersist()
        return second
    return _audit(second.rows, offenders(found_waits))


def reconcile(
    records: DataFrame, *, begin_offset: int = 0, now_ms: int = 0, slack_ms: int = SLACK_MS
) -> DataFrame:
    """How many messages of each level are in each state, in one pass over COLUMNS.

    Columns: level, state, messages, duplicates (further ends of waits that had ended), early,
    without_pointer (0), now_timestamp, horizon_timestamp.
    """
    # Open waits are counted by the second in which they are due.  These are few rows, so a
    # window over all of them finds the horizon without a second pass.
    is_open = F.col("completion").isNull()
    is_ahead = F.when(is_open, F.col("deliver_ms") > now_ms) if now_ms else F.lit(None)
    # Timers may be due in very many seconds; those ahead of a given now need none.
    has_second = is_open & ~F.coalesce(is_ahead.cast("boolean"), F.lit(False))
    deliver_s = F.when(has_second, (F.col("deliver_ms") / _SECOND_MS).cast("long"))
    seconds = (
        w.waits(records)
        .withColumn("without_pointer", F.lit(False))
        .groupBy(
            "level",
            "completion",
            F.col("deliver_ms").isNull().alias("is_orphan"),
            (F.col("end_offset") <= begin_offset).alias("is_expired"),
            deliver_s.alias("deliver_s"),
            is_ahead.cast("boolean").alias("is_ahead"),
            "is_unsettled",
        )
        .agg(
            *_counts(),
            _delivered_ms().alias("delivered_ms"),
            F.max("newest_ms").alias("newest_ms"),
        )
    )
    due_ms = F.col("deliver_s") * _SECOND_MS
    # Overdue, so that the second pass finds out.
    is_pending = ~F.col("is_unsettled") & F.coalesce("is_ahead", due_ms > F.col("now_ms"))
    state = _state(is_pending, due_ms, slack_ms)
    return _summed(_with_limits(seconds, now_ms).withColumn("state", state))


def stated(
    waits: DataFrame, *, begin_offset: int = 0, now_ms: int = 0, slack_ms: int = SLACK_MS
) -> DataFrame:
    """The waits of ended() with their state, duplicates, is_early, now_ms and horizon_ms."""
    limits = waits.agg(_newest(F.max("newest_ms"), now_ms), _delivered_ms().alias("horizon_ms"))
    # Round to the second, as reconcile() does.
    due_ms = F.col("deliver_ms") - F.col("deliver_ms") % _SECOND_MS
    return (
        waits.crossJoin(F.broadcast(limits))
        .withColumn("is_orphan", F.col("deliver_ms").isNull())
        .withColumn("is_expired", F.col("end_offset") <= begin_offset)
        .withColumn("state", _state(F.col("deliver_ms") > F.col("now_ms"), due_ms, slack_ms))
        .withColumn("duplicates", F.greatest(F.col("completions") - 1, F.lit(0)))
        .withColumn("is_early", F.coalesce(_is_early(), F.lit(False)))
    )


def counted(waits: DataFrame) -> DataFrame:
    """The table of reconcile() for the waits of stated()."""
    return _summed(waits.groupBy("level", "state", "now_ms", "horizon_ms").agg(*_counts()))


def offenders(waits: DataFrame) -> DataFrame:
    """The waits of stated() that broke a promise, in the order of the log.

    Columns: what (missing, orphan, duplicate, early), level, unique_key, real_topic,
    real_queue_id, end_offset (of the scheduled record), deliver_timestamp, completion,
    completions, completed_timestamp, early_ms.
    """
    wrong = {
        "missing": F.col("state") == "missing",
        "orphan": F.col("state") == "orphan",
        "duplicate": F.col("duplicates") > 0,
        "early": F.col("is_early"),
    }
    what = F.array_compact(F.array(*[F.when(is_so, name) for name, is_so in wrong.items()]))
    return (
        waits.where(reduce(lambda one, other: one | other, wrong.values()))
        .select(
            F.concat_ws(", ", what).alias("what"),
            "level",
            "unique_key",
            "real_topic",
            "real_queue_id",
            "end_offset",
            F.timestamp_millis("deliver_ms").alias("deliver_timestamp"),
            "completion",
            "completions",
            F.timestamp_millis("completed_ms").alias("completed_timestamp"),
            F.when(F.col("is_early"), F.col("deliver_ms") - F.col("completed_ms")).alias(
                "early_ms"
            ),
        )
        .orderBy("end_offset")
    )


def _audit(rows: Sequence[dict[str, Any]], wrong: DataFrame | None) -> Audit:
    limits = rows[0] if rows else {}
    return Audit(rows, limits.get("now_timestamp_ms"), limits.get("horizon_timestamp_ms"), wrong)


def _state(is_pending: Column, due_ms: Column, slack_ms: int) -> Column:
    """The state, from these and the columns completion, is_orphan, is_expired, horizon_ms."""
    open_state = (
        F.when(is_pending, "pending")
        .when(due_ms < F.col("horizon_ms") - slack_ms, "missing")
        .otherwise("overdue")
    )
    return (
        F.when(F.col("is_orphan") & F.col("is_expired"), "expired")
        .when(F.col("is_orphan"), "orphan")
        .otherwise(F.coalesce(F.col("completion"), open_state))
    )


def _is_early() -> Column:
    may_be = F.col("completion").isin(*w.MAY_BE_EARLY)
    return ~may_be & (F.col("completed_ms") < F.col("deliver_ms"))


def _delivered_ms() -> Column:
    return F.max(F.when(F.col("completion") == w.DELIVERED, F.col("deliver_ms")))


def _counts() -> list[Column]:
    """The counts of a group of waits, named as _COUNTS."""
    return [
        F.count("*").alias("messages"),
        F.sum(F.greatest(F.col("completions") - 1, F.lit(0))).alias("duplicates"),
        F.count(F.when(_is_early(), 1)).alias("early"),
        F.count(F.when(F.col("without_pointer"), 1)).alias("without_pointer"),
    ]


def _newest(of_waits_ms: Column, now_ms: int) -> Column:
    return F.greatest(of_waits_ms, F.lit(now_ms)).alias("now_ms")


def _with_limits(groups: DataFrame, now_ms: int) -> DataFrame:
    """Add now_ms and horizon_ms of all groups, which are as few as seconds with open waits."""
    everything = Window.partitionBy(F.lit(0))
    return groups.select(
        "*",
        _newest(F.max("newest_ms").over(everything), now_ms),
        F.max("delivered_ms").over(everything).alias("horizon_ms"),
    )


def _summed(groups: DataFrame) -> DataFrame:
    return (
        groups.groupBy("level", "state")
        .agg(
            *[F.sum(name).alias(name) for name in _COUNTS],
            F.timestamp_millis(F.max("now_ms")).alias("now_timestamp"),
            F.timestamp_millis(F.max("horizon_ms")).alias("horizon_timestamp"),
        )
        .orderBy("level", "state")
    )
