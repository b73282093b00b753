"""The rows of a partition: find records, take those that are wanted, decode them in batches.

What is wanted is decided by the fixed parts of many records at once, before anything else of
them is copied.  A store's files and a broker's chunks are read by the same walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rmqlite.errors import OffsetGone
from rmqlite.spark.broker_files import BrokerLog, broker_damage, kept_chunks, queue_blocks
from rmqlite.spark.decode import Decoder, Dues, topics_of
from rmqlite.spark.options import ReadOptions
from rmqlite.spark.partitions import LogSlice, Partition, Place, QueueSlices, QueueStretch
from rmqlite.spark.queue_rows import stretches
from rmqlite.spark.records import (
    NOT_FOR_READERS,
    RECORD_BYTES_MIN,
    Bytes,
    Longs,
    Records,
    UnsoundRecord,
    candidates,
    chained,
    gathered,
    is_blank,
    joined,
    synced,
)
from rmqlite.spark.schema import Column, columns_named, columns_of
from rmqlite.spark.store_files import LogGone, StoreFiles

WINDOW_BYTES: Final = 4 << 20
"""How much of the log makes a batch at most; more is no faster, and takes more memory."""
_BLANK_BYTES: Final = 8
Block = tuple[Bytes, int | None, Longs]
"""Bytes, the physical offset of the first one, and where in them records begin."""


def rows_of(
    partition: Partition, options: ReadOptions, columns: tuple[str, ...] = ()
) -> Iterator[pa.RecordBatch]:
    """See read_partition()."""
    named = columns_of(columns) if columns else columns_named(options.columns)
    if partition.place is None:
        from rmqlite.spark.planning import look

        partition = replace(partition, place=look(options).place)
    place = partition.place
    assert place is not None
    if place.root:
        return _store_rows(partition, place, options, named)
    return _broker_rows(partition, place, options, named)


def _store_rows(
    partition: Partition, place: Place, options: ReadOptions, columns: tuple[Column, ...]
) -> Iterator[pa.RecordBatch]:
    files = StoreFiles(place)
    decoder = Decoder(columns, Dues(place.levels, files))
    making = _Making(decoder, Wanted(options, partition), options)
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


def _broker_rows(
    partition: Partition, place: Place, options: ReadOptions, columns: tuple[Column, ...]
) -> Iterator[pa.RecordBatch]:
    # gRPC only where a broker is read, and in this process.
    from rmqlite.client.raw import RawReader

    decoder = Decoder(columns, Dues(place.levels))
    making = _Making(decoder, Wanted(options, partition), options)
    with RawReader(place.endpoint) as reader:
        try:
            if isinstance(partition, LogSlice):
                room = place.log_file_bytes
                log = BrokerLog(reader, place, partition.begin - partition.begin % room + room)
                yield from making.batches(log_blocks(log, partition))
                return
            for stretch in partition.ranges:
                chunks = kept_chunks(reader, stretch, options)
                yield from making.batches(queue_blocks(chunks))
        except UnsoundRecord as unsound:
            raise broker_damage(place, unsound) from unsound
        except OffsetGone:
            if options.fail_on_data_loss:
                raise


def log_blocks(source: StoreFiles | BrokerLog, wanted: LogSlice) -> Iterator[Block]:
    """The records that begin in a slice.  Raises UnsoundRecord where neither one nor a blank is."""
    room = source.place.log_file_bytes
    file_begin = wanted.begin - wanted.begin % room
    file_end = file_begin + room
    position = synced(source, wanted.begin, file_begin)
    while position < wanted.end:
        upto = min(position + WINDOW_BYTES, wanted.end)
        data, base = source.at(position, upto - position + RECORD_BYTES_MIN)
        starts = candidates(data, base, position - base, upto - base)
        sizes = gathered(data, starts, ">i4").astype(np.int64)
        rows, following = chained(starts, sizes, position - base)
        if not len(rows):
            blank = data[position - base : position - base + _BLANK_BYTES].tobytes()
            if position == file_end or is_blank(blank, file_end - position):
                return
            raise UnsoundRecord(position)
        position = base + following
        starts = starts[rows]
        if following > len(data):
            # The last one goes on behind the window; in a file all is there already.
            first = base + int(starts[0])
            data, moved = source.at(first, position - first)
            starts, base = starts + (base - moved), moved
        yield data, base, starts[starts >= wanted.begin - base]


class Wanted:
    """Decides which records become rows."""

    def __init__(self, options: ReadOptions, partition: Partition) -> None:
        self._options = options
        self._is_by_name = isinstance(partition, LogSlice)
        self._bounds: tuple[QueueStretch, ...] = getattr(partition, "bounds", ())

    def taken(self, records: Records) -> Records:
        """Those that are wanted.  Raises UnsoundRecord."""
        options, head = self._options, records.head
        keep = head["sys_flag"] & NOT_FOR_READERS == 0
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

    def _named(self, records: Records) -> Any:
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


class _Making:
    """Makes batches of rows from blocks of records."""

    def __init__(self, decoder: Decoder, wanted: Wanted, options: ReadOptions) -> None:
        self._decoder = decoder
        self._wanted = wanted
        self._rows_max = options.batch_rows
        self._checks_bodies = options.verify_crc

    def batches(self, blocks: Iterator[Block]) -> Iterator[pa.RecordBatch]:
        """In the order of the blocks.  Raises UnsoundRecord."""
        parts: list[Records] = []
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

    def _taken(self, data: Bytes, begin: int | None, starts: Longs) -> Records:
        records = self._wanted.taken(Records(data, begin, starts))
        if self._checks_bodies:
            records.check_bodies()
        return records
