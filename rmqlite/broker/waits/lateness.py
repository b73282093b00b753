"""How late deliveries were: counts, quantiles, the maximum.

It is a tally by the millisecond.  From a second on, values are rounded to three digits: after an
outage every message has its own lateness, and a reader must not wait while they are sorted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

from rmqlite.broker.histogram import Histogram

LATENESS_MS_MAX: Final = 60_000
"""A longer lateness counts as this, except in max_ms and in the histogram's sum."""
_EXACT_MS_MAX: Final = 1_000
BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""The bounds of the histogram; rounding moves no lateness across a bound."""


class Lateness:
    """A tally whose size does not grow with the number of deliveries."""

    __slots__ = ("_counts", "_sum_ms", "count", "max_ms")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._sum_ms = 0
        self.count = 0
        self.max_ms = 0

    def add(self, late_ms: int, count: int = 1) -> None:
        """Count deliveries that were this late."""
        self._counts[late_ms if late_ms <= _EXACT_MS_MAX else _rounded_up(late_ms)] += count
        self._sum_ms += late_ms * count
        self.count += count
        if late_ms > self.max_ms:
            self.max_ms = late_ms

    def quantile_ms(self, share: float) -> int:
        """The lateness that this share of deliveries did not exceed; 0 without deliveries."""
        wanted = share * self.count
        passed = 0
        for late_ms in sorted(self._counts):
            passed += self._counts[late_ms]
            if passed >= wanted:
                return late_ms
        return 0

    def histogram(self) -> Histogram:
        """The tally as a histogram with BOUNDS_MS."""
        between = [0] * (len(BOUNDS_MS) + 1)
        for late_ms, count in self._counts.items():
            between[bisect_left(BOUNDS_MS, late_ms)] += count
        bounds_s = [bound_ms / 1000 for bound_ms in BOUNDS_MS]
        return Histogram.of(bounds_s, between, self._sum_ms / 1000)


def _rounded_up(late_ms: int) -> int:
    """Rounded up to three digits; LATENESS_MS_MAX at most."""
    step_ms = 10 if late_ms <= 10_000 else 100
    return min(-(-late_ms // step_ms) * step_ms, LATENESS_MS_MAX)
