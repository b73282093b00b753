"""spark.readStream.format("rmqlite") as Spark calls it; every method forwards to StreamPlan.

Spark has one reader on the driver for as long as a query runs, and reads with copies of a
reader that never planned anything: so the driver's plan is made only when it is first needed.
Progress lies in Spark's checkpoint; a consumer group only shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rmqlite.arrow.options import ReadOptions
from rmqlite.arrow.partitions import QueueSlices
from rmqlite.spark.options import to_spark
from rmqlite.spark.partitions import read_partition
from rmqlite.spark.stream.plan import StreamPlan, check_stream
from rmqlite.spark.stream.queue_ranges import from_spark, ranges_of

if TYPE_CHECKING:
    import pyarrow as pa


class RmqliteStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The queues of a store's folder or of a broker, batch after batch."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        """columns: the names of the columns to read.  Raises InvalidValue."""
        check_stream(options)
        self._options = options
        self._columns = tuple(columns)
        self._made: StreamPlan | None = None

    def initialOffset(self) -> dict[str, Any]:
        return to_spark(self._plan.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        rows_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._plan.prepare_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_spark(self._plan.latest(from_spark(start), rows_max))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        newest = self._plan.newest
        return None if newest is None else to_spark(newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        slices = self._plan.slices(from_spark(start), from_spark(end))
        return [InputPartition(QueueSlices(each, self._plan.place)) for each in slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition.value, self._options, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Publish; Spark calls this when it plans the next batch, read_stream() is earlier."""
        self._plan.publish(from_spark(end))

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()

    @property
    def _plan(self) -> StreamPlan:
        if self._made is None:
            self._made = StreamPlan(self._options, ranges_of(self._options))
        return self._made
