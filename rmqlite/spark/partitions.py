"""The partitions of a store or of a broker: one look plans them all, each is read by itself.

The package arrow reads stores; this module adds brokers.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqlite.features.raw_log.requests import LogSnapshot
from rmqlite.kernel.words.levels import LevelHistory, parse_levels
from rmqlite.spark.arrow import planning
from rmqlite.spark.arrow.options import ReadOptions
from rmqlite.spark.arrow.partitions import Partition, QueueStretch, StorePlace
from rmqlite.spark.arrow.planning import Look
from rmqlite.spark.credentials import credentials_of

if TYPE_CHECKING:
    import pyarrow as pa


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
    from rmqlite.spark.broker_rows import broker_rows

    return broker_rows(placed, options, columns)


def _forget_modules() -> None:
    """Take all objects out of the garbage collection that a Spark worker runs after each task.

    Those of numpy and Arrow alone cost it 25 ms.  Once for a process: later ones may be garbage.
    """
    if not gc.get_freeze_count():
        gc.freeze()
