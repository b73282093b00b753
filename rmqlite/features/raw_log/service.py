"""The log and its queues, read as raw records."""

from __future__ import annotations

from rmqlite.features.raw_log.raw_reading import RawReading
from rmqlite.features.raw_log.requests import (
    LogRead,
    LogReadRequest,
    LogSnapshot,
    LogSnapshotRequest,
    QueueRead,
    QueueReadRequest,
)
from rmqlite.kernel.service.access import Right, needs, topic_right, view
from rmqlite.kernel.service.part import Part
from rmqlite.kernel.service.turns import done_in_turns


class LogCalls(Part):
    """Calls of jobs that read the log."""

    @view
    async def snapshot(self, request: LogSnapshotRequest) -> LogSnapshot:
        """Where log and queues begin and end now."""
        return await done_in_turns(self._broker[RawReading].snapshot(request))

    @view
    async def read(self, request: LogReadRequest) -> LogRead:
        """Records in the order of the log."""
        return await done_in_turns(self._broker[RawReading].read_log(request))

    @needs(lambda request: [topic_right(Right.VIEW, request.topic)])
    async def read_queue(self, request: QueueReadRequest) -> QueueRead:
        """Records in the order of a queue."""
        return await done_in_turns(self._broker[RawReading].read_queue(request))
