"""requests/bulk.py <-> rmqlite.v1: columns stay columns, so a codec runs once per call."""

from __future__ import annotations

from rmqlite.requests.bulk import BulkAnswer, BulkJob, BulkMatch, BulkRequest, Refusal, RefusedAt
from rmqlite.wire.codec import flat, nested
from rmqlite.wire.pb import rmqlite_pb2 as pb

refusal = flat(Refusal, pb.Refusal)
request = nested(BulkRequest, pb.ScheduleBulkRequest, match=BulkMatch, already_refused=refusal)
refused_at = nested(RefusedAt, pb.RefusedAt, refusal=refusal)
answer = nested(BulkAnswer, pb.ScheduleBulkResponse, refused=refused_at)
job = nested(BulkJob, pb.BulkJob, samples=refusal)
