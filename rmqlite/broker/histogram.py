"""Durations as counts up to fixed bounds, the form that monitoring reads.

add() costs a bisection in a short tuple and makes no object; the sums are computed when the
histogram is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

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
