"""The broker's counts since its start, in memory only: one field per event, and durations.

Counts per group are for existing groups: a name that the broker refused is never counted.
Durations are counts up to fixed bounds, the form that monitoring reads: add() costs a bisection in
a short tuple and makes no object; the sums are computed when the histogram is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, NamedTuple

from rmqlite.kernel.requests.broker import ScheduleAction

PAIRS_MAX: Final = 10_000
"""Pairs of topic and group whose pulls are counted; the pulls of further pairs are not."""
BOUNDS_S: Final = (
    *(0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5),
    *(0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
"""From a write into memory, 25 µs, to a very slow sync, 5 s."""


class Histogram(NamedTuple):
    """up_to: (bound in seconds, number of durations up to it), by bound; total: their number."""

    up_to: tuple[tuple[float, int], ...]
    total: int
    sum_s: float

    @classmethod
    def of(cls, bounds_s: Iterable[float], between: Iterable[int], sum_s: float) -> Histogram:
        """between: the counts up to the first bound, between two bounds each, above the last."""
        *sums, total = accumulate(between)
        return cls(tuple(zip(bounds_s, sums, strict=True)), total, sum_s)


class Durations:
    """Counts durations; its size does not grow with their number."""

    __slots__ = ("_between", "_sum_s")

    def __init__(self) -> None:
        self._between = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        self._between[bisect_left(BOUNDS_S, seconds)] += 1
        self._sum_s += seconds

    def histogram(self) -> Histogram:
        return Histogram.of(BOUNDS_S, self._between, self._sum_s)


@dataclass(slots=True)
class Counts:
    """Numbers of messages, and durations of appends."""

    sent: int = 0
    pulled: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    expired: Counter[str] = field(default_factory=Counter)
    changed: Counter[ScheduleAction] = field(default_factory=Counter)
    """Pending messages that were changed."""
    appends: Durations = field(default_factory=Durations)
    """The appends of calls and jobs; the schedule times its own."""
    stored: int = 0
    """Records of every kind."""
    found: int = 0
    missed: int = 0
    """Pulls with and without messages."""
    taken: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """By topic and group: the messages that pulls returned, and the number of these pulls."""

    held_back: Counter[str] = field(default_factory=Counter)
    """How often a call waited for its group's rate limit; and when one last got no message."""
    held_back_at_ms: dict[str, int] = field(default_factory=dict)

    def pull(self, topic: str, group: str, messages: int) -> None:
        """Count one pull of an existing group."""
        if not messages:
            self.missed += 1
            return
        self.found += 1
        self.pulled[group] += messages
        before = self.taken.get((topic, group))
        if before is not None:
            self.taken[topic, group] = before[0] + messages, before[1] + 1
        elif len(self.taken) < PAIRS_MAX:
            self.taken[topic, group] = messages, 1
