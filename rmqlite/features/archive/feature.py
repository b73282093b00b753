"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.archive.archiving import Archiving
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Feature, Loops, Service


def _make(broker: Broker) -> Iterable[object]:
    if broker.parts.config.archive_url:
        yield Archiving(broker.parts, broker.retention)


def _loops(parts: ServiceParts, service: Service) -> Loops:
    archiving = parts.broker.get(Archiving)
    if archiving is None:
        return {}
    service.archives = lambda: (archiving.status(),)
    return {"archive": archiving.run_archiving()}


FEATURE: Final = Feature(make=_make, loops=_loops)
"""Archives the store while archiveUrl is set."""
