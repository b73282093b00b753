"""Plans a stream: the ranges of its queues, how far a batch goes, and whether records were lost.

Each batch looks the ranges up anew, so that it finds new topics and queues.  A folder may be in
use by a broker while it is read.  A broker is asked over one connection that stays open, and gets
the group's progress over the same connection.

A queue without an offset is at 0: it did not exist before.  Spark compares offsets as text, so
the same offsets are always the same text: topics and queues are sorted, and a queue that never
had a record is left out.

Spark's checkpoint has the offsets of a stream; this module compares them with the present queues.
If retention deleted records before they were read, or the store is another one than before, the
plan raises an error.  With failOnDataLoss=false it warns, and the stream continues at the first
record that exists.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from rmqlite.kernel.requests.topics import Queue as BrokerQueue
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import InvalidValue, OffsetGone, RmqliteError
from rmqlite.kernel.words.names import check_group, is_system
from rmqlite.spark.arrow.partitions import (
    EARLIEST,
    LATEST,
    QueueStretch,
    ReadOptions,
    StorePlace,
    packed,
)
from rmqlite.spark.arrow.planning import Look
from rmqlite.spark.options import STAMPS, credentials_of
from rmqlite.spark.partitions import look, look_of

if TYPE_CHECKING:
    from rmqlite.client.raw import RawReader


Queue = tuple[str, int]
Offsets = dict[Queue, int]
"""(topic, queue id) -> the next queue offset to read."""
_RULE: Final = 'offsets of this format, such as {"topic": {"0": 23}}'
Ranges = dict[Queue, tuple[int, int]]
"""(topic, queue id) -> min_offset <= queue offset < max_offset."""
log = logging.getLogger(__name__)


class QueueRanges(Protocol):
    """The source of a stream's offsets."""

    place: StorePlace | None
    """The store or broker at the last look, for the readers."""

    def ranges(self, *, is_new: bool) -> Ranges:
        """All queues of all topics, the system's too.  Raises Unavailable, StoreDamaged.

        is_new: the stream begins now, so a broker that is away may be a wrong endpoint: raise at
        once.  A stream that goes on waits for its broker.
        """
        ...

    def offsets_at(self, timestamp_ms: int, queues: Mapping[Queue, object]) -> Offsets:
        """The first offset of each queue that was stored at or after a time; the end if none."""
        ...

    def publish(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Commit the offsets of a consumer group.  Raises RmqliteError."""
        ...

    def close(self) -> None:
        """Close the connection; a later question opens a new one."""
        ...


class StoreRanges:
    """The ranges of a store's folder."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self.place: StorePlace | None = None

    def ranges(self, *, is_new: bool) -> Ranges:
        del is_new
        found = look(self._options)
        self.place = found.place
        return _ranges(found)

    def offsets_at(self, timestamp_ms: int, queues: Mapping[Queue, object]) -> Offsets:
        from rmqlite.store_tools.reader import StoreReader

        with StoreReader(Path(self._options.path)) as reader:
            found = reader.offsets_at(timestamp_ms)
        return {queue: offset for queue, offset in found.items() if queue in queues}

    def publish(self, group: str, offsets: Mapping[Queue, int]) -> None:
        raise AssertionError(f"a store's folder cannot commit offsets of {group}: {offsets}")

    def close(self) -> None:
        """There is no connection."""


class BrokerRanges:
    """The ranges of a broker; the first question loads gRPC."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._reader: RawReader | None = None
        self.place: StorePlace | None = None

    def ranges(self, *, is_new: bool) -> Ranges:
        found = look_of(self._options.endpoint, self._opened().snapshot(is_known=not is_new))
        self.place = found.place
        return _ranges(found)

    def offsets_at(self, timestamp_ms: int, queues: Mapping[Queue, object]) -> Offsets:
        reader = self._opened()
        return {queue: reader.offset_at(*queue, timestamp_ms) for queue in queues}

    def publish(self, group: str, offsets: Mapping[Queue, int]) -> None:
        reached = {BrokerQueue(*queue): offset for queue, offset in offsets.items()}
        self._opened().commit(group, reached)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _opened(self) -> RawReader:
        if self._reader is None:
            from rmqlite.client.raw import RawReader

            credentials = credentials_of(self._options)
            self._reader = RawReader(self._options.endpoint, credentials=credentials)
        return self._reader


def _ranges(found: Look) -> Ranges:
    return {(topic, queue_id): (low, high) for topic, queue_id, low, high in found.queues}


def ranges_of(options: ReadOptions) -> QueueRanges:
    return StoreRanges(options) if options.path else BrokerRanges(options)


def from_spark(tree: Mapping[str, Any]) -> Offsets:
    """The inverse of to_spark, without stamps.

    Raises InvalidValue if the checkpoint is of another source.
    """
    try:
        return {
            (topic, int(queue_id)): int(offset)
            for topic, queues in tree.items()
            if topic != STAMPS
            for queue_id, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidValue("checkpointLocation", tree, _RULE) from error


def limited(sizes: Mapping[Queue, int], rows_max: int) -> dict[Queue, int]:
    """How many records of each queue make a batch of at most rows_max; some queues may get none.

    Each queue with records gets one, the longest queues first, so that a long queue does not
    hold up a short one; the rest is divided by the lengths of the queues.
    """
    waiting = {queue: size for queue, size in sizes.items() if size > 0}
    total = sum(waiting.values())
    if total <= rows_max:
        return waiting
    longest = sorted(waiting, key=lambda queue: (-waiting[queue], queue))
    if rows_max <= len(longest):
        return dict.fromkeys(longest[:rows_max], 1)
    left, beyond = rows_max - len(longest), total - len(longest)
    shares = {queue: 1 + left * (size - 1) // beyond for queue, size in waiting.items()}
    # Rounding down leaves less than one per queue.
    for queue in longest[: rows_max - sum(shares.values())]:
        shares[queue] += 1
    return shares


class StreamPlan:
    """One stream on the driver, from its start to its end."""

    def __init__(self, options: ReadOptions, source: QueueRanges) -> None:
        """Raises InvalidValue for options that a stream does not have."""
        check_stream(options)
        self._options = options
        self._source = source
        self._initial: Offsets | None = None
        self._ranges: Ranges | None = None
        self._bounds: Ranges | None = None
        self._has_planned = False

    def initial(self) -> Offsets:
        """Where a new stream begins; later calls return the same."""
        if self._initial is None:
            found = self._look(is_new=True)
            self._warn_of_missing({topic for topic, _ in found})
            self._initial = initial_offsets(self._options, self._source, found)
        return dict(self._initial)

    def prepare_available_now(self) -> None:
        """End this run at the present ends of the queues."""
        self._bounds = self._look()

    def latest(self, start: Mapping[Queue, int], rows_max: int | None) -> Offsets:
        """The end of the next batch; equal to start if there are no new records.

        rows_max: None means no limit.  Raises OffsetGone or InvalidValue if records are lost.
        """
        self._has_planned = True
        ranges = self._look()
        begins, sizes = {}, {}
        for queue in sorted(ranges.keys() | self._taken(start)):
            low, high = ranges.get(queue, (0, 0))
            begin = self._begin(queue, start.get(queue, 0), low, high)
            if self._bounds is not None:
                high = min(high, self._bounds.get(queue, (0, 0))[1])
            begins[queue], sizes[queue] = begin, max(0, high - begin)
        taken = sizes if rows_max is None else limited(sizes, rows_max)
        end = dict(start)
        for queue, begin in begins.items():
            upto = begin + taken.get(queue, 0)
            if upto != start.get(queue, 0):
                end[queue] = upto
        return end

    def ends(self) -> Offsets:
        """The present ends of the queues, for a Spark that does not say where a batch begins."""
        self._has_planned = True
        return _ends(self._look())

    def slices(
        self, start: Mapping[Queue, int], end: Mapping[Queue, int]
    ) -> list[tuple[QueueStretch, ...]]:
        """The queue slices of each partition of a batch.  Raises the errors of latest()."""
        self._check_first_batch()
        ranges = self._look() if self._ranges is None else self._ranges
        found = []
        for queue in sorted(self._taken(start) | self._taken(end)):
            # After ends() a queue may be missing: it is gone.
            begin, upto = start.get(queue, 0), end.get(queue, 0)
            if begin == upto:
                continue
            low, high = ranges.get(queue, (0, 0))
            if upto < begin or upto > high:
                self._lost_end(queue, max(begin, upto), high)
                begin, upto = (low if upto < begin else begin), min(upto, high)
            begin = self._begin(queue, begin, low, max(begin, high))
            found.append(QueueStretch(*queue, begin, max(begin, upto)))
        options = self._options
        return packed(found, partitions_max=options.max_partitions, rows=options.rows_per_partition)

    def continued(self, replaced: Mapping[Queue, tuple[int, int]], start: Offsets) -> Offsets:
        """Where to continue queues whose log was cut behind a read record, and grew again.

        replaced: when the record before the offset in start was stored, and the one that is there
        now.  Raises InvalidValue if records are lost.
        """
        found: Offsets = {}
        for queue, (read_ms, there_ms) in sorted(replaced.items()):
            if self._options.fail_on_data_loss:
                rule = (
                    f"of the log that was read: the record before it in {_named(queue)} was stored"
                    f" at {local_text(read_ms)}, the one that is there now at"
                    f" {local_text(there_ms)}; the log was cut, as rmqlite store repair does, and"
                    " has grown again; take another checkpoint, or failOnDataLoss=false to continue"
                    " with the first record after that time"
                )
                raise InvalidValue("offset", start[queue], rule)
            found |= self._source.offsets_at(read_ms + 1, {queue: None})
            log.warning(
                "the log was cut and has grown again, the stream continues topic=%s queue_id=%d "
                "queue_offset=%d next_offset=%d",
                *(*queue, start[queue], found[queue]),
            )
        return found

    def has_record(self, queue: Queue, offset: int) -> bool:
        """Did the last look find this queue offset?"""
        low, high = (self._ranges or {}).get(queue, (0, 0))
        return low <= offset < high

    @property
    def newest(self) -> Offsets | None:
        """The ends of all queues at the last look."""
        if self._ranges is None:
            return None
        return _ends(self._ranges)

    @property
    def place(self) -> StorePlace | None:
        """The place of the last slices()."""
        return self._source.place

    def publish(self, reached: Mapping[Queue, int]) -> None:
        """Commit the group's offsets at the broker, if there is a group; a failure is logged."""
        if self._options.group:
            publish(self._source, self._options.group, reached)

    def close(self) -> None:
        self._source.close()

    def _look(self, *, is_new: bool = False) -> Ranges:
        takes = self._options.takes_queue
        found = self._source.ranges(is_new=is_new)
        self._ranges = {queue: each for queue, each in found.items() if takes(*queue)}
        return self._ranges

    def _warn_of_missing(self, topics: set[str]) -> None:
        """Warn: a topic may be made later, as retry topics are, or its name may be mistyped."""
        for topic in self._options.topics:
            if topic not in topics:
                log.warning("no such topic yet, the stream waits for it topic=%s", topic)

    def _taken(self, offsets: Mapping[Queue, int]) -> set[Queue]:
        """The queues that this run reads; an earlier run may have read others, too."""
        return {queue for queue in offsets if self._options.takes_queue(*queue)}

    def _begin(self, queue: Queue, begin: int, low: int, high: int) -> int:
        """Where to continue: at begin, or at the first record if begin is lost."""
        if begin > high:
            self._lost_end(queue, begin, high)
            return low
        if begin >= low:
            return begin
        what = f"{_named(queue)}, read with failOnDataLoss=true"
        if self._options.fail_on_data_loss:
            raise OffsetGone(what, begin, low)
        log.warning(
            "records are lost, the stream continues topic=%s queue_id=%d queue_offset=%d "
            "min_offset=%d",
            *(*queue, begin, low),
        )
        return low

    def _lost_end(self, queue: Queue, reached: int, high: int) -> None:
        if self._options.fail_on_data_loss:
            rule = (
                f"at most {high}: {_named(queue)} ends there; the store is not the one that was"
                " read, or lost its end; take another checkpoint, or failOnDataLoss=false"
            )
            raise InvalidValue("offset", reached, rule)
        log.warning(
            "the queue ends before the offset that was read, the stream continues topic=%s "
            "queue_id=%d queue_offset=%d max_offset=%d",
            *(*queue, reached, high),
        )

    def _check_first_batch(self) -> None:
        """Raise if Spark runs a first batch again: where "latest" was then is lost."""
        if self._has_planned or self._initial is None or not _is_moving(self._options):
            return
        self._has_planned = True
        rule = (
            "JSON: Spark runs the first batch of this stream again and the place where it"
            " began is lost; use read_stream, another checkpoint, or failOnDataLoss=false"
        )
        if self._options.fail_on_data_loss:
            raise InvalidValue("startingOffsets", "latest", rule)
        log.warning("records are lost, the first batch did not finish startingOffsets=latest")


def initial_offsets(options: ReadOptions, source: QueueRanges, ranges: Ranges) -> Offsets:
    """Where a new stream begins; ranges: those of the queues that it reads.

    A queue that JSON in startingOffsets does not name begins at its first record.
    """
    wanted = LATEST if options.starting_offsets is None else options.starting_offsets
    words = {EARLIEST: 0, LATEST: 1}
    held = {queue: found for queue, found in ranges.items() if found[1]}
    if options.starting_timestamp_ms is not None:
        return source.offsets_at(options.starting_timestamp_ms, held)
    if isinstance(wanted, int):
        return {queue: found[words[wanted]] for queue, found in held.items()}
    offsets = {queue: low for queue, (low, _) in held.items()}
    for topic, queue_id, offset in wanted:
        queue = (topic, queue_id)
        if not options.takes_queue(*queue):
            rule = f"of queues that the stream reads: {_named(queue)} is none of them"
            raise InvalidValue("startingOffsets", f"{topic} {queue_id}", rule)
        if offset >= 0:
            offsets[queue] = offset
        elif queue in held:
            offsets[queue] = held[queue][words[offset]]
    return offsets


def check_stream(options: ReadOptions) -> None:
    """Raises InvalidValue for options that only a batch has, or that need a broker."""
    for name, value in (
        ("endingOffsets", options.ending_offsets),
        ("endingTimestamp", options.ending_timestamp_ms),
        ("startingPhysicalOffset", options.starting_physical_offset),
        ("endingPhysicalOffset", options.ending_physical_offset),
    ):
        if value is not None:
            raise InvalidValue(name, value, "left out: only spark.read has this option")
    if options.group:
        if options.path:
            rule = "left out without endpoint: a store's folder takes no offsets of a group"
            raise InvalidValue("group", options.group, rule)
        check_group(options.group)


def publish(source: QueueRanges, group: str, reached: Mapping[Queue, int]) -> None:
    """Commit a group's offsets at a broker; a failure is logged, the stream does not need it."""
    offsets = {queue: offset for queue, offset in reached.items() if not is_system(queue[0])}
    try:
        if offsets:
            source.publish(group, offsets)
    except RmqliteError as error:
        log.warning("progress is not published group=%s: %s", group, error)


def _ends(ranges: Ranges) -> Offsets:
    return {queue: high for queue, (_, high) in ranges.items() if high}


def _is_moving(options: ReadOptions) -> bool:
    """Does the beginning of a new stream move as messages arrive?"""
    wanted = options.starting_offsets
    if options.starting_timestamp_ms is not None:
        return False
    if wanted is None or isinstance(wanted, int):
        return wanted != EARLIEST
    return any(offset == LATEST for _, _, offset in wanted)


def _named(queue: Queue) -> str:
    return f"queue {queue[1]} of topic {queue[0]!r}"
