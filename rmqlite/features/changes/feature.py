"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.pending import Pending
from rmqlite.features.changes.service import ChangeCalls
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.service import Feature


def _make(broker: Broker) -> Iterable[object]:
    parts = broker.parts
    pending = Pending(parts.store, parts.wait_queues)
    yield pending
    yield Changes(parts, broker.schedule, pending)


FEATURE: Final = Feature(make=_make, calls=(ChangeCalls,))
