"""What a bulk sender asks <-> rmqlite.v1: columns stay columns, so this runs once per call."""

from __future__ import annotations

from rmqlite import bulk_requests as values
from rmqlite.wire.codec import Codec, flat
from rmqlite.wire.pb import rmqlite_pb2 as pb

refusal = flat(values.Refusal, pb.Refusal)


def request_to_pb(value: values.BulkRequest) -> pb.ScheduleBulkRequest:
    return pb.ScheduleBulkRequest(
        bodies=value.bodies,
        message_ids=value.message_ids,
        topics=value.topics,
        tags=value.tags,
        keys=value.keys,
        properties=value.properties,
        delay_levels=value.delay_levels,
        delays=value.delays,
        deliver_at_ms=value.deliver_at_ms,
        match=value.match.name,
        job_id=value.job_id,
        born_at_ms=value.born_at_ms,
        already_refused=[refusal.to_pb(each) for each in value.already_refused],
    )


def request_from_pb(value: pb.ScheduleBulkRequest) -> values.BulkRequest:
    return values.BulkRequest(
        tuple(value.bodies),
        tuple(value.message_ids),
        tuple(value.topics),
        tuple(value.tags),
        tuple(value.keys),
        tuple(value.properties),
        tuple(value.delay_levels),
        tuple(value.delays),
        tuple(value.deliver_at_ms),
        values.BulkMatch(value.match),
        value.job_id,
        value.born_at_ms,
        tuple([refusal.from_pb(each) for each in value.already_refused]),
    )


def answer_to_pb(value: values.BulkAnswer) -> pb.ScheduleBulkResponse:
    return pb.ScheduleBulkResponse(
        accepted=value.accepted,
        duplicates=value.duplicates,
        refused=[
            pb.RefusedAt(position=each.position, refusal=refusal.to_pb(each.refusal))
            for each in value.refused
        ],
    )


def answer_from_pb(value: pb.ScheduleBulkResponse) -> values.BulkAnswer:
    refused = [
        values.RefusedAt(each.position, refusal.from_pb(each.refusal)) for each in value.refused
    ]
    return values.BulkAnswer(value.accepted, tuple(value.duplicates), tuple(refused))


def job_to_pb(value: values.BulkJob) -> pb.BulkJob:
    return pb.BulkJob(
        job_id=value.job_id,
        accepted=value.accepted,
        duplicates=value.duplicates,
        refused=value.refused,
        calls=value.calls,
        first_at_ms=value.first_at_ms,
        last_at_ms=value.last_at_ms,
        samples=[refusal.to_pb(each) for each in value.samples],
    )


def job_from_pb(value: pb.BulkJob) -> values.BulkJob:
    return values.BulkJob(
        value.job_id,
        value.accepted,
        value.duplicates,
        value.refused,
        value.calls,
        value.first_at_ms,
        value.last_at_ms,
        tuple([refusal.from_pb(each) for each in value.samples]),
    )


job = Codec(pb.BulkJob, job_to_pb, job_from_pb)
