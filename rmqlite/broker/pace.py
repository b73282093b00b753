"""So many a second and no more, in any second that one may look at.

A second is cut into spans, and none of the spans that one can lay over the time has more
than its share: k spans of n each make up a second, k times n is the rate.  What trickles in
below the rate never waits.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SPANS: Final = 20
"""Into how many spans a second is cut, if the rate is that high: 50 ms each."""


class Pace:
    """Told what was done and when; says how much more may be done now."""

    def __init__(self, rate_max: int) -> None:
        """rate_max: per second; 0 is no limit."""
        self.rate_max = rate_max
        self._share = -(-rate_max // SPANS)
        self._span_ms = -(-1_000 // max(1, rate_max // self._share)) if rate_max else 0
        self._done: deque[tuple[int, int]] = deque()
        self._in_span = 0

    def free(self, now_ms: int, wanted: int) -> int:
        """How many of those wanted may be done now."""
        if not self.rate_max:
            return wanted
        while self._done and self._done[0][0] <= now_ms - self._span_ms:
            self._in_span -= self._done.popleft()[1]
        return min(wanted, self._share - self._in_span)

    def take(self, now_ms: int, count: int) -> None:
        """So many were done."""
        if self.rate_max and count:
            self._done.append((now_ms, count))
            self._in_span += count

    def free_at_ms(self) -> int:
        """When there is room again, after free() has said 0."""
        return self._done[0][0] + self._span_ms
