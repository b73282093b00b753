"""When the last record that a stream has read of each queue was stored.

A queue offset does not say which record it was: a log that `store repair` has cut grows again, with
the same offsets for other records.  So a checkpoint has these times beside its offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rmqlite.spark.arrow.options import ReadOptions
from rmqlite.spark.arrow.partitions import QueueSlices, QueueStretch
from rmqlite.spark.options import STAMPS, to_spark
from rmqlite.spark.partitions import read_partition
from rmqlite.spark.stream.plan import StreamPlan
from rmqlite.spark.stream.queue_ranges import Offsets, Queue, from_spark


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
