"""Partitions: one task reads a stretch of one log file, or stretches of some queues.

A partition is a small value that the driver makes and an executor gets.  It has the place, the
begin and the end of the reading, so that reading it again gives the same rows.  The options of a
reading say which records it has, and in which portions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from rmqlite.kernel.words.levels import LevelHistory

EARLIEST: Final = -2
LATEST: Final = -1
SLICE_BYTES: Final = 512 << 20
SLICE_BYTES_MIN: Final = 128 << 20
"""Slices are not shorter only to have max_partitions of them: a task has a fixed cost."""
BATCH_ROWS: Final = 16_384
MAX_PARTITIONS: Final = 8
ROWS_PER_PARTITION: Final = 200_000
Offsets = tuple[tuple[str, int, int], ...]
"""(topic, queue id, queue offset), sorted; the offset may be EARLIEST or LATEST."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """A broker, and who the reader or writer is for it.

    access_key, secret_key: the account.  tls_ca, tls_certificate, tls_secret_key: for TLS, in PEM.
    """

    endpoint: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls_ca: str = field(default="", repr=False)
    tls_certificate: str = field(default="", repr=False)
    tls_secret_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(BrokerOptions):
    """The options of a reader; without an option its limit does not apply.

    topics, topic_pattern, queue_ids: choose records; empty means all.  starting_offsets <=
    queue offset < ending_offsets; a number stands for all queues, None for the default (start
    of a batch: earliest, of a stream: latest).  starting_timestamp_ms <= store timestamp <
    ending_timestamp_ms.  starting_physical_offset <= a record's begin < ending_physical_offset.
    group: the consumer group in which a stream shows its progress.
    """

    path: str = ""
    columns: str = ""
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    queue_ids: tuple[int, ...] = ()
    starting_offsets: int | Offsets | None = None
    ending_offsets: int | Offsets | None = None
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    starting_physical_offset: int | None = None
    ending_physical_offset: int | None = None
    fail_on_data_loss: bool = True
    verify_crc: bool = False
    slice_bytes: int = SLICE_BYTES
    batch_rows: int = BATCH_ROWS
    max_partitions: int = MAX_PARTITIONS
    rows_per_partition: int = ROWS_PER_PARTITION
    max_offsets_per_trigger: int | None = None
    group: str = ""

    @property
    def where(self) -> str:
        """The store's folder or the broker's address."""
        return self.path or self.endpoint

    @property
    def is_by_topic(self) -> bool:
        """Does it choose only some topics?"""
        return bool(self.topics or self.topic_pattern)

    def takes_topic(self, topic: str) -> bool:
        if self.topics and topic not in self.topics:
            return False
        return not self.topic_pattern or fnmatchcase(topic, self.topic_pattern)

    def takes_queue(self, topic: str, queue_id: int) -> bool:
        return (not self.queue_ids or queue_id in self.queue_ids) and self.takes_topic(topic)


class QueueStretch(NamedTuple):
    """The records begin <= queue offset < end of one queue."""

    topic: str
    queue_id: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store's folder (root) or a broker (endpoint), in its state when the reading was planned.

    Only begin <= physical offset < end is read.  known_end: for records before this physical
    offset the queue files have all entries.
    """

    root: str
    endpoint: str
    log_file_bytes: int
    queue_file_bytes: int
    begin: int
    known_end: int
    end: int
    levels: LevelHistory

    @property
    def where(self) -> str:
        return self.root or self.endpoint


@dataclass(frozen=True, slots=True)
class LogSlice:
    """The records of one log file that begin at begin <= physical offset < end.

    bounds: stretches of queues; records of these queues outside of the stretches are left out.
    """

    place: StorePlace
    begin: int
    end: int
    bounds: tuple[QueueStretch, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueSlices:
    """Records by their queue offsets, stretch by stretch; place None: the task looks it up."""

    ranges: tuple[QueueStretch, ...]
    place: StorePlace | None = None


Partition = LogSlice | QueueSlices


def packed(
    slices: Sequence[QueueStretch], *, partitions_max: int, rows: int
) -> list[tuple[QueueStretch, ...]]:
    """The slices in partitions of about the same length: about `rows` rows each.

    They are longer if that would make more than partitions_max.  A partition costs a fixed time
    even if it reads little, and a topic has many queues.
    """
    total = sum(each.end - each.begin for each in slices)
    count = max(1, min(partitions_max, -(-total // rows)))
    waiting = deque(each for each in slices if each.begin < each.end)
    made: list[tuple[QueueStretch, ...]] = []
    for number in range(count):
        room = total * (number + 1) // count - total * number // count
        part: list[QueueStretch] = []
        while room > 0:
            first = waiting.popleft()
            cut = min(first.end, first.begin + room)
            part.append(first._replace(end=cut))
            room -= cut - first.begin
            if cut < first.end:
                waiting.appendleft(first._replace(begin=cut))
        if part:
            made.append(tuple(part))
    return made
