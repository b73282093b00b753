"""Every wait of a scheduled message, with its begin and its end in one row.

The record that ends a wait has `completes`, the end offset of the scheduled record; so both
have the same key, and waits() finds the pairs in one pass.  A rescheduled record ends one wait
and begins another: it has two keys.  Only numbers are aggregated: text would make Spark sort
instead of hash.

RocketMQ's own records do not point back.  ended() also finds its deliveries from levels, by
message id, destination and reconsume times.  Its timers are followed step by step: those of one
timer come together in the order of the log, and take the steps that the store takes when it opens
such a log (kernel/records/completion.py).  It costs a second pass, which paired() saves if pointers
alone have ended every message that is due, and RocketMQ has no timer copied or cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rmqlite.kernel.records import wait_queues
from rmqlite.kernel.records.completion import Completion, Over, TimerStep, TimerSteps
from rmqlite.kernel.words.names import TIMER_TOPIC, WAIT_TOPICS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    Read = Callable[[Sequence[str]], DataFrame]
    """Reads these columns of all records of a log."""


_COMPLETIONS: Final = {
    Over.DELIVERED: Completion.DELIVERED.value,
    Over.CANCELLED: Completion.CANCELLED.value,
    Over.ROLLED: Completion.CARRIED.value,
}
"""Whatever else is over has never waited for a user."""
_Wait = dict[str, Any]
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
    "timer_step",
)
SAME: Final = ("unique_key", "real_topic", "real_queue_id", "reconsume_times")
"""The columns that a scheduled record and its delivery by RocketMQ have in common."""
MORE_COLUMNS: Final = (*COLUMNS, "delay_level", "timer", *SAME)
"""The columns for ended()."""
DELIVERED: Final = Completion.DELIVERED.value
CANCELLED: Final = Completion.CANCELLED.value
COMPLETIONS: Final = tuple(each.value for each in Completion)
MAY_BE_EARLY: Final = tuple(each.value for each in Completion if each.may_be_early)
TIMERS: Final = wait_queues.TIMERS
"""The level of a timer, as in every answer of the broker."""
_CODES: Final = 8
"""More than the number of completions: a code fits beside a physical offset in one number."""
_NO_WAITS: Final = tuple(
    each.value for each in (TimerStep.COPY, TimerStep.RECALL, TimerStep.INTERNAL)
)
"""Steps that say that this record, or another one, may not wait."""
_DELIVERIES: Final = tuple(each.value for each in (TimerStep.DELIVERY, TimerStep.COPY_DELIVERY))


def followed(waits: DataFrame, deliveries: DataFrame) -> DataFrame:
    """These waits of timers as their steps end them, with without_pointer; some are left out.

    waits: of waits(), with timer and timer_step.  deliveries: the records that deliver some.
    """
    begins = waits.withColumn("place", F.col("end_offset") - 1)
    delivered = deliveries.select(
        "timer",
        "timer_step",
        F.col("physical_offset").alias("place"),
        F.unix_millis("store_timestamp").alias("newest_ms"),
    )
    rows = begins.unionByName(delivered, allowMissingColumns=True)
    row = F.struct("place", *waits.columns)
    schema = T.StructType([*waits.schema.fields, T.StructField("without_pointer", T.BooleanType())])
    settled = F.udf(_settled, T.ArrayType(schema), useArrow=False)
    together = rows.groupBy("timer").agg(F.sort_array(F.collect_list(row)).alias("rows"))
    return together.select(F.inline(settled("rows")))


def _settled(rows: Iterable[Row]) -> list[_Wait]:
    """The waits of one timer, from its rows in the order of the log."""
    waits: dict[int, _Wait] = {
        row.place: {**row.asDict(), "without_pointer": False, "is_unsettled": False}
        for row in rows
        if row.end_offset is not None
    }
    ended: list[_Wait] = []

    def end(place: int, how: Over) -> bool:
        wait = waits[place]
        if wait["completion"] is not None and wait["completed_at"] < row.place:
            return False
        if how not in _COMPLETIONS:
            del waits[place]
            return True
        wait.update(
            completions=wait["completions"] + 1,
            completion=_COMPLETIONS[how],
            completed_ms=row.newest_ms,
            newest_ms=max(wait["newest_ms"], row.newest_ms),
            without_pointer=how is Over.DELIVERED,
        )
        ended.append(wait)
        return True

    steps = TimerSteps(end)
    for row in rows:
        is_one = steps.see(TimerStep(row.timer_step), 0, row.place)
        if not is_one and (twice := ended or [w for w in waits.values() if w["completion"]]):
            # Delivered once more.
            twice[-1]["completions"] += 1
    return list(waits.values())


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
    ended), completion (how it ended first; null if it did not), completed_ms (when), newest_ms,
    completed_at (the physical offset at which it ended first), is_unsettled (only ended() can tell
    whether it waits).  names: further columns of the scheduled record.
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
        F.max(is_begin & F.coalesce(F.col("timer_step").isin(*_NO_WAITS), F.lit(False))).alias(
            "is_unsettled"
        ),
        *[F.max(F.when(is_begin, F.col(name))).alias(name) for name in names],
    )
    first = F.array(*map(F.lit, COMPLETIONS))[(F.col("_first") % _CODES).cast("int")]
    return grouped.select(
        *[name for name in grouped.columns if name not in ("_first", "is_unsettled")],
        (F.col("is_unsettled") & F.col("_first").isNull()).alias("is_unsettled"),
        F.floor(F.col("_first") / _CODES).alias("completed_at"),
        F.when(F.col("_first").isNotNull(), first).alias("completion"),
    )


def ended(records: DataFrame) -> DataFrame:
    """Every wait of waits() with its message, as pointers and RocketMQ's own records end it.

    records: MORE_COLUMNS.  Columns: end_offset, level, deliver_ms, completions, completed_ms,
    newest_ms, completion, SAME, is_unsettled (false), and without_pointer: no pointer ended it.
    """
    found = waits(records, *SAME, "timer", "timer_step")
    steps = records.where(F.col("timer_step").isin(*_NO_WAITS, *_DELIVERIES))
    touched = steps.select("timer").distinct()
    deliveries = steps.where(F.col("timer_step").isin(*_DELIVERIES))
    timers = followed(found.join(touched, "timer", "left_semi"), deliveries)
    others = found.join(touched, "timer", "left_anti")
    is_open = F.col("completion").isNull()
    pointed = others.where(~is_open).withColumn("without_pointer", F.lit(False))
    columns = (
        *("end_offset", "level", "deliver_ms", "completions", "completed_ms", "newest_ms"),
        *(*SAME, "completion", "is_unsettled", "without_pointer"),
    )
    matched = _matched(others.where(is_open), records)
    parts = [each.select(*columns) for each in (pointed, matched, timers)]
    return parts[0].unionByName(parts[1]).unionByName(parts[2])


def _matched(opened: DataFrame, records: DataFrame) -> DataFrame:
    """These open waits, with the deliveries from levels that RocketMQ wrote."""
    order = Window.partitionBy(*SAME).orderBy("end_offset")
    numbered = opened.withColumns(
        {
            "nth": F.row_number().over(order),
            "scheduled": F.count("*").over(Window.partitionBy(*SAME)),
        }
    )
    matched = numbered.join(_unpointed(records), [*SAME, "nth"], "left")
    is_matched = F.col("stored_ms").isNotNull()
    surplus = F.greatest(F.col("deliveries") - F.col("scheduled"), F.lit(0))
    completions = 1 + F.when(F.col("nth") == 1, surplus).otherwise(0)
    return matched.withColumns(
        {
            "completions": F.when(is_matched, completions).otherwise(0),
            "completed_ms": F.col("stored_ms"),
            "newest_ms": F.greatest("newest_ms", "stored_ms"),
            "completion": F.when(is_matched, DELIVERED),
            "without_pointer": is_matched,
        }
    )


def paired(
    read: Read, answer: Callable[[DataFrame], DataFrame], has_overdue: Column, *names: str
) -> DataFrame:
    """The answer for all waits of a log, persisted.

    answer: makes a table of waits.  has_overdue: marks the rows of this table that stand for
    messages that are due and not ended, or unsettled; without any, RocketMQ has ended nothing here.
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
