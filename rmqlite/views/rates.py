"""Rates per second, from counters that a broker counts since its start.

The seconds are the broker's own, so that a slow answer does not look like a slow broker.
A restart begins the counters anew: that step has no rate, and none is ever negative.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, Final

from rmqlite.kernel.requests.broker import BrokerStatus
from rmqlite.views.counts import COUNTED

HISTORY_MAX: Final = 240
"""The rates stored per counter: as many as a wide screen can show."""
STEP_MS_MIN: Final = 900
"""In a shorter step a few messages would look like a flood."""
LATELY_MS: Final = 60_000


class RateRows:
    """The last rates of each counter; None for a step without one.

    from_start: the first step begins at the broker's start, where all counters were 0.
    """

    def __init__(self, *, from_start: bool = False) -> None:
        self._from_start = from_start
        self.history: dict[str, deque[float | None]] = {
            name: deque(maxlen=HISTORY_MAX) for name in COUNTED
        }
        self.over_ms = 0
        """The length of the last step; 0 while there is none."""
        self._before: BrokerStatus | None = None
        self._dead: deque[tuple[int, int]] = deque()

    def take(self, status: BrokerStatus) -> None:
        """The next status; one that comes too soon is counted with the one after it."""
        before, self._before = self._before, status
        if before is None and self._from_start:
            zero: dict[str, Any] = dict.fromkeys(COUNTED, 0)
            before = replace(status, now_ms=status.started_at_ms, **zero)
        if before is None:
            return
        if before.started_at_ms != status.started_at_ms:
            self.gap()
            return
        passed_ms = status.now_ms - before.now_ms
        if passed_ms < STEP_MS_MIN:
            self._before = before
            return
        self.over_ms = passed_ms
        for name in COUNTED:
            grown = max(0, getattr(status, name) - getattr(before, name))
            self.history[name].append(grown * 1000 / passed_ms)
        self._count_dead(status.now_ms, status.dead - before.dead)

    def gap(self) -> None:
        """A step without an answer."""
        for name in COUNTED:
            self.history[name].append(None)

    def now(self, name: str) -> float | None:
        """The last rate, None while there is none."""
        return self.history[name][-1] if self.history[name] else None

    @property
    def dead_lately(self) -> int:
        """The messages that died in the last minute of the rounds."""
        return sum([count for _, count in self._dead])

    def _count_dead(self, now_ms: int, count: int) -> None:
        if count > 0:
            self._dead.append((now_ms, count))
        while self._dead and self._dead[0][0] <= now_ms - LATELY_MS:
            self._dead.popleft()
