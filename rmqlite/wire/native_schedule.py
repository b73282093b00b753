"""What is asked of the schedule <-> rmqlite.v1: one pair of functions per message."""

from __future__ import annotations

from rmqlite import schedule_requests as values
from rmqlite.wire.codec import Codec, flat, sequence
from rmqlite.wire.pb import rmqlite_pb2 as pb

# ---- seeing


def filter_to_pb(value: values.PendingFilter) -> pb.PendingFilter:
    return pb.PendingFilter(
        levels=value.levels,
        topic=value.topic,
        due_from_ms=value.due_from_ms,
        due_until_ms=value.due_until_ms,
        key=value.key,
        message_id=value.message_id,
        origin_topic=value.origin_topic,
        tag=value.tag,
        reason=value.reason,
    )


def filter_from_pb(value: pb.PendingFilter) -> values.PendingFilter:
    return values.PendingFilter(
        tuple(value.levels),
        value.topic,
        value.due_from_ms,
        value.due_until_ms if value.HasField("due_until_ms") else None,
        value.key,
        value.message_id,
        value.origin_topic,
        value.tag,
        value.reason,
    )


def query_to_pb(value: values.PendingQuery) -> pb.ListPendingRequest:
    return pb.ListPendingRequest(
        filter=filter_to_pb(value.filter), cursor=value.cursor, max_messages=value.max_messages
    )


def query_from_pb(value: pb.ListPendingRequest) -> values.PendingQuery:
    return values.PendingQuery(filter_from_pb(value.filter), value.cursor, value.max_messages)


def pending_to_pb(value: values.PendingMessage) -> pb.PendingMessage:
    return pb.PendingMessage(
        level=value.level,
        queue_offset=value.queue_offset,
        deliver_at_ms=value.deliver_at_ms,
        topic=value.topic,
        queue_id=value.queue_id,
        message_id=value.message_id,
        tags=value.tags,
        keys=value.keys,
        born_timestamp_ms=value.born_timestamp_ms,
        store_timestamp_ms=value.store_timestamp_ms,
        physical_offset=value.physical_offset,
        store_size=value.store_size,
        body_size=value.body_size,
        reconsume_times=value.reconsume_times,
        store_host=value.store_host,
    )


def pending_from_pb(value: pb.PendingMessage) -> values.PendingMessage:
    return values.PendingMessage(
        value.level,
        value.queue_offset,
        value.deliver_at_ms,
        value.topic,
        value.queue_id,
        value.message_id,
        value.tags,
        tuple(value.keys),
        value.born_timestamp_ms,
        value.store_timestamp_ms,
        value.physical_offset,
        value.store_size,
        value.body_size,
        value.reconsume_times,
        value.store_host,
    )


def page_to_pb(value: values.PendingPage) -> pb.ListPendingResponse:
    messages = [pending_to_pb(each) for each in value.messages]
    return pb.ListPendingResponse(messages=messages, cursor=value.cursor)


def page_from_pb(value: pb.ListPendingResponse) -> values.PendingPage:
    return values.PendingPage(tuple(pending_from_pb(each) for each in value.messages), value.cursor)


def timeline_request_to_pb(value: values.TimelineRequest) -> pb.GetTimelineRequest:
    return pb.GetTimelineRequest(bounds_ms=value.bounds_ms, levels=value.levels)


def timeline_request_from_pb(value: pb.GetTimelineRequest) -> values.TimelineRequest:
    return values.TimelineRequest(tuple(value.bounds_ms), tuple(value.levels))


# ---- changing


def by_ids_to_pb(value: values.ChangeByIds) -> pb.ChangeByIdsRequest:
    return pb.ChangeByIdsRequest(
        action=int(value.action),  # type: ignore[arg-type]
        message_ids=value.message_ids,
        topic=value.topic,
        delay_level=value.delay_level,
        dry_run=value.dry_run,
    )


def by_ids_from_pb(value: pb.ChangeByIdsRequest) -> values.ChangeByIds:
    return values.ChangeByIds(
        values.ScheduleAction(value.action),
        tuple(value.message_ids),
        value.topic,
        value.delay_level,
        value.dry_run,
    )


def changed_id_to_pb(value: values.ChangedId) -> pb.ChangedId:
    return pb.ChangedId(
        message_id=value.message_id,
        outcome=int(value.outcome),  # type: ignore[arg-type]
        count=value.count,
        deliver_at_ms=value.deliver_at_ms,
    )


def changed_id_from_pb(value: pb.ChangedId) -> values.ChangedId:
    return values.ChangedId(
        value.message_id, values.ChangeOutcome(value.outcome), value.count, value.deliver_at_ms
    )


def by_filter_to_pb(value: values.ChangeByFilter) -> pb.ChangeByFilterRequest:
    return pb.ChangeByFilterRequest(
        action=int(value.action),  # type: ignore[arg-type]
        filter=filter_to_pb(value.filter),
        delay_level=value.delay_level,
        dry_run=value.dry_run,
        cursor=value.cursor,
        max_messages=value.max_messages,
    )


def by_filter_from_pb(value: pb.ChangeByFilterRequest) -> values.ChangeByFilter:
    return values.ChangeByFilter(
        values.ScheduleAction(value.action),
        filter_from_pb(value.filter),
        value.delay_level,
        value.dry_run,
        value.cursor,
        value.max_messages,
    )


# ---- levels


def in_force_to_pb(value: values.LevelsInForce) -> pb.GetLevelsResponse:
    return pb.GetLevelsResponse(
        message_delay_level=value.message_delay_level,
        configured=value.configured,
        tables=[dated_table.to_pb(each) for each in value.tables],
    )


def in_force_from_pb(value: pb.GetLevelsResponse) -> values.LevelsInForce:
    tables = tuple(dated_table.from_pb(each) for each in value.tables)
    return values.LevelsInForce(value.message_delay_level, value.configured, tables)


def levels_changed_to_pb(value: values.LevelsChanged) -> pb.ChangeLevelsResponse:
    levels = [level_change.to_pb(each) for each in value.levels]
    return pb.ChangeLevelsResponse(before=value.before, after=value.after, levels=levels)


def levels_changed_from_pb(value: pb.ChangeLevelsResponse) -> values.LevelsChanged:
    levels = tuple(level_change.from_pb(each) for each in value.levels)
    return values.LevelsChanged(value.before, value.after, levels)


count = flat(values.PendingCount, pb.PendingCount)
level_timeline = Codec(
    pb.LevelTimeline,
    lambda value: pb.LevelTimeline(level=value.level, counts=value.counts),
    lambda value: values.LevelTimeline(value.level, tuple(value.counts)),
)
dated_table = flat(values.DatedTable, pb.LevelTable)
level_change = flat(values.LevelChange, pb.LevelChange)
changed_ids = sequence(
    pb.ChangeByIdsResponse, "changed", Codec(pb.ChangedId, changed_id_to_pb, changed_id_from_pb)
)
