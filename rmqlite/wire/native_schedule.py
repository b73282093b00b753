"""What is asked of the schedule <-> rmqlite.v1, field by field."""

from __future__ import annotations

from rmqlite import schedule_requests as values
from rmqlite.wire.codec import flat, in_parts, nested, sequence
from rmqlite.wire.pb import rmqlite_pb2 as pb

pending_filter = flat(values.PendingFilter, pb.PendingFilter)
query = nested(values.PendingQuery, pb.ListPendingRequest, filter=pending_filter)
pending = flat(values.PendingMessage, pb.PendingMessage)
page = in_parts(
    nested(values.PendingPage, pb.ListPendingResponse, messages=pending), messages=pending
)
count = flat(values.PendingCount, pb.PendingCount)
timeline_request = flat(values.TimelineRequest, pb.GetTimelineRequest)
level_timeline = flat(values.LevelTimeline, pb.LevelTimeline)

by_ids = nested(values.ChangeByIds, pb.ChangeByIdsRequest, action=values.ScheduleAction)
changed_id = nested(values.ChangedId, pb.ChangedId, outcome=values.ChangeOutcome)
changed_ids = sequence(pb.ChangeByIdsResponse, "changed", changed_id)
by_filter = nested(
    values.ChangeByFilter,
    pb.ChangeByFilterRequest,
    action=values.ScheduleAction,
    filter=pending_filter,
)

dated_table = flat(values.DatedTable, pb.LevelTable)
in_force = nested(values.LevelsInForce, pb.GetLevelsResponse, tables=dated_table)
level_change = flat(values.LevelChange, pb.LevelChange)
levels_changed = nested(values.LevelsChanged, pb.ChangeLevelsResponse, levels=level_change)
