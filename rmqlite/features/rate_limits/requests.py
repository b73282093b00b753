"""A group's rate limit, as its settings say it."""

from __future__ import annotations

import math


def burst_of(max_per_second: float, burst: int) -> int:
    """The burst that is asked for; 0: the messages of one second, at least one."""
    return burst or max(1, math.ceil(max_per_second))
