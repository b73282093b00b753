"""How late deliveries were: counts, quantiles, the maximum.

A tally by the millisecond, and by three digits from a second on: after an outage every
message has a lateness of its own, and whoever asks must not wait while they are sorted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

from rmqlite.broker.histogram import Histogram

LATENESS_MS_MAX: Final = 60_000
"""Later ones count as this late, except for max_ms and the histogram's sum."""
_EXACT_MS_MAX: Final = 1_000
BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""Of the histogram; none lies between two numbers that the tally cannot tell apart."""


class Lateness:
    """A tally whose size does not grow with the number of deliveries."""

    __slots__ = ("_counts", "_sum_ms", "count", "max_ms")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._sum_ms = 0
        self.count = 0
        self.max_ms = 0

    def add(self, late_ms: int, count: int = 1) -> None:
        """So many deliveries were this late."""
        self._counts[late_ms if late_ms <= _EXACT_MS_MAX else _rounded_up(late_ms)] += count
        self._sum_ms += late_ms * count
        self.count += count
        if late_ms > self.max_ms:
            self.max_ms = late_ms

    def quantile_ms(self, share: float) -> int:
        """The lateness that this share of deliveries did not exceed; 0 when there are none."""
        wanted = share * self.count
        passed = 0
        for late_ms in sorted(self._counts):
            passed += self._counts[late_ms]
            if passed >= wanted:
                return late_ms
        return 0

    def histogram(self) -> Histogram:
        """The same tally, coarser."""
        between = [0] * (len(BOUNDS_MS) + 1)
        for late_ms, count in self._counts.items():
            between[bisect_left(BOUNDS_MS, late_ms)] += count
        bounds_s = [bound_ms / 1000 for bound_ms in BOUNDS_MS]
        return Histogram.of(bounds_s, between, self._sum_ms / 1000)


def _rounded_up(late_ms: int) -> int:
    """To three digits, and to LATENESS_MS_MAX at most."""
    step_ms = 10 if late_ms <= 10_000 else 100
    return min(-(-late_ms // step_ms) * step_ms, LATENESS_MS_MAX)
