"""So many a second and no more, in any second that one may look at.

What is done is spread over the second: a share of it may be done within a span, and spans
are a little shorter than their share, so that who comes a few milliseconds late still
reaches the rate.  What trickles in below the rate never waits.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SHARES: Final = 20
"""Into how many shares a second's is cut, if the rate is that high."""
_SECOND_MS: Final = 1_000
_SHORTER: Final = 0.9


class Pace:
    """Told what was done and when; says how much more may be done now."""

    def __init__(self, rate_max: int) -> None:
        """rate_max: per second; 0 is no limit."""
        self.rate_max = rate_max
        self._share = -(-rate_max // SHARES)
        self._span_ms = int(_SHORTER * _SECOND_MS * self._share / rate_max) if rate_max else 0
        self._done: deque[tuple[int, int]] = deque()
        """When and how many, of the last second."""
        self._in_second = 0

    def free(self, now_ms: int, wanted: int) -> int:
        """How many of those wanted may be done now."""
        if not self.rate_max:
            return wanted
        while self._done and self._done[0][0] <= now_ms - _SECOND_MS:
            self._in_second -= self._done.popleft()[1]
        left = self.rate_max - self._in_second
        return max(0, min(wanted, left, self._share - self._in_span(now_ms)))

    def take(self, now_ms: int, count: int) -> None:
        """So many were done."""
        if self.rate_max and count:
            self._done.append((now_ms, count))
            self._in_second += count

    def free_at_ms(self, now_ms: int) -> int:
        """When there is room again, after free() has said 0."""
        if self._in_second >= self.rate_max:
            return self._done[0][0] + _SECOND_MS
        return self._span_ms + min(at for at, _ in self._done if at > now_ms - self._span_ms)

    def _in_span(self, now_ms: int) -> int:
        """How many were done in the span that ends now."""
        count = 0
        for at_ms, done in reversed(self._done):
            if at_ms <= now_ms - self._span_ms:
                break
            count += done
        return count
