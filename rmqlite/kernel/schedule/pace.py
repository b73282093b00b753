"""Limits a rate: at most so many messages within any second.

A second is divided into shares, so that messages are spread over it: within a span of time, at
most one share may be done.  A span is a little shorter than its part of the second, so a caller
that comes a few milliseconds late still reaches the rate.  A caller below the rate never waits.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SHARES: Final = 20
"""The number of shares in a second; at a lower rate, a share is one message."""
_SECOND_MS: Final = 1_000
_SHORTER: Final = 0.9


class Pace:
    """Counts what was done and when, and computes how much more may be done now."""

    def __init__(self, rate_max: int) -> None:
        """rate_max: messages per second; 0 means unlimited."""
        self.rate_max = rate_max
        self._share = -(-rate_max // SHARES)
        self._span_ms = int(_SHORTER * _SECOND_MS * self._share / rate_max) if rate_max else 0
        self._done: deque[tuple[int, int]] = deque()
        """(time, number of messages) of the last second."""
        self._in_second = 0

    def free(self, now_ms: int, wanted: int) -> int:
        """How many of the wanted messages may be done now."""
        if not self.rate_max:
            return wanted
        while self._done and self._done[0][0] <= now_ms - _SECOND_MS:
            self._in_second -= self._done.popleft()[1]
        left = self.rate_max - self._in_second
        return max(0, min(wanted, left, self._share - self._in_span(now_ms)))

    def take(self, now_ms: int, count: int) -> None:
        """Count messages that were done at now_ms."""
        if self.rate_max and count:
            self._done.append((now_ms, count))
            self._in_second += count

    def free_at_ms(self, now_ms: int) -> int:
        """When there is room again; valid only after free() returned 0."""
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
