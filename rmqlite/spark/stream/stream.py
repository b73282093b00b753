"""spark.readStream.format("rmqlite") as Spark calls it; every method forwards to StreamPlan.

Spark has one reader on the driver for as long as a query runs, and reads with copies of a
reader that never planned anything: so the driver's plan is made only when it is first needed.
Progress lies in Spark's checkpoint; a consumer group only shows it.

A queue offset does not say which record it was: a log that `store repair` has cut grows again, with
the same offsets for other records.  So a checkpoint has beside its offsets when the last record of
each queue was stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rmqlite.kernel.words.errors import InvalidValue, OffsetGone
from rmqlite.spark.arrow.partitions import QueueSlices, QueueStretch, ReadOptions
from rmqlite.spark.data_source_api import HAS_READ_LIMITS, SupportsTriggerAvailableNow
from rmqlite.spark.options import STAMPS, to_spark
from rmqlite.spark.partitions import read_partition
from rmqlite.spark.stream.plan import (
    Offsets,
    Queue,
    StreamPlan,
    check_stream,
    from_spark,
    ranges_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit


class Stamps:
    """The times of one stream, in milliseconds."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = replace(options, fail_on_data_loss=False, starting_timestamp_ms=None)
        self._known: dict[Queue, tuple[int, int | None]] = {}
        """By queue: the offset, and the time of the record before it; None if that is gone."""

    def stamped(self, offsets: Offsets, plan: StreamPlan) -> dict[str, Any]:
        """The offsets for Spark, with the time of the record before each that still exists."""
        known = self._known
        fresh = {queue: at for queue, at in offsets.items() if known.get(queue, (0, 0))[0] != at}
        found = self._stored_ms(fresh, plan)
        known.update({queue: (at, found.get(queue)) for queue, at in fresh.items()})
        stamps = {
            queue: stored_ms
            for queue in offsets
            if (stored_ms := known.get(queue, (0, None))[1]) is not None
        }
        return {**to_spark(offsets), **({STAMPS: to_spark(stamps)} if stamps else {})}

    def remember(self, tree: Mapping[str, Any]) -> None:
        """Take the times of Spark's offsets: for unread queues stamped() gives the same again."""
        offsets = from_spark(tree)
        for queue, stored_ms in stamps_in(tree).items():
            self._known[queue] = (offsets.get(queue, 0), stored_ms)

    def replaced(
        self, tree: Mapping[str, Any], queues: set[Queue], plan: StreamPlan
    ) -> dict[Queue, tuple[int, int]]:
        """Of these queues, those with another record before the offset: both records' times."""
        offsets = from_spark(tree)
        stamps = {queue: at for queue, at in stamps_in(tree).items() if queue in queues}
        found = self._stored_ms({queue: offsets[queue] for queue in stamps}, plan)
        return {
            queue: (stamps[queue], stored_ms)
            for queue, stored_ms in found.items()
            if stored_ms != stamps[queue]
        }

    def _stored_ms(self, offsets: Mapping[Queue, int], plan: StreamPlan) -> Offsets:
        """The times of the records before these offsets, as far as they exist."""
        ranges = [
            QueueStretch(*queue, at - 1, at)
            for queue, at in sorted(offsets.items())
            if plan.has_record(queue, at - 1)
        ]
        if not ranges:
            return {}
        columns = ("topic", "queue_id", "store_timestamp")
        slices = QueueSlices(tuple(ranges), plan.place)
        return {
            (row["topic"], row["queue_id"]): round(row["store_timestamp"].timestamp() * 1000)
            for batch in read_partition(slices, self._options, columns)
            for row in batch.to_pylist()
        }


def stamps_in(tree: Mapping[str, Any]) -> Offsets:
    """The times in Spark's offsets; none in those of an older rmqlite."""
    return from_spark(tree.get(STAMPS, {}))


class RmqliteStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The queues of a store's folder or of a broker, batch after batch."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        """columns: the names of the columns to read.  Raises InvalidValue."""
        check_reader(options)
        self._options = options
        self._columns = tuple(columns)
        self._made: StreamPlan | None = None
        self._stamps = Stamps(options)

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
        plan = self._plan
        if start is None:
            return self._stamps.stamped(plan.ends(), plan)
        end = plan.latest(from_spark(start), getattr(limit, "max_rows", None))
        self._stamps.remember(start)
        return self._stamps.stamped(end, plan)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        newest = self._plan.newest
        return None if newest is None else to_spark(newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begins, ends, plan = from_spark(start), from_spark(end), self._plan
        # It looks at the source, if the plan has not: after a restart.
        slices = plan.slices(begins, ends)
        read = {(topic, queue_id) for part in slices for topic, queue_id, *_ in part}
        replaced = self._stamps.replaced(start, read, plan)
        if replaced:
            slices = plan.slices(begins | plan.continued(replaced, begins), ends)
        return [InputPartition(QueueSlices(each, plan.place)) for each in slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(partition.value, self._options, self._columns)

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


def rows_of(
    slices: QueueSlices | None, options: ReadOptions, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition; at its end it fails if the queues have fewer than offsets.

    Also raises OffsetGone for a record that `store repair` has given up.
    """
    # The beginning of a stream is an offset by now.
    every = replace(options, starting_timestamp_ms=None)
    lacking = sum(end - begin for _, _, begin, end in slices.ranges) if slices else 0
    for batch in read_partition(slices, every, columns):
        lacking -= batch.num_rows
        yield batch
    if not lacking or slices is None or not options.fail_on_data_loss:
        return
    for stretch in slices.ranges:
        one = replace(slices, ranges=(stretch,))
        there = {
            offset
            for batch in read_partition(one, every, ("queue_offset",))
            for offset in batch.column(0).to_pylist()
        }
        topic, queue_id, begin, end = stretch
        for offset in range(begin, end):
            if offset not in there:
                following = next((each for each in range(offset, end) if each in there), end)
                raise OffsetGone(
                    f"queue {queue_id} of topic {topic!r}, which rmqlite store repair has mended"
                    " (its report is in the store's folder), read with failOnDataLoss=true",
                    offset,
                    following,
                )


def check_reader(options: ReadOptions) -> None:
    """Raises InvalidValue for options that a stream does not have, or not on this Spark."""
    check_stream(options)
    rows_max = options.max_offsets_per_trigger
    if rows_max is not None and not HAS_READ_LIMITS:
        rule = "left out before Spark 4.2, where a batch has no limit"
        raise InvalidValue("maxOffsetsPerTrigger", rows_max, rule)
