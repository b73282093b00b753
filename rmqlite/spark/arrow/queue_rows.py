"""Finds records by their queue offsets: in the queue files, and in the log where these lag.

An entry counts if its record has the same topic, queue and queue offset.  Records without such
an entry are searched in the log behind known_end, because a killed broker may not have written
their entries.  A record that is not there either was deleted by retention, or is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow.compute as pc

from rmqlite.kernel.records.record import MAGIC, NO_ENTRY, RECORD_BYTES_MIN
from rmqlite.kernel.words.errors import OffsetGone
from rmqlite.spark.arrow.decode import topics_of
from rmqlite.spark.arrow.options import ReadOptions
from rmqlite.spark.arrow.partitions import LogSlice, QueueStretch
from rmqlite.spark.arrow.records import (
    Block,
    Bytes,
    Flags,
    Longs,
    RecordArray,
    field_of,
    log_blocks,
)
from rmqlite.spark.arrow.store_files import LogGone, StoreFiles

PIECE_BYTES: Final = 4 << 20
_ANONYMOUS: Final = -1
"""The queue offset of a repaired place whose lost records are unknown."""


def stretches(
    files: StoreFiles, ranges: Sequence[QueueStretch], options: ReadOptions
) -> Iterator[Block]:
    """The records of these stretches.  Raises OffsetGone, StoreDamaged, UnsoundRecord."""
    for topic, queue_id, begin, end in ranges:
        missing = []
        for first in range(begin, end, options.batch_rows):
            offsets = np.arange(first, min(end, first + options.batch_rows))
            for data, base, starts, lacking in _pieces(files, topic, queue_id, offsets):
                missing.append(lacking)
                if len(starts):
                    yield data, base, starts
        lacking = np.concatenate(missing) if missing else np.empty(0, np.int64)
        if len(lacking):
            yield from _behind(files, topic, queue_id, lacking, options)


def _pieces(
    files: StoreFiles, topic: str, queue_id: int, offsets: Longs
) -> Iterator[tuple[Bytes, int, Longs, Longs]]:
    """The records of some entries, log file by log file, and which offsets have none."""
    entries = files.entries(topic, queue_id, offsets)
    places = entries["physical_offset"].astype(np.int64)
    sizes = entries["size"].astype(np.int64)
    is_entry = (sizes >= RECORD_BYTES_MIN) & (places < files.place.end)
    nothing = np.empty(0, np.int64)
    if not is_entry.all():
        yield np.empty(0, np.uint8), 0, nothing, offsets[~is_entry]
        offsets, places, sizes = offsets[is_entry], places[is_entry], sizes[is_entry]
    # Each piece lies in one log file, and is small enough for a batch.
    numbers = places // files.place.log_file_bytes
    numbers = numbers * len(offsets) * PIECE_BYTES + np.cumsum(sizes) // PIECE_BYTES
    cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    for part in np.split(np.arange(len(offsets)), cuts):
        if not len(part):
            continue
        try:
            data, base = files.at(int(places[part[0]]), 0)
        except LogGone:
            yield np.empty(0, np.uint8), 0, nothing, offsets[part]
            continue
        starts = places[part] - base
        good, known = _fitting(data, base, starts, sizes[part], (topic, queue_id), offsets[part])
        yield data, base, starts[good], offsets[part][~known]


def _fitting(
    data: Bytes, base: int, starts: Longs, sizes: Longs, queue: tuple[str, int], offsets: Longs
) -> tuple[Flags, Flags]:
    """Which entries point at their record; and which do that, or point at a repaired place."""
    topic, queue_id = queue
    good = starts + sizes <= len(data)
    at = np.where(good, starts, 0)
    good &= field_of(data, at, "size") == sizes
    good &= field_of(data, at, "magic") == MAGIC
    good &= field_of(data, at, "physical_offset") == starts + base
    # A repaired place stands for records that were lost.
    lost = good & (field_of(data, at, "sys_flag") & NO_ENTRY != 0)
    lost &= field_of(data, at, "queue_offset") == _ANONYMOUS
    good &= ~lost
    good &= field_of(data, at, "queue_id") == queue_id
    good &= field_of(data, at, "queue_offset") == offsets
    rows = np.flatnonzero(good)
    if len(rows):
        topics = topics_of(RecordArray(data, base, starts[rows]))
        good[rows] = pc.equal(topics, topic).to_numpy(zero_copy_only=False)
    return good, good | lost


def _behind(
    files: StoreFiles, topic: str, queue_id: int, missing: Longs, options: ReadOptions
) -> Iterator[Block]:
    """The missing records, from the part of the log that the queue files may lack."""
    place = files.place
    has_lost = False
    position = max(place.begin, place.known_end)
    while position < place.end:
        file_end = position - position % place.log_file_bytes + place.log_file_bytes
        for data, base, starts in log_blocks(
            files, LogSlice(place, position, min(file_end, place.end))
        ):
            records = RecordArray(data, base, starts)
            offsets = records.longs("queue_offset")
            is_lost = records.head["sys_flag"] & NO_ENTRY != 0
            has_lost |= bool((is_lost & (offsets == _ANONYMOUS)).any())
            keep = (records.head["queue_id"] == queue_id) & np.isin(offsets, missing)
            if keep.any():
                records = records.only(keep)
                records = records.only(
                    pc.equal(topics_of(records), topic).to_numpy(zero_copy_only=False)
                )
                missing = np.setdiff1d(missing, records.longs("queue_offset"))
                if len(records):
                    yield data, base, records.starts
        position = file_end
    if not len(missing) or has_lost:
        return
    if files.log_begin() <= place.begin:
        raise files.queue_damage(topic, queue_id, int(missing[0]))
    if options.fail_on_data_loss:
        following = int(missing[-1]) + 1
        raise OffsetGone(f"{topic} queue {queue_id}", int(missing[0]), following)
