"""rmqlite.v1.Log: raw bytes for readers in bulk, in steps between which others get their turn."""

from __future__ import annotations

from rmqlite.broker.broker import Broker
from rmqlite.requests.log import (
    LogRead,
    LogReadRequest,
    LogSnapshot,
    LogSnapshotRequest,
    QueueRead,
    QueueReadRequest,
)
from rmqlite.server.front import Context, Methods
from rmqlite.server.turns import done_in_turns
from rmqlite.wire import rpcs


class LogService:
    """What jobs call that read millions of records."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def methods(self) -> Methods:
        return {
            rpcs.GET_LOG_SNAPSHOT: self.get_log_snapshot,
            rpcs.READ_LOG: self.read_log,
            rpcs.READ_QUEUE: self.read_queue,
        }

    async def get_log_snapshot(self, request: LogSnapshotRequest, _: Context) -> LogSnapshot:
        return await done_in_turns(self._broker.raw.snapshot(request))

    async def read_log(self, request: LogReadRequest, _: Context) -> LogRead:
        return await done_in_turns(self._broker.raw.read_log(request))

    async def read_queue(self, request: QueueReadRequest, _: Context) -> QueueRead:
        return await done_in_turns(self._broker.raw.read_queue(request))
