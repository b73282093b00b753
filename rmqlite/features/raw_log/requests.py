"""Requests for the bytes of the log and their answers, for clients that decode in bulk.

A record in the log has everything about its message, and to send it costs the broker only a
copy.  The broker gives only durable bytes.  Offsets of the log are physical offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqlite.features.rows import LIST_REQUEST_BYTES_MAX, Row
from rmqlite.kernel.requests.broker import DatedTable
from rmqlite.kernel.requests.topics import QueueRange

READ_BYTES_DEFAULT: Final = 1 << 20
READ_BYTES_MAX: Final = 4 << 20
"""The most bytes that one call gives, unless one record is larger."""
TOPICS_MAX: Final = 1_000
"""The most topics that one call may name."""


@dataclass(frozen=True, slots=True)
class LogSnapshotRequest:
    """Asks for the log's present state and the queues of these topics; empty means all topics."""

    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The log has the bytes begin_offset <= n < end_offset, and they are durable.

    segment_bytes: the length of a log file; no log file ends in the middle of a record.
    newest_timestamp_ms: store timestamp of the last record before end_offset; 0 if there is
    none.  levels: every table of delay levels, the oldest first.  queues: sorted; each ends
    with its last record before end_offset, and a queue without any record ever is 0 to 0.
    deleted_topics: sorted; the log may still have records that their queues have not.
    """

    begin_offset: int
    end_offset: int
    segment_bytes: int
    now_ms: int
    newest_timestamp_ms: int
    broker_name: str
    levels: tuple[DatedTable, ...]
    queues: tuple[QueueRange, ...]
    deleted_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogReadRequest:
    """Asks for the bytes of the log from begin_offset up to end_offset; None means to its end.

    max_bytes: 1 to 4 MiB; 0 means 1 MiB.
    """

    begin_offset: int
    end_offset: int | None = None
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LogRead:
    """data begins at the request's begin_offset and may end in the middle of a record.

    It never crosses the end of a log file.  next_offset: the begin_offset of the next request;
    the same as before if the log has no more bytes yet.
    """

    data: bytes
    next_offset: int


@dataclass(frozen=True, slots=True)
class QueueReadRequest:
    """Asks for the records begin_queue_offset <= n < end_queue_offset; None means to the end.

    max_bytes: as in LogReadRequest, but the answer has at least one record.
    """

    topic: str
    queue_id: int
    begin_queue_offset: int
    end_queue_offset: int | None = None
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class QueueRead:
    """Whole records, one behind the other, in the order of the queue.

    next_queue_offset: where the next request begins, even if records is empty: a place whose
    record was lost, and repaired, gives no bytes.
    """

    records: bytes
    next_queue_offset: int


GET_LOG_SNAPSHOT: Final = Row(
    "Log", "GetLogSnapshot", LogSnapshotRequest, LogSnapshot, bytes_max=LIST_REQUEST_BYTES_MAX
)
READ_LOG: Final = Row("Log", "ReadLog", LogReadRequest, LogRead)
READ_QUEUE: Final = Row("Log", "ReadQueue", QueueReadRequest, QueueRead)
