"""The offsets of a stream, and the ranges of the queues that it reads, of a store or a broker.

Each batch looks the ranges up anew, so that it finds new topics and queues.  A folder may be in
use by a broker while it is read.  A broker is asked over one connection that stays open, and gets
the group's progress over the same connection.

A queue without an offset is at 0: it did not exist before.  Spark compares offsets as text, so
the same offsets are always the same text: topics and queues are sorted, and a queue that never
had a record is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from rmqlite.kernel.requests.topics import Queue as BrokerQueue
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.spark.arrow.partitions import ReadOptions, StorePlace
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
