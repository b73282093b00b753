"""What the feature adds to a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from rmqlite.features.rate_limits.rate_limits import RateLimits, Timer
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import Part, ServiceParts
from rmqlite.kernel.service.service import Feature


def _later(seconds: float, call: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(seconds, call)


def _make(broker: Broker) -> Iterable[object]:
    yield RateLimits(broker)


class RateLimitCalls(Part):
    """Calls wait for tokens as they wait for messages."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        parts.broker[RateLimits].begin(parts.pulls, _later)


FEATURE: Final = Feature(make=_make, calls=(RateLimitCalls,))
