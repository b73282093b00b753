"""What a broker says of itself: rmqlite status, the web page and the metrics read it."""

from __future__ import annotations

from rmqlite import __version__
from rmqlite.broker.counts import Counts
from rmqlite.broker.retention import Retention
from rmqlite.broker.schedule.changes import Changes
from rmqlite.broker.schedule.schedule import Schedule
from rmqlite.broker.waits.wait_queues import WaitQueues
from rmqlite.requests.schedule import ScheduleAction
from rmqlite.requests.status import BrokerStatus
from rmqlite.store.message_store import MessageStore


def status_of(
    store: MessageStore,
    counts: Counts,
    schedule: Schedule,
    changes: Changes,
    wait_queues: WaitQueues,
    retention: Retention,
    *,
    broker_name: str,
    now_ms: int,
    started_at_ms: int,
    parked_polls: int,
) -> BrokerStatus:
    """Counts since the start, the waiting messages of every level, and the last disk use."""
    return BrokerStatus(
        __version__,
        broker_name,
        now_ms,
        started_at_ms,
        store.min_offset,
        store.end,
        counts.sent,
        schedule.delivered,
        counts.retried.total(),
        counts.dead.total(),
        parked_polls,
        tuple(wait_queues.status()),
        retention.used_ratio,
        retention.is_disk_full,
        *retention.pin,
        cancelled=changes.counts[ScheduleAction.CANCEL],
        fired=changes.counts[ScheduleAction.FIRE],
        rescheduled=changes.counts[ScheduleAction.RESCHEDULE],
        undeliverable=schedule.undeliverable,
    )
