"""The largest requests of calls about the log."""

from __future__ import annotations

from typing import Final

from rmqlite.features.raw_log.requests import (
    GET_LOG_SNAPSHOT,
    READ_LOG,
    READ_QUEUE,
    LogReadRequest,
    LogSnapshotRequest,
    QueueReadRequest,
)
from tests.support.largest_calls import TOPIC, Requests

LARGEST: Final[Requests] = {
    GET_LOG_SNAPSHOT: lambda at: LogSnapshotRequest(
        tuple(f"topic-{number:05}" for number in range(1_000)) if at.is_first else ()
    ),
    READ_LOG: lambda _: LogReadRequest(0, max_bytes=4 << 20),
    READ_QUEUE: lambda _: QueueReadRequest(TOPIC, 0, 0, max_bytes=4 << 20),
}
