"""requests/log.py <-> rmqlite.v1, field by field."""

from __future__ import annotations

from rmqlite.requests.log import LogSnapshot, LogSnapshotRequest
from rmqlite.wire.codec import flat, in_parts, nested
from rmqlite.wire.native import queue_range
from rmqlite.wire.native_schedule import dated_table
from rmqlite.wire.pb import rmqlite_pb2 as pb

snapshot = in_parts(
    nested(LogSnapshot, pb.GetLogSnapshotResponse, levels=dated_table, queues=queue_range),
    queues=queue_range,
)
snapshot_request = flat(LogSnapshotRequest, pb.GetLogSnapshotRequest)
