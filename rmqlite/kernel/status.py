"""The counts of a broker since its start, and what an operator should know."""

from __future__ import annotations

from collections.abc import Iterator

from rmqlite import __version__
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.requests.broker import BrokerStatus, ScheduleAction
from rmqlite.kernel.retention import Retention
from rmqlite.kernel.schedule.schedule import Schedule
from rmqlite.kernel.waits.unindexed import UNINDEXED_MAX, Unindexed


def status_of(
    parts: BrokerParts,
    schedule: Schedule,
    retention: Retention,
    *,
    started_at_ms: int,
    parked_polls: int,
) -> BrokerStatus:
    """Counts since the start, the waiting messages of every level, and the last disk use."""
    store, counts, wait_queues = parts.store, parts.counts, parts.wait_queues
    return BrokerStatus(
        __version__,
        parts.config.broker_name,
        parts.clock.now_ms(),
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
        cancelled=counts.changed[ScheduleAction.CANCEL],
        fired=counts.changed[ScheduleAction.FIRE],
        rescheduled=counts.changed[ScheduleAction.RESCHEDULE],
        undeliverable=schedule.undeliverable,
        disk_bytes=retention.disk_bytes,
        warnings=tuple(_of_index(wait_queues.timers.keys.unindexed)) if wait_queues.timers else (),
    )


def _of_index(timers: Unindexed) -> Iterator[str]:
    """What keeps timers from being listed, or soon from being stored."""
    if timers.rebuilding is not None:
        done, total = timers.rebuilding
        yield (
            f"the index of the timers is made again, {done * 100 // total}% of {total:,}: until"
            " then lists and timelines lack timers, and some may be late"
        )
    if timers.unwritten >= UNINDEXED_MAX // 2:
        yield (
            f"{timers.unwritten:,} timers are not written to their index; with more than"
            f" {UNINDEXED_MAX:,} timers are refused"
        )
