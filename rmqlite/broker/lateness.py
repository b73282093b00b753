"""How late deliveries were, in whole milliseconds: counts, quantiles, the maximum."""

from __future__ import annotations

from collections import Counter
from typing import Final

LATENESS_MS_MAX: Final = 60_000
"""Counted exactly below this; later ones count as this late, except for max_ms."""


class Lateness:
    """A tally whose size does not grow with the number of deliveries."""

    __slots__ = ("_counts", "count", "max_ms")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.max_ms = 0

    def add(self, late_ms: int, count: int = 1) -> None:
        """So many deliveries were this late."""
        self._counts[min(late_ms, LATENESS_MS_MAX)] += count
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
