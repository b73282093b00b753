"""spark.readStream.format("rmqlite") as Spark calls it; every method forwards to StreamPlan.

Spark has one reader on the driver for as long as a query runs, and reads with copies of a
reader that never planned anything: so the driver's plan is made only when it is first needed.
Progress lies in Spark's checkpoint; a consumer group only shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rmqlite.arrow.options import ReadOptions
from rmqlite.arrow.partitions import QueueSlices
from rmqlite.errors import InvalidValue
from rmqlite.spark.data_source_api import HAS_READ_LIMITS, SupportsTriggerAvailableNow
from rmqlite.spark.options import to_spark
from rmqlite.spark.partitions import read_partition
from rmqlite.spark.stream.plan import StreamPlan, check_stream
from rmqlite.spark.stream.queue_ranges import from_spark, ranges_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit


class RmqliteStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The queues of a store's folder or of a broker, batch after batch."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        """columns: the names of the columns to read.  Raises InvalidValue."""
        check_reader(options)
        self._options = options
        self._columns = tuple(columns)
        self._made: StreamPlan | None = None

    def initialOffset(self) -> dict[str, Any]:
        return to_spark(self._plan.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        rows_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._plan.prepare_available_now()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The end of the next batch; Spark before 4.2 passes no arguments."""
        if start is None:
            return to_spark(self._plan.ends())
        return to_spark(self._plan.latest(from_spark(start), getattr(limit, "max_rows", None)))

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


def check_reader(options: ReadOptions) -> None:
    """Raises InvalidValue for options that a stream does not have, or not on this Spark."""
    check_stream(options)
    rows_max = options.max_offsets_per_trigger
    if rows_max is not None and not HAS_READ_LIMITS:
        rule = "left out before Spark 4.2, where a batch has no limit"
        raise InvalidValue("maxOffsetsPerTrigger", rows_max, rule)
