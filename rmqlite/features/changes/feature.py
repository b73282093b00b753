"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.pending import Pending
from rmqlite.features.changes.requests import (
    CHANGE_BY_FILTER,
    CHANGE_BY_IDS,
    CHANGED_IDS_MAX,
    COUNT_PENDING,
    GET_TIMELINE,
    LIST_PENDING,
    TIMELINE_BOUNDS_MAX,
)
from rmqlite.features.changes.service import ChangeCalls
from rmqlite.features.native import NativeFeature
from rmqlite.features.rows import SEARCHED, Limit
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.words.levels import LEVELS_MAX
from rmqlite.kernel.words.limits import REASON_BYTES_MAX


def _make(broker: Broker) -> Iterable[object]:
    parts = broker.parts
    pending = Pending(parts.store, parts.wait_queues)
    yield pending
    yield Changes(parts, broker.schedule, pending)


FEATURE: Final = NativeFeature(
    make=_make,
    calls=(ChangeCalls,),
    answers={
        LIST_PENDING: lambda service: service[ChangeCalls].pending,
        COUNT_PENDING: lambda service: service[ChangeCalls].counts,
        GET_TIMELINE: lambda service: service[ChangeCalls].timeline,
        CHANGE_BY_IDS: lambda service: service[ChangeCalls].change_by_ids,
        CHANGE_BY_FILTER: lambda service: service[ChangeCalls].change_by_filter,
    },
    limits=lambda _: {
        "PendingFilter.levels": Limit(count=LEVELS_MAX + 1),
        "GetTimelineRequest.levels": Limit(count=LEVELS_MAX + 1),
        "GetTimelineRequest.bounds_ms": Limit(count=TIMELINE_BOUNDS_MAX),
        "ChangeByFilterRequest.reason": Limit(size=REASON_BYTES_MAX),
        "ChangeByIdsRequest.reason": Limit(size=REASON_BYTES_MAX),
        "ChangeByIdsRequest.message_ids": replace(SEARCHED, count=CHANGED_IDS_MAX),
    },
)
