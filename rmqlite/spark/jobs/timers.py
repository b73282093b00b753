"""RocketMQ 5's timers: which of them wait, found by the steps that its own records are.

A timer of RocketMQ's is delivered, copied or recalled by records that do not point back.  Those of
one timer come together in the order of the log, and take the steps that the store takes when it
opens such a log (kernel/records/completion.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from rmqlite.kernel.records.completion import Completion, Over, TimerStep, TimerSteps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_COMPLETIONS: Final = {
    Over.DELIVERED: Completion.DELIVERED.value,
    Over.CANCELLED: Completion.CANCELLED.value,
    Over.ROLLED: Completion.CARRIED.value,
}
"""Whatever else is over has never waited for a user."""
_Wait = dict[str, Any]


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
