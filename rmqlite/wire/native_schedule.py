"""requests/schedule.py and requests/levels.py <-> rmqlite.v1, field by field."""

from __future__ import annotations

from rmqlite.requests.levels import DatedTable, LevelChange, LevelsChanged, LevelsInForce
from rmqlite.requests.schedule import (
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    ChangeOutcome,
    LevelTimeline,
    PendingCount,
    PendingFilter,
    PendingMessage,
    PendingPage,
    PendingQuery,
    ScheduleAction,
    TimelineRequest,
)
from rmqlite.wire.codec import flat, in_parts, nested, sequence
from rmqlite.wire.pb import rmqlite_pb2 as pb

pending_filter = flat(PendingFilter, pb.PendingFilter)
query = nested(PendingQuery, pb.ListPendingRequest, filter=pending_filter)
pending = flat(PendingMessage, pb.PendingMessage)
page = in_parts(nested(PendingPage, pb.ListPendingResponse, messages=pending), messages=pending)
count = flat(PendingCount, pb.PendingCount)
timeline_request = flat(TimelineRequest, pb.GetTimelineRequest)
level_timeline = flat(LevelTimeline, pb.LevelTimeline)

by_ids = nested(ChangeByIds, pb.ChangeByIdsRequest, action=ScheduleAction)
changed_id = nested(ChangedId, pb.ChangedId, outcome=ChangeOutcome)
changed_ids = sequence(pb.ChangeByIdsResponse, "changed", changed_id)
by_filter = nested(
    ChangeByFilter,
    pb.ChangeByFilterRequest,
    action=ScheduleAction,
    filter=pending_filter,
)

dated_table = flat(DatedTable, pb.LevelTable)
in_force = nested(LevelsInForce, pb.GetLevelsResponse, tables=dated_table)
level_change = flat(LevelChange, pb.LevelChange)
levels_changed = nested(LevelsChanged, pb.ChangeLevelsResponse, levels=level_change)
