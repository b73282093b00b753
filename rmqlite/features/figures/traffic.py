"""Figures for operators: how many messages come and go.

How many messages come and go is the difference between two samples of counts.  A sample is taken
each ten seconds.  Seven of those make a minute, seven of each ten minutes an hour, and twenty-five
of each hour a day, as in RocketMQ.  A topic's count is the sum of its queues' ends, so counting
costs a send nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from rmqlite.features.figures.requests import Rate, Rates, Totals, TrafficFigures
from rmqlite.kernel import Steps
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of
from rmqlite.kernel.words.clock import local_text

SAMPLE_S: Final = 10
_SAMPLED_QUEUES: Final = 5_000
"""The queues that one step of a sample adds up: 2 ms."""
_EACH: Final = (1, 60, 360)
_SAMPLES: Final = (7, 7, 25)
"""Every how many samples one stays for the minute, the hour and the day; and how many stay."""
_WINDOWS: Final = (1, 6, 60)
"""Ten seconds, a minute and ten minutes, in samples."""
_COMPLETED_TIMERS: Final = "completed timers"
"""Counted beside the topics, none of which may have this name."""
_DAY_CHARS: Final = len("2026-11-22")


class _Sample(NamedTuple):
    at_ms: int
    stored: dict[str, int]
    taken: dict[tuple[str, str], tuple[int, int]]


class Traffic:
    """Samples of one broker's counts."""

    def __init__(self, parts: BrokerParts) -> None:
        self._store = parts.store
        self._counts = parts.counts
        self._clock = clock = parts.clock
        self._number = 0
        self._windows = [deque[_Sample](maxlen=count) for count in _SAMPLES]
        self._totals = deque[tuple[int, Totals]](maxlen=_WINDOWS[-1] + 1)
        self._midnights = Totals(), Totals()
        self._day = local_text(clock.now_ms())[:_DAY_CHARS]
        self._begin = parts.store.end
        for _ in self.sample():
            pass

    def sample(self) -> Steps[None]:
        """Take a sample; call it each SAMPLE_S seconds."""
        stored: dict[str, int] = {}
        for number, (topic, queue_id) in enumerate(self._store.queue_keys(), 1):
            if number % _SAMPLED_QUEUES == 0:
                yield
            queue = self._store.queue(topic, queue_id)
            if queue is not None and queue.max_offset:
                stored[topic] = stored.get(topic, 0) + queue.max_offset
        completed = self._store.progress.of(TIMERS)
        stored[_COMPLETED_TIMERS] = completed.below + completed.count_above
        now_ms = self._clock.now_ms()
        sample = _Sample(now_ms, stored, self._counts.taken.copy())
        for window, each in zip(self._windows, _EACH, strict=True):
            if self._number % each == 0:
                window.append(sample)
        self._number += 1
        totals = self._now()
        self._totals.append((now_ms, totals))
        day = local_text(now_ms)[:_DAY_CHARS]
        if day != self._day:
            self._day = day
            self._midnights = self._midnights[1], totals

    def of_topic(self, topic: str) -> Rates:
        """Records stored under a topic."""
        return Rates(*[_stored(window, topic) for window in self._windows])

    def of_timers(self) -> tuple[Rate, Rate]:
        """Timers that were stored, and timers that were completed, in the last minute."""
        minute = self._windows[0]
        return _stored(minute, queue_of(TIMERS)[0]), _stored(minute, _COMPLETED_TIMERS)

    def of_group(self, topic: str, group: str) -> Rates:
        """Messages of a topic that pulls of a group returned."""
        return Rates(*[_taken(window, (topic, group)) for window in self._windows])

    def now(self) -> TrafficFigures:
        """What the whole broker does."""
        return TrafficFigures(
            self._now(),
            stored_per_second=self._per_second("stored"),
            found_per_second=self._per_second("found"),
            missed_per_second=self._per_second("missed"),
            taken_per_second=self._per_second("taken"),
            at_midnight=self._midnights,
            stored_bytes=self._store.end - self._begin,
        )

    def _now(self) -> Totals:
        counts = self._counts
        return Totals(counts.stored, counts.found, counts.missed, counts.pulled.total())

    def _per_second(self, field: str) -> tuple[float, float, float]:
        last_ms, last = self._totals[-1]
        found = []
        for samples in _WINDOWS:
            first_ms, first = self._totals[max(0, len(self._totals) - 1 - samples)]
            passed_ms = last_ms - first_ms
            count = getattr(last, field) - getattr(first, field)
            found.append(count * 1000 / passed_ms if passed_ms else 0.0)
        return found[0], found[1], found[2]


def _stored(window: deque[_Sample], topic: str) -> Rate:
    if len(window) < 2:
        return Rate()
    first, last = window[0], window[-1]
    messages = last.stored.get(topic, 0) - first.stored.get(topic, 0)
    return _rate(messages, messages, last.at_ms - first.at_ms)


def _taken(window: deque[_Sample], pair: tuple[str, str]) -> Rate:
    if len(window) < 2:
        return Rate()
    first, last = window[0], window[-1]
    messages, calls = last.taken.get(pair, (0, 0))
    messages_before, calls_before = first.taken.get(pair, (0, 0))
    return _rate(messages - messages_before, calls - calls_before, last.at_ms - first.at_ms)


def _rate(messages: int, calls: int, passed_ms: int) -> Rate:
    # A topic that was deleted meanwhile may have fewer messages than before.
    if messages <= 0 or passed_ms <= 0:
        return Rate()
    return Rate(messages, messages * 1000 / passed_ms, messages / max(1, calls))
