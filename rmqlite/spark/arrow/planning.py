"""Plans a load: one look at the store or broker, and the partitions for the tasks.

The driver does this once per load.  The look shows where the log and the queues end, and all
partitions of a load end there.  Options with queue offsets or times become bounds here, and
values out of range are refused here, before any task runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmqlite.kernel.words.errors import InvalidValue, OffsetGone
from rmqlite.kernel.words.names import dlq_topic, group_of, is_system, is_system_group, retry_topic
from rmqlite.kernel.words.visible import did_you_mean
from rmqlite.spark.arrow.partitions import (
    EARLIEST,
    LATEST,
    SLICE_BYTES_MIN,
    LogSlice,
    Offsets,
    Partition,
    QueueSlices,
    QueueStretch,
    ReadOptions,
    StorePlace,
    packed,
)

if TYPE_CHECKING:
    from rmqlite.kernel.config.config import BrokerConfig
QUEUE_SHARE: Final = 0.4
"""If a load wants a larger share of all records, it reads the log: to skip records costs less."""


@dataclass(frozen=True, slots=True)
class Look:
    """A store or a broker at one moment.

    files: the begin of each log file and the store timestamp of its first record, or None if it
    is unknown.  queues: min_offset <= queue offset < max_offset of each, sorted.  topics: all that
    exist, or have a queue.  deleted_topics: their queues lack records that the log still has.
    warnings: see StoreLayout.
    """

    place: StorePlace
    newest_timestamp_ms: int
    files: tuple[tuple[int, int | None], ...]
    queues: tuple[QueueStretch, ...]
    topics: frozenset[str]
    deleted_topics: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.place.begin == self.place.end

    def has_topic(self, name: str) -> bool:
        """Does it exist, or may the broker make it when it needs it?"""
        group = group_of(name)
        is_made_when_needed = is_system(name) or (group is not None and self._has_group(group))
        return name in self.topics or is_made_when_needed

    def check_topics(self, names: Iterable[str]) -> None:
        """Raises InvalidValue for a topic that does not exist and has no records."""
        for name in names:
            if not self.has_topic(name):
                hint = did_you_mean(name, self.topics)
                raise InvalidValue("topic", name, f"a topic of {self.place.where}{hint}")

    def check_groups(self, names: Iterable[str]) -> None:
        """Raises InvalidValue for a group without a retry or a dead-letter topic."""
        for name in names:
            if not self._has_group(name):
                groups = filter(None, map(group_of, self.topics))
                rule = f"a consumer group of {self.place.where}{did_you_mean(name, groups)}"
                raise InvalidValue("group", name, rule)

    def _has_group(self, name: str) -> bool:
        known = (retry_topic(name), dlq_topic(name))
        return is_system_group(name) or not self.topics.isdisjoint(known)


def look_at_store(
    path: str, config: BrokerConfig | None = None, *, allow_loss: bool = False
) -> Look:
    """Look at a store.  config: the broker's, for values that the files do not have.

    Raises InvalidValue if the folder is no store, StoreUnavailable, StoreDamaged, which is also
    for a store that is shorter than it promises; allow_loss: then it only warns.
    """
    # Import it here: the store's reader needs modules that an executor may not have.
    from rmqlite.store_tools.reader import StoreReader

    # The absolute path, because an executor may run in another folder.
    folder = Path(path).absolute()
    with StoreReader(folder, config, only_layout=True) as reader:
        layout = reader.layout(allow_loss=allow_loss)
    place = StorePlace(
        str(folder),
        "",
        layout.log_file_bytes,
        layout.queue_file_bytes,
        layout.begin,
        layout.known_end,
        layout.end,
        layout.levels,
    )
    queues = tuple(
        QueueStretch(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in layout.queues
    )
    topics = frozenset([*(q.topic for q in layout.queues), *layout.topics, *layout.deleted_topics])
    return Look(
        place,
        layout.newest_timestamp_ms,
        layout.files,
        queues,
        topics,
        layout.deleted_topics,
        layout.warnings,
    )


def plan(options: ReadOptions, found: Look) -> list[Partition]:
    """The partitions of a batch.  Raises InvalidValue, OffsetGone."""
    begin, end = _log_bounds(found.place, options)
    stretches = _stretches(found, options)
    files = _files_between(found, begin, end, options)
    starts, ends = options.starting_offsets, options.ending_offsets
    has_bounds = starts not in (None, EARLIEST) or ends not in (None, LATEST)
    # Only the log has all records of a deleted topic.
    is_in_queues = not any(map(options.takes_topic, found.deleted_topics))
    if is_in_queues and (options.is_by_topic or options.queue_ids or has_bounds):
        wanted = sum(high - low for _, _, low, high in stretches)
        every = sum(high - low for _, _, low, high in found.queues)
        is_filed = (found.place.end - found.place.known_end) * 4 <= end - begin
        # Queue entries have no store timestamps: if times leave out log files, read the log.
        is_whole = len(files) == len(found.files)
        if wanted <= every * QUEUE_SHARE and is_filed and is_whole:
            parts = packed(
                stretches, partitions_max=options.max_partitions, rows=options.rows_per_partition
            )
            return [QueueSlices(part, found.place) for part in parts]
    bounds = tuple(stretches) if has_bounds else ()
    return _log_slices(found.place, files, options, bounds)


def _log_slices(
    place: StorePlace,
    files: Sequence[tuple[int, int]],
    options: ReadOptions,
    bounds: tuple[QueueStretch, ...],
) -> list[Partition]:
    """Slices of about the same length, none longer than the option says, none in two files.

    Their number is even: with three slices one of two workers would read two.
    """
    slices: list[Partition] = []
    total = sum(end - begin for begin, end in files)
    shorter = min(options.max_partitions, -(-total // SLICE_BYTES_MIN))
    wanted = max(1, -(-total // options.slice_bytes), shorter)
    slice_bytes = -(-total // (wanted + wanted % 2 if wanted > 1 else 1)) or 1
    for begin, end in files:
        count = -(-(end - begin) // slice_bytes)
        for number in range(count):
            low = begin + (end - begin) * number // count
            high = begin + (end - begin) * (number + 1) // count
            slices.append(LogSlice(place, low, high, bounds))
    return slices


def _log_bounds(place: StorePlace, options: ReadOptions) -> tuple[int, int]:
    begin, end = options.starting_physical_offset, options.ending_physical_offset
    if end is not None and end > place.end:
        raise InvalidValue("endingPhysicalOffset", end, f"at most {place.end}, where the log ends")
    if begin is not None and begin > place.end:
        rule = f"at most {place.end}, where the log ends"
        raise InvalidValue("startingPhysicalOffset", begin, rule)
    if begin is not None and begin < place.begin and options.fail_on_data_loss:
        raise OffsetGone(f"the log of {place.where}", begin, place.begin)
    return max(begin or 0, place.begin), place.end if end is None else end


def _files_between(
    found: Look, begin: int, end: int, options: ReadOptions
) -> list[tuple[int, int]]:
    """The parts of log files from begin to end, without files that the time options leave out."""
    since, until = options.starting_timestamp_ms, options.ending_timestamp_ms
    parts = []
    room = found.place.log_file_bytes
    for number, (start, first_ms) in enumerate(found.files):
        following = found.files[number + 1][1] if number + 1 < len(found.files) else None
        if since is not None and following is not None and following < since:
            continue
        if until is not None and first_ms is not None and first_ms >= until:
            continue
        low, high = max(begin, start), min(end, start - start % room + room)
        if low < high:
            parts.append((low, high))
    return parts


def _stretches(found: Look, options: ReadOptions) -> list[QueueStretch]:
    """The stretch of each wanted queue, checked against the offsets that the queue has."""
    ranges = {(topic, queue_id): (low, high) for topic, queue_id, low, high in found.queues}
    starts, ends = _by_queue(options.starting_offsets), _by_queue(options.ending_offsets)
    for name, given in (("startingOffsets", starts), ("endingOffsets", ends)):
        for queue, offset in given.items():
            _check_offset(name, queue, offset, ranges, options)
    first = options.starting_offsets if isinstance(options.starting_offsets, int) else EARLIEST
    last = options.ending_offsets if isinstance(options.ending_offsets, int) else LATEST
    stretches = []
    for queue, bounds in ranges.items():
        if options.takes_queue(*queue):
            low = _resolved(starts.get(queue, first), bounds)
            high = _resolved(ends.get(queue, last), bounds)
            stretches.append(QueueStretch(*queue, low, max(low, high)))
    return stretches


def _by_queue(given: int | Offsets | None) -> dict[tuple[str, int], int]:
    rows = given if isinstance(given, tuple) else ()
    return {(topic, queue_id): offset for topic, queue_id, offset in rows}


def _resolved(offset: int, bounds: tuple[int, int]) -> int:
    if offset in (EARLIEST, LATEST):
        return bounds[0] if offset == EARLIEST else bounds[1]
    return max(offset, bounds[0])


def _check_offset(
    name: str,
    queue: tuple[str, int],
    offset: int,
    ranges: Mapping[tuple[str, int], tuple[int, int]],
    options: ReadOptions,
) -> None:
    where = f"{queue[0]} queue {queue[1]}"
    if queue not in ranges:
        hint = did_you_mean(queue[0], {topic for topic, _ in ranges} - {queue[0]})
        raise InvalidValue(name, where, f"a queue that holds messages{hint}")
    low, high = ranges[queue]
    if offset > high:
        rule = f"at most {high}, where that queue ends now"
        raise InvalidValue(name, f"{where}: {offset}", rule)
    if 0 <= offset < low and name == "startingOffsets" and options.fail_on_data_loss:
        raise OffsetGone(where, offset, low)
