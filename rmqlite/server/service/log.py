"""The log as raw bytes, for jobs that read millions of records.

Reading is done in steps, and other calls get their turns between them.
"""

from __future__ import annotations

from rmqlite.access.accounts import Right
from rmqlite.requests.log import (
    LogRead,
    LogReadRequest,
    LogSnapshot,
    LogSnapshotRequest,
    QueueRead,
    QueueReadRequest,
)
from rmqlite.server.service.access import needs, topic_right, view
from rmqlite.server.service.part import Part
from rmqlite.server.turns import done_in_turns


class LogCalls(Part):
    """Calls of jobs that read the log."""

    @view
    async def snapshot(self, request: LogSnapshotRequest) -> LogSnapshot:
        """Where log and queues begin and end now."""
        return await done_in_turns(self._broker.raw.snapshot(request))

    @view
    async def read(self, request: LogReadRequest) -> LogRead:
        """Records in the order of the log."""
        return await done_in_turns(self._broker.raw.read_log(request))

    @needs(lambda request: [topic_right(Right.VIEW, request.topic)])
    async def read_queue(self, request: QueueReadRequest) -> QueueRead:
        """Records in the order of a queue."""
        return await done_in_turns(self._broker.raw.read_queue(request))
