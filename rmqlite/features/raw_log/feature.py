"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.raw_log.raw_reading import RawReading
from rmqlite.features.raw_log.service import LogCalls
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.service import Feature


def _make(broker: Broker) -> Iterable[object]:
    yield RawReading(broker.parts, broker.levels)


FEATURE: Final = Feature(make=_make, calls=(LogCalls,))
