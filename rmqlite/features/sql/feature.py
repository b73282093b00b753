"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.sql.sql import compiled
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.service import Feature


def _make(broker: Broker) -> Iterable[object]:
    broker.parts.filters.sql = compiled
    return ()


FEATURE: Final = Feature(make=_make)
