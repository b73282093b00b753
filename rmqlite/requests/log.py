"""What is asked of the log itself and what it answers: raw bytes, for who decodes in bulk.

A record as it lies in the log says all about its message, and costs the broker a copy and
no more.  Only what is durable is ever given.  Offsets of the log are physical offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqlite.requests.levels import DatedTable
from rmqlite.requests.topics import QueueRange

READ_BYTES_DEFAULT: Final = 1 << 20
READ_BYTES_MAX: Final = 4 << 20
"""How much one call gives at most, unless one record is larger."""
TOPICS_MAX: Final = 1_000
"""How many topics one call may name."""


@dataclass(frozen=True, slots=True)
class LogSnapshotRequest:
    """The log as it is now, and the queues of these topics; none is all, the system's too."""

    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """begin_offset <= n < end_offset are the bytes that are kept and durable.

    segment_bytes: length of a log file; none of them ends in the middle of a record.
    newest_timestamp_ms: store timestamp of the last record before end_offset; 0 when there is
    none.  levels: every table of delay levels, the oldest first.  queues: sorted, each only up
    to its last record before end_offset; a queue that never held one is 0 to 0.
    """

    begin_offset: int
    end_offset: int
    segment_bytes: int
    now_ms: int
    newest_timestamp_ms: int
    broker_name: str
    levels: tuple[DatedTable, ...]
    queues: tuple[QueueRange, ...]


@dataclass(frozen=True, slots=True)
class LogReadRequest:
    """The bytes of the log from one on, up to end_offset; None is all there is.

    max_bytes: 1 to 4 MiB; 0 means 1 MiB.
    """

    begin_offset: int
    end_offset: int | None = None
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LogRead:
    """data begins where it was asked for and may end in the middle of a record.

    It never crosses the end of a log file.  next_offset: where to go on; what was asked for
    when there is nothing yet.
    """

    data: bytes
    next_offset: int


@dataclass(frozen=True, slots=True)
class QueueReadRequest:
    """The records begin_queue_offset <= n < end_queue_offset of a queue; None is all there is.

    max_bytes: as in LogReadRequest; at least one record is given.
    """

    topic: str
    queue_id: int
    begin_queue_offset: int
    end_queue_offset: int | None = None
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class QueueRead:
    """Whole records, one behind the other, in the order of the queue.

    next_queue_offset: where to go on, also when records is empty: a place where a record was
    lost, and repaired, has nothing to give.
    """

    records: bytes
    next_queue_offset: int
