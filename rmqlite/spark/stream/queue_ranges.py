"""The ranges of the queues that a stream reads, from a store's folder or from a broker.

Each batch looks them up anew, so that it finds new topics and queues.  A folder may be in use by
a broker while it is read.  A broker is asked over one connection that stays open, and gets the
group's progress over the same connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rmqlite.arrow.options import ReadOptions
from rmqlite.arrow.partitions import Place
from rmqlite.arrow.planning import Look, look_at_store
from rmqlite.requests.topics import Queue as BrokerQueue
from rmqlite.spark.credentials import credentials_of
from rmqlite.spark.partitions import look_of
from rmqlite.spark.stream.offsets import Offsets, Queue

if TYPE_CHECKING:
    from rmqlite.client.raw import RawReader

Ranges = dict[Queue, tuple[int, int]]
"""(topic, queue id) -> min_offset <= queue offset < max_offset."""


class QueueRanges(Protocol):
    """The source of a stream's offsets."""

    place: Place | None
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

    def __init__(self, path: str) -> None:
        self._root = path
        self.place: Place | None = None

    def ranges(self, *, is_new: bool) -> Ranges:
        del is_new
        found = look_at_store(self._root)
        self.place = found.place
        return _ranges(found)

    def offsets_at(self, timestamp_ms: int, queues: Mapping[Queue, object]) -> Offsets:
        from rmqlite.store.reader import StoreReader

        with StoreReader(Path(self._root)) as reader:
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
        self.place: Place | None = None

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
    return StoreRanges(options.path) if options.path else BrokerRanges(options)
