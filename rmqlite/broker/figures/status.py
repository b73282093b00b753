"""What a broker says of itself: rmqlite status, the web page and the metrics read it."""

from __future__ import annotations

from collections.abc import Iterator

from rmqlite import __version__
from rmqlite.broker.counts import Counts
from rmqlite.broker.retention import Retention
from rmqlite.broker.schedule.changes import Changes
from rmqlite.broker.schedule.schedule import Schedule
from rmqlite.broker.waits.timer_keys import TimerKeys
from rmqlite.broker.waits.unindexed import UNINDEXED_MAX
from rmqlite.broker.waits.wait_queues import WaitQueues
from rmqlite.requests.figures import BrokerStatus
from rmqlite.requests.schedule import ScheduleAction
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
        warnings=tuple(_of_index(wait_queues.timers.keys)) if wait_queues.timers else (),
    )


def _of_index(keys: TimerKeys) -> Iterator[str]:
    """What keeps timers from being listed, or soon from being stored."""
    if keys.rebuilding is not None:
        done, total = keys.rebuilding
        yield (
            f"the index of the timers is made again, {done * 100 // total}% of {total:,}: until"
            " then lists and timelines lack timers, and some may be late"
        )
    if keys.unwritten >= UNINDEXED_MAX // 2:
        yield (
            f"{keys.unwritten:,} timers are not written to their index; with more than"
            f" {UNINDEXED_MAX:,} timers are refused"
        )
