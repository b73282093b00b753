"""What the feature adds to a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from rmqlite.features.operating.progress import Progress
from rmqlite.features.rate_limits.rate_limits import RateLimits, Timer
from rmqlite.kernel.service.part import Part, ServiceParts
from rmqlite.kernel.service.service import Feature


def _later(seconds: float, call: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(seconds, call)


class RateLimitCalls(Part):
    """Calls wait for tokens as they wait for messages."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self.limits = RateLimits(parts.broker, parts.pulls, _later)
        parts.broker[Progress].held_back_at_ms = self.limits.held_back_at_ms


FEATURE: Final = Feature(calls=(RateLimitCalls,))
