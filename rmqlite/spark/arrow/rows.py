"""The rows of a partition: find records, choose the wanted ones, decode them in batches.

A store's files are mapped for reading; an executor changes no byte.  A broker may be at work on
the store.  The planned bytes lie before the end that the log had then, and do not change; only
retention may delete whole files, which then are missing.

Records are found by their queue offsets in the queue files, and in the log where these lag.  An
entry counts if its record has the same topic, queue and queue offset.  Records without such an
entry are searched in the log behind known_end, because a killed broker may not have written their
entries.  A record that is not there either was deleted by retention, or is damaged.

The choice needs only the fixed parts of many records at once; nothing else of the other records
is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqlite.kernel.records.record import MAGIC, NO_ENTRY, RECORD_BYTES_MIN
from rmqlite.kernel.records.wait_queues import HASH_END
from rmqlite.kernel.store.disk.regular_file import check_regular
from rmqlite.kernel.words.errors import OffsetGone, StoreDamaged, StoreUnavailable
from rmqlite.spark.arrow.columns import columns_named, columns_of
from rmqlite.spark.arrow.decode import Decoder, topics_of
from rmqlite.spark.arrow.partitions import (
    LogSlice,
    Partition,
    QueueSlices,
    QueueStretch,
    ReadOptions,
    StorePlace,
)
from rmqlite.spark.arrow.records import (
    WINDOW_BYTES,
    Block,
    Bytes,
    Flags,
    Longs,
    RecordArray,
    UnsoundRecord,
    field_of,
    joined,
    log_blocks,
)
from rmqlite.spark.arrow.waits import Dues, PromisedRows

ENTRY: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
ENTRY_BYTES: Final = ENTRY.itemsize
_NOTHING: Final = np.empty(0, np.uint8)
_FOUND_BYTES: Final = 16
PIECE_BYTES: Final = 4 << 20
_ANONYMOUS: Final = -1
"""The queue offset of a repaired place whose lost records are unknown."""


class LogGone(Exception):
    """The log file of a physical offset does not exist any more."""

    def __init__(self, physical_offset: int) -> None:
        super().__init__(f"no log file has {physical_offset}")
        self.physical_offset = physical_offset


class StoreFiles:
    """The log and the queues of one store."""

    def __init__(self, place: StorePlace) -> None:
        self.place = place
        self._root = Path(place.root)
        self._log: tuple[int, Bytes] = (-1, _NOTHING)
        self._queues: dict[tuple[str, int, int], Bytes | None] = {}

    def at(self, position: int, size: int) -> tuple[Bytes, int]:
        """The whole file of a position; see records.Source.  Raises LogGone."""
        del size
        start = position - position % self.place.log_file_bytes
        if self._log[0] != start:
            data = mapped(self.log_path(position))
            if data is None:
                raise LogGone(position)
            # Leave out the bytes behind the end: the broker may be writing them.
            self._log = start, data[: max(0, self.place.end - start)]
        return self._log[1], start

    def log_path(self, position: int) -> Path:
        start = position - position % self.place.log_file_bytes
        return self._root / "commitlog" / f"{start:020d}"

    def log_begin(self) -> int:
        """Where the oldest present log file begins."""
        names = [path.name for path in (self._root / "commitlog").glob("[0-9]*")]
        return min((int(name) for name in names if name.isdigit()), default=self.place.end)

    def entries(self, topic: str, queue_id: int, offsets: Longs) -> NDArray[Any]:
        """The entries at these queue offsets; all zeros for an offset without an entry."""
        found = np.zeros(len(offsets), ENTRY)
        in_file = self.place.queue_file_bytes // ENTRY_BYTES
        numbers = offsets // in_file
        for number in np.unique(numbers).tolist():
            data = self._queue_file(topic, queue_id, number)
            if data is None:
                continue
            table = data[: len(data) // ENTRY_BYTES * ENTRY_BYTES].view(f"V{ENTRY_BYTES}")
            rows = np.flatnonzero(numbers == number)
            at = offsets[rows] - number * in_file
            rows, at = rows[at < len(table)], at[at < len(table)]
            found[rows] = table[at].view(ENTRY)
        return found

    def promised_ms(self, topic: str, records: RecordArray, rows: Longs) -> Longs:
        """See waits.Promises: the time in the queue entry that points at the record."""
        head = records.head[rows]
        queue_ids = head["queue_id"].astype(np.int64)
        places = records.places[rows]
        promised = np.zeros(len(rows), np.int64)
        for queue_id in np.unique(queue_ids).tolist():
            at = np.flatnonzero(queue_ids == queue_id)
            offsets = head["queue_offset"][at].astype(np.int64)
            entries = self.entries(topic, queue_id, offsets)
            is_its = (entries["physical_offset"] == places[at]) & (
                entries["size"] == head["size"][at]
            )
            tags_codes = entries["tags_code"].astype(np.int64)
            promised[at] = np.where(is_its & (tags_codes >= HASH_END), tags_codes, 0)
        return promised

    def damage(self, unsound: UnsoundRecord) -> StoreDamaged:
        """The error for a place without a record, with the bytes that are there."""
        position = unsound.physical_offset
        data, base = self.at(position, _FOUND_BYTES)
        found = data[position - base : position - base + _FOUND_BYTES].tobytes()
        text = f"the bytes {found.hex(' ', 4)}" if found else "nothing"
        path = str(self.log_path(position))
        return StoreDamaged(path, position - base, unsound.expected, text)

    def queue_damage(self, topic: str, queue_id: int, queue_offset: int) -> StoreDamaged:
        """The error for a missing entry whose record is missing, too."""
        position = queue_offset * ENTRY_BYTES
        start = position - position % self.place.queue_file_bytes
        path = self._queue_path(topic, queue_id, start)
        expected = f"{topic} queue {queue_id}, queue offset {queue_offset}: an entry"
        return StoreDamaged(str(path), position - start, expected, "none that fits a record")

    def _queue_path(self, topic: str, queue_id: int, start: int) -> Path:
        return self._root / "consumequeue" / topic / str(queue_id) / f"{start:020d}"

    def _queue_file(self, topic: str, queue_id: int, number: int) -> Bytes | None:
        key = (topic, queue_id, number)
        if key not in self._queues:
            start = number * self.place.queue_file_bytes
            self._queues[key] = mapped(self._queue_path(topic, queue_id, start))
        return self._queues[key]


def mapped(path: Path) -> Bytes | None:
    """A file's bytes, which are read from disk only when used; None if there is no file.

    Raises StoreDamaged if it is not a regular file.
    """
    try:
        status = path.lstat()
        check_regular(path, status.st_mode)
        if not status.st_size:
            return _NOTHING
        with pa.memory_map(str(path)) as file:
            return np.frombuffer(file.read_buffer(), np.uint8)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable("read", str(path), error.strerror or str(error)) from error


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
