"""Metrics of the timers under the names of RocketMQ 5, as far as they mean the same here.

So its dashboards show this broker, too.  Lags are numbers of messages, latencies milliseconds.
Counting timers by due time may take a walk over all of them: it is done in steps, and after a long
walk its result is kept for a while.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rmqlite.kernel import Steps
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.store.progress import ScheduleProgress
from rmqlite.kernel.waits.timer_queue import TimerQueue
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable

PREFIX: Final = "rocketmq_"
BOUNDS_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
TOPICS_MAX: Final = 100
"""More topics are one series, with the label OTHERS."""
OTHERS: Final = "(other topics)"
KEPT: Final = 20
"""Counts are kept so many times as long as it took to count: at most 5 % of the loop's time."""


class TimerFigures:
    """The metrics of one broker's timers; only the broker's own thread may use it."""

    def __init__(self, broker: Broker, elapsed: Callable[[], float] = elapsed_s) -> None:
        self._broker = broker
        self._elapsed = elapsed
        self._left = self._progress.left_timers.copy()
        self._pending = self._waiting.copy()
        self._counts: tuple[float, ...] = (0,) * (len(BOUNDS_S) + 2)
        self._counted_until_s = 0.0

    def collected(self, now_ms: int) -> Generator[Metric | None, None, None]:
        """All of them; None: the end of a step."""
        timers = self._broker.wait_queues.timers
        overdue, *between, _ = yield from self._by_due_time(timers, now_ms)
        rebuilding = timers.keys.unindexed.rebuilding if timers else None
        due_ms = timers.next_due_ms() if timers else None
        gauges: tuple[tuple[str, str, float], ...] = (
            (
                "timer_enqueue_lag",
                "Timers that the index does not have, while it is made again.",
                rebuilding[1] - rebuilding[0] if rebuilding else 0,
            ),
            (
                "timer_enqueue_latency",
                "Milliseconds since the first of them was stored; 0 if there is none.",
                _unread_for_ms(self._broker, timers, now_ms) if timers and rebuilding else 0,
            ),
            ("timer_dequeue_lag", "Timers that are due and not delivered.", overdue),
            (
                "timer_dequeue_latency",
                "Milliseconds since the first timer that is not delivered was due; 0 if none is.",
                max(0, now_ms - due_ms) if due_ms is not None else 0,
            ),
        )
        for name, help_text, number in gauges:
            yield GaugeMetricFamily(PREFIX + name, help_text, number)
        snapshot = GaugeMetricFamily(
            PREFIX + "timer_message_snapshot",
            "Timers by the seconds until they are due, from the bound before up to this one.",
            labels=("timer_bound_s",),
        )
        for bound_s, count in zip(BOUNDS_S, between, strict=True):
            snapshot.add_metric((str(bound_s),), count)
        yield snapshot
        waiting = GaugeMetricFamily(
            PREFIX + "timing_messages", "Timers that wait, by topic.", labels=("topic",)
        )
        yield _added(waiting, self._waiting)
        for name, help_text, counts in (
            ("timer_enqueue", "Timers stored, those moved included.", self._enqueued()),
            (
                "timer_dequeue",
                "Timers delivered because they were due.",
                # Also topics that count 0: rate() does not notice a series that begins with 1.
                dict.fromkeys(self._waiting, 0) | self._broker.schedule.timers_delivered,
            ),
        ):
            yield _added(CounterMetricFamily(PREFIX + name, help_text, labels=("topic",)), counts)

    def _by_due_time(self, timers: TimerQueue | None, now_ms: int) -> Steps[tuple[float, ...]]:
        """How many timers are overdue, due up to each bound, and later."""
        started_s = self._elapsed()
        if timers is not None and started_s >= self._counted_until_s:
            bounds_ms = [now_ms, *[now_ms + bound_s * 1_000 for bound_s in BOUNDS_S]]
            try:
                self._counts = yield from timers.timeline(bounds_ms)
            except StoreUnavailable:
                # The other metrics must still be shown, above all when the disk has a fault.
                return (math.nan,) * len(self._counts)
            ended_s = self._elapsed()
            self._counted_until_s = ended_s + KEPT * (ended_s - started_s)
        return self._counts

    @property
    def _progress(self) -> ScheduleProgress:
        return self._broker.store.progress

    @property
    def _waiting(self) -> Counter[str]:
        return self._progress.pending.get(TIMERS, Counter())

    def _enqueued(self) -> dict[str, int]:
        """Those that wait or left, without those that did before the start."""
        now, left = self._waiting, self._progress.left_timers
        return {
            topic: now[topic] + left[topic] - self._pending[topic] - self._left[topic]
            for topic in now | left
        }


def _unread_for_ms(broker: Broker, timers: TimerQueue, now_ms: int) -> float:
    try:
        entry = timers.queue.entry(timers.keys.unindexed.unread_from)
        stored_ms = broker.store.store_timestamp_ms(entry.physical_offset) if entry else None
    except (StoreDamaged, StoreUnavailable):
        stored_ms = None
    return math.nan if stored_ms is None else max(0, now_ms - stored_ms)


def _added(family: GaugeMetricFamily | CounterMetricFamily, counts: Mapping[str, int]) -> Metric:
    """Add a sample for each of the topics with the most, and one for all others."""
    most = sorted(counts, key=lambda topic: (-counts[topic], topic))
    for topic in most[:TOPICS_MAX]:
        family.add_metric((topic,), counts[topic])
    if rest := most[TOPICS_MAX:]:
        family.add_metric((OTHERS,), sum([counts[topic] for topic in rest]))
    return family
