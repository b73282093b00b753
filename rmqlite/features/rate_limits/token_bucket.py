"""A token bucket: each message that is handed out takes a token, and tokens come at a fixed rate.

In any t seconds at most burst + per_second * t tokens are taken.  A bucket begins empty, so that
a broker that is killed again and again hands out no more than that, either.  Time is monotonic
seconds, so a step of the wall clock changes nothing; while the machine sleeps no tokens come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SOON_S: Final = 0.005
"""Calls are woken for the tokens of so long a time, not for each: they are handed out together."""
_ROUNDING: Final = 1e-6


class TokenBucket:
    """At most burst tokens, per_second new ones a second."""

    __slots__ = ("_at_s", "_burst", "_now_s", "_per_second", "_tokens")

    def __init__(self, per_second: float, burst: int, now_s: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = burst
        self._now_s = now_s
        self._tokens = 0.0
        self._at_s = now_s()

    def set_rate(self, per_second: float, burst: int) -> None:
        """From now on tokens come at another rate; of those that there are, burst stay."""
        self._fill()
        self._per_second, self._burst = per_second, burst
        self._tokens = min(self._tokens, burst)

    def take_tokens(self, wanted: int) -> int:
        """Take up to so many tokens; how many there were."""
        self._fill()
        taken = min(wanted, int(self._tokens + _ROUNDING))
        self._tokens -= taken
        return taken

    def give_back(self, tokens: int) -> None:
        """Tokens that were taken, and not used, are there again."""
        self._fill()
        self._tokens = min(self._tokens + tokens, self._burst)

    def seconds_left(self) -> float:
        """Until it is worth a call's while to look: 0 if it is now."""
        self._fill()
        # Half of the burst at most: of a full bucket a late call would lose tokens.
        enough = max(1.0, min(self._per_second * SOON_S, self._burst / 2))
        left = enough - self._tokens
        return left / self._per_second if left > _ROUNDING else 0.0

    def _fill(self) -> None:
        now_s = self._now_s()
        new = (now_s - self._at_s) * self._per_second
        self._tokens, self._at_s = min(self._tokens + new, self._burst), now_s
