"""The partitions of a store or of a broker: one look plans them all, each is read by itself.

The package arrow reads stores; this module adds brokers, whose bytes come in chunks, in the order
of the log.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from rmqlite.features.raw_log.requests import LogSnapshot
from rmqlite.kernel.records.record import RECORD_BYTES_MIN
from rmqlite.kernel.words.errors import OffsetGone, StoreDamaged
from rmqlite.kernel.words.levels import LevelHistory, parse_levels
from rmqlite.spark.arrow import planning
from rmqlite.spark.arrow.partitions import (
    LogSlice,
    Partition,
    QueueStretch,
    ReadOptions,
    StorePlace,
)
from rmqlite.spark.arrow.planning import Look
from rmqlite.spark.arrow.records import Bytes, Longs, UnsoundRecord, log_blocks
from rmqlite.spark.arrow.rows import Making
from rmqlite.spark.options import credentials_of

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqlite.client.raw import RawReader


JOINED_BYTES: Final = 4 << 20
"""Chunks are joined up to this size and decoded together: a small batch costs as much as this."""


def broker_rows(
    partition: Partition, options: ReadOptions, columns: tuple[str, ...] = ()
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition of a broker; columns: names, or empty for those of the options.

    Raises StoreDamaged, OffsetGone, Unavailable.
    """
    place = partition.place
    assert place is not None
    # Import it here: only a task that reads a broker needs gRPC.
    from rmqlite.client.raw import RawReader

    making = Making(partition, place, options, columns)
    with RawReader(place.endpoint, credentials=credentials_of(options)) as reader:
        try:
            if isinstance(partition, LogSlice):
                room = place.log_file_bytes
                log = BrokerLog(reader, place, partition.begin - partition.begin % room + room)
                yield from making.batches(log_blocks(log, partition))
                return
            for stretch in partition.ranges:
                chunks = queue_chunks(reader, stretch, options)
                yield from making.batches(queue_blocks(chunks))
        except UnsoundRecord as unsound:
            raise broker_damage(place, unsound) from unsound
        except OffsetGone:
            if options.fail_on_data_loss:
                raise


class BrokerLog:
    """One log file of a broker, read forwards."""

    def __init__(self, reader: RawReader, place: StorePlace, file_end: int) -> None:
        self.place = place
        self._reader = reader
        self._end = min(file_end, place.end)
        self._chunks: Iterator[tuple[int, bytes]] = iter(())
        self._data: Bytes = np.empty(0, np.uint8)
        self._base = -1

    def at(self, position: int, size: int) -> tuple[Bytes, int]:
        """See records.Source.  Raises OffsetGone, Unavailable."""
        if self._base < 0 or position < self._base:
            self._chunks = self._reader.log(position, self._end)
            self._base, self._data = position, self._data[:0]
        wanted = min(position + size, self._end)
        if self._base + len(self._data) < wanted:
            parts = [self._data[position - self._base :].tobytes()]
            have = position + len(parts[0])
            while have < wanted and (chunk := next(self._chunks, None)):
                parts.append(chunk[1])
                have += len(chunk[1])
            self._data = np.frombuffer(b"".join(parts), np.uint8)
            self._base = position
        return self._data, self._base

    def damage(self, unsound: UnsoundRecord) -> StoreDamaged:
        return broker_damage(self.place, unsound)


def broker_damage(place: StorePlace, unsound: UnsoundRecord) -> StoreDamaged:
    """The error for bytes of a broker's log that are no record."""
    where = f"the log of {place.endpoint}"
    return StoreDamaged(where, unsound.physical_offset, unsound.expected, "something else")


def queue_chunks(reader: RawReader, stretch: QueueStretch, options: ReadOptions) -> Iterator[bytes]:
    """The records of a stretch of a queue, in chunks.  Raises OffsetGone, Unavailable.

    With failOnDataLoss=false it skips records that retention deletes meanwhile, and no others.
    """
    topic, queue_id, begin, end = stretch
    while begin < end:
        try:
            yield from reader.queue(topic, queue_id, begin, end)
        except OffsetGone:
            if options.fail_on_data_loss:
                raise
            ranges = {each.queue.queue_id: each for each in reader.snapshot((topic,)).queues}
            begin = max(begin + 1, ranges[queue_id].min_offset)
        else:
            return


def queue_blocks(chunks: Iterator[bytes]) -> Iterator[tuple[Bytes, None, Longs]]:
    """Blocks of whole records, one behind the other: the bytes, and where each record begins."""
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size >= JOINED_BYTES:
            yield _block(parts)
            parts, size = [], 0
    if parts:
        yield _block(parts)


def _block(parts: list[bytes]) -> tuple[Bytes, None, Longs]:
    data = b"".join(parts)
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += max(RECORD_BYTES_MIN, int.from_bytes(data[at : at + 4], "big"))
    return np.frombuffer(data, np.uint8), None, np.array(starts, np.int64)


def look(options: ReadOptions) -> Look:
    """Look at a store or a broker.  Raises InvalidValue if the folder is no store, StoreDamaged,
    Unavailable.
    """
    if options.path:
        return planning.look_at_store(options.path, allow_loss=not options.fail_on_data_loss)
    return look_at_broker(options)


def look_at_broker(options: ReadOptions) -> Look:
    # Import it here: only a reading of a broker needs gRPC.
    from rmqlite.client.raw import RawReader

    with RawReader(options.endpoint, credentials=credentials_of(options)) as reader:
        return look_of(options.endpoint, reader.snapshot())


def look_of(endpoint: str, found: LogSnapshot) -> Look:
    """A broker's snapshot as a look."""
    tables = [(row.in_force_from_ms, parse_levels(row.message_delay_level)) for row in found.levels]
    levels = LevelHistory(tuple(tables), tables[-1][1])
    begin, end, room = found.begin_offset, found.end_offset, found.segment_bytes
    place = StorePlace("", endpoint, room, 0, begin, end, end, levels)
    starts = [begin, *range(begin - begin % room + room, end, room)] if begin < end else []
    queues = sorted(
        QueueStretch(each.queue.topic, each.queue.queue_id, each.min_offset, each.max_offset)
        for each in found.queues
    )
    files = tuple((start, None) for start in starts)
    topics = frozenset([*(topic for topic, *_ in queues), *found.deleted_topics])
    return Look(
        place, found.newest_timestamp_ms, files, tuple(queues), topics, found.deleted_topics
    )


def plan(options: ReadOptions) -> list[Partition]:
    """The partitions of a batch.  Raises InvalidValue, OffsetGone, and the errors of look()."""
    found = look(options)
    found.check_topics(options.topics)
    return planning.plan(options, found)


def read_partition(
    partition: Partition | None, options: ReadOptions, columns: tuple[str, ...] = ()
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, in batches of at most options.batch_rows.

    columns: names, or empty for those of the options.  partition: None if Spark has no
    partitions.  Raises StoreDamaged, OffsetGone, StoreUnavailable, and the errors that a broker
    answers.
    """
    if partition is None:
        return iter(())
    place = partition.place or look(options).place
    placed = replace(partition, place=place)
    # Load Arrow, numpy and gRPC only now, because only a task that makes rows needs them.
    _forget_modules()
    if place.root:
        from rmqlite.spark.arrow.rows import store_rows

        return store_rows(placed, options, columns)

    return broker_rows(placed, options, columns)


def _forget_modules() -> None:
    """Take all objects out of the garbage collection that a Spark worker runs after each task.

    Those of numpy and Arrow alone cost it 25 ms.  Once for a process: later ones may be garbage.
    """
    if not gc.get_freeze_count():
        gc.freeze()
