"""The rows of a partition: find records, choose the wanted ones, decode them in batches.

The choice needs only the fixed parts of many records at once; nothing else of the other records
is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rmqlite.kernel.records.record import NO_ENTRY
from rmqlite.kernel.words.errors import OffsetGone
from rmqlite.spark.arrow.columns import columns_named, columns_of
from rmqlite.spark.arrow.decode import Decoder, topics_of
from rmqlite.spark.arrow.options import ReadOptions
from rmqlite.spark.arrow.partitions import (
    LogSlice,
    Partition,
    QueueSlices,
    QueueStretch,
    StorePlace,
)
from rmqlite.spark.arrow.queue_rows import stretches
from rmqlite.spark.arrow.records import (
    WINDOW_BYTES,
    Block,
    Bytes,
    Longs,
    RecordArray,
    UnsoundRecord,
    joined,
    log_blocks,
)
from rmqlite.spark.arrow.store_files import LogGone, StoreFiles
from rmqlite.spark.arrow.waits import Dues, PromisedRows


def store_rows(
    partition: Partition, options: ReadOptions, columns: tuple[str, ...] = ()
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition of a store; columns: names, or empty for those of the options.

    Raises StoreDamaged, OffsetGone, StoreUnavailable.
    """
    place = partition.place
    assert place is not None
    files = StoreFiles(place)
    making = Making(partition, place, options, columns, files)
    try:
        if isinstance(partition, QueueSlices):
            yield from making.batches(stretches(files, partition.ranges, options))
            return
        yield from making.batches(log_blocks(files, partition))
    except UnsoundRecord as unsound:
        raise files.damage(unsound) from unsound
    except LogGone as gone:
        if options.fail_on_data_loss:
            what = f"the log of {place.root}"
            raise OffsetGone(what, gone.physical_offset, files.log_begin()) from gone


class RowFilter:
    """Decides which records become rows."""

    def __init__(self, options: ReadOptions, partition: Partition) -> None:
        self._options = options
        self._is_by_name = isinstance(partition, LogSlice)
        self._bounds: tuple[QueueStretch, ...] = getattr(partition, "bounds", ())

    def taken(self, records: RecordArray) -> RecordArray:
        """The wanted records.  Raises UnsoundRecord."""
        options, head = self._options, records.head
        keep = head["sys_flag"] & NO_ENTRY == 0
        for name, low, high in (
            ("store_timestamp", options.starting_timestamp_ms, options.ending_timestamp_ms),
            ("physical_offset", options.starting_physical_offset, options.ending_physical_offset),
        ):
            if low is not None:
                keep &= head[name] >= low
            if high is not None:
                keep &= head[name] < high
        if not self._is_by_name:
            return records.only(keep)
        if options.queue_ids:
            keep &= np.isin(head["queue_id"], options.queue_ids)
        records = records.only(keep)
        if len(records) and (options.is_by_topic or self._bounds):
            records = records.only(self._named(records))
        return records

    def _named(self, records: RecordArray) -> Any:
        topics = topics_of(records).dictionary_encode()
        names = topics.dictionary.to_pylist()
        codes = topics.indices.to_numpy()
        keep = np.array([self._options.takes_topic(name) for name in names], bool)[codes]
        for topic, queue_id, begin, end in self._bounds:
            if topic in names:
                offsets = records.head["queue_offset"]
                is_its = (codes == names.index(topic)) & (records.head["queue_id"] == queue_id)
                keep &= ~is_its | ((offsets >= begin) & (offsets < end))
        return keep


class Making:
    """Makes batches of a partition's rows from blocks of records."""

    def __init__(
        self,
        partition: Partition,
        place: StorePlace,
        options: ReadOptions,
        columns: tuple[str, ...],
        promises: PromisedRows | None = None,
    ) -> None:
        """columns: names, or empty for those of the options.  Raises InvalidValue."""
        named = columns_of(columns) if columns else columns_named(options.columns)
        self._decoder = Decoder(named, Dues(place.levels, promises))
        self._wanted = RowFilter(options, partition)
        self._rows_max = options.batch_rows
        self._checks_bodies = options.verify_crc

    def batches(self, blocks: Iterator[Block]) -> Iterator[pa.RecordBatch]:
        """In the order of the blocks.  Raises UnsoundRecord."""
        parts: list[RecordArray] = []
        rows = size = 0
        for data, begin, starts in blocks:
            for first in range(0, len(starts), self._rows_max):
                records = self._taken(data, begin, starts[first : first + self._rows_max])
                if not len(records):
                    continue
                if parts and (
                    parts[0].data is not data
                    or rows + len(records) > self._rows_max
                    or size >= WINDOW_BYTES
                ):
                    yield self._decoder.batch(joined(parts))
                    parts, rows, size = [], 0, 0
                parts.append(records)
                rows += len(records)
                size += int((records.end - records.starts).sum())
                if rows * 2 > self._rows_max or size >= WINDOW_BYTES:
                    yield self._decoder.batch(joined(parts))
                    parts, rows, size = [], 0, 0
        if parts:
            yield self._decoder.batch(joined(parts))

    def _taken(self, data: Bytes, begin: int | None, starts: Longs) -> RecordArray:
        records = self._wanted.taken(RecordArray(data, begin, starts))
        if self._checks_bodies:
            records.check_bodies()
        return records
