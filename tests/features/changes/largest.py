"""The largest requests of calls about what waits."""

from __future__ import annotations

from typing import Final

from rmqlite.features.changes.requests import (
    CHANGE_BY_FILTER,
    CHANGE_BY_IDS,
    CHANGED_IDS_MAX,
    COUNT_PENDING,
    GET_TIMELINE,
    LIST_PENDING,
    TIMELINE_BOUNDS_MAX,
    ChangeByFilter,
    ChangeByIds,
    PendingFilter,
    PendingQuery,
    TimelineRequest,
)
from rmqlite.kernel.requests.broker import ScheduleAction
from tests.support.largest_calls import TOPIC, Requests

EVERY_PENDING: Final = PendingFilter(reason="nothing like that " * 50)
LARGEST: Final[Requests] = {
    LIST_PENDING: lambda at: PendingQuery(
        EVERY_PENDING if at.is_first else PendingFilter(key="k"), max_messages=1_000
    ),
    COUNT_PENDING: lambda _: None,
    GET_TIMELINE: lambda at: TimelineRequest(
        tuple(at.broker.clock.now_ms() + 36_000 * number for number in range(TIMELINE_BOUNDS_MAX))
    ),
    CHANGE_BY_IDS: lambda at: ChangeByIds(
        ScheduleAction.RESCHEDULE,
        tuple(f"id-{number}" for number in range(CHANGED_IDS_MAX)),
        **at.new_time(),
    ),
    CHANGE_BY_FILTER: lambda at: ChangeByFilter(
        ScheduleAction.RESCHEDULE, PendingFilter(topic=TOPIC), max_messages=2_000, **at.new_time()
    ),
}
