"""A clock that stands still until it is moved."""

from __future__ import annotations


class FakeClock:
    """Milliseconds since 1970, moved by hand."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def not_before(self, timestamp_ms: int) -> None:
        self._now_ms = max(self._now_ms, timestamp_ms)

    def forward(self, milliseconds: int) -> None:
        assert milliseconds >= 0
        self._now_ms += milliseconds
