"""What a bulk sender asks <-> rmqlite.v1: columns stay columns, so this runs once per call."""

from __future__ import annotations

from rmqlite import bulk_requests as values
from rmqlite.wire.codec import flat, nested
from rmqlite.wire.pb import rmqlite_pb2 as pb

refusal = flat(values.Refusal, pb.Refusal)
request = nested(
    values.BulkRequest, pb.ScheduleBulkRequest, match=values.BulkMatch, already_refused=refusal
)
refused_at = nested(values.RefusedAt, pb.RefusedAt, refusal=refusal)
answer = nested(values.BulkAnswer, pb.ScheduleBulkResponse, refused=refused_at)
job = nested(values.BulkJob, pb.BulkJob, samples=refusal)
