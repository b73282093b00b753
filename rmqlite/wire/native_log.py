"""The messages of service Log whose fields codec.py cannot copy by name."""

from __future__ import annotations

from rmqlite import log_requests as values
from rmqlite.wire.codec import Codec
from rmqlite.wire.native import queue_range_from_pb, queue_range_to_pb
from rmqlite.wire.native_schedule import dated_table
from rmqlite.wire.pb import rmqlite_pb2 as pb


def snapshot_to_pb(value: values.LogSnapshot) -> pb.GetLogSnapshotResponse:
    return pb.GetLogSnapshotResponse(
        begin_offset=value.begin_offset,
        end_offset=value.end_offset,
        segment_bytes=value.segment_bytes,
        now_ms=value.now_ms,
        newest_timestamp_ms=value.newest_timestamp_ms,
        broker_name=value.broker_name,
        levels=[dated_table.to_pb(each) for each in value.levels],
        queues=[queue_range_to_pb(each) for each in value.queues],
    )


def snapshot_from_pb(value: pb.GetLogSnapshotResponse) -> values.LogSnapshot:
    return values.LogSnapshot(
        value.begin_offset,
        value.end_offset,
        value.segment_bytes,
        value.now_ms,
        value.newest_timestamp_ms,
        value.broker_name,
        tuple([dated_table.from_pb(each) for each in value.levels]),
        tuple([queue_range_from_pb(each) for each in value.queues]),
    )


snapshot = Codec(pb.GetLogSnapshotResponse, snapshot_to_pb, snapshot_from_pb)
snapshot_request = Codec(
    pb.GetLogSnapshotRequest,
    lambda value: pb.GetLogSnapshotRequest(topics=value.topics),
    lambda value: values.LogSnapshotRequest(tuple(value.topics)),
)
