"""A log of a few records, as the jobs see it: each begins where the one before ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqlite.kernel.records.completion import UNDELIVERABLE_TOPIC
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.words.names import CANCELLED_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqlite.spark.arrow.columns import columns_of
from rmqlite.spark.arrow.decode import arrow_schema
from rmqlite.spark.source import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_BYTES = 100
NOON_MS = 1_700_000_000_000 // 3_600_000 * 3_600_000
_ENDS_IN = {
    "rescheduled": SCHEDULE_TOPIC,
    "carried": TIMER_TOPIC,
    "cancelled": CANCELLED_TOPIC,
    "undeliverable": UNDELIVERABLE_TOPIC,
}
Row = dict[str, Any]


class LogRows:
    """Records one after the other; times are milliseconds after NOON_MS."""

    def __init__(self, begin_offset: int = 0) -> None:
        self.rows: list[Row] = []
        self._end = begin_offset

    def add(self, topic: str, at_ms: int, **fields: Any) -> Row:
        """Any record."""
        row = {
            "topic": topic,
            "queue_id": 0,
            "store_timestamp": moment(at_ms),
            "physical_offset": self._end,
            "end_offset": self._end + RECORD_BYTES,
        } | fields
        self._end += RECORD_BYTES
        self.rows.append(row)
        return row

    def scheduled(
        self, at_ms: int, due_ms: int, *, level: int = 1, topic: str = "orders", **fields: Any
    ) -> Row:
        """A record that waits."""
        return self.add(
            SCHEDULE_TOPIC,
            at_ms,
            **{
                "queue_id": level - 1,
                "delay_level": level,
                "deliver_timestamp": moment(due_ms),
                "real_topic": topic,
                "real_queue_id": 0,
                "unique_key": f"ID{self._end}",
                "reconsume_times": 0,
            }
            | fields,
        )

    def timer(self, at_ms: int, due_ms: int) -> Row:
        """A record that waits for an instant."""
        row = self.scheduled(at_ms, due_ms)
        row.update(topic=TIMER_TOPIC, delay_level=None)
        return row

    def ended(self, wait: Row, at_ms: int, how: str = "delivered", **fields: Any) -> Row:
        """The record that ends a wait."""
        same = ("delay_level", "real_topic", "real_queue_id", "unique_key", "reconsume_times")
        topic: str = _ENDS_IN.get(how) or wait["real_topic"]
        return self.add(
            topic,
            at_ms,
            **{name: wait[name] for name in same}
            | {
                "completes": wait["end_offset"],
                "completed_level": wait["delay_level"] or TIMERS,
                "completion": how,
            }
            | fields,
        )

    def frame(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        """The records with these columns."""
        return frame(spark, self.rows, columns)


def frame(spark: SparkSession, rows: Sequence[Row], columns: Sequence[str]) -> DataFrame:
    """Rows as a job gets them from a small log; what they do not have is null."""
    named = columns_of(columns)
    values = [{name: row.get(name) for name in columns} for row in rows]
    table = pa.Table.from_pylist(values, arrow_schema(named))
    return spark.createDataFrame(table, spark_schema(named))


def moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp((NOON_MS + at_ms) / 1000, UTC)
