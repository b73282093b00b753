"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.leases.expiring import Expiring
from rmqlite.features.leases.leases import Leases
from rmqlite.features.leases.service import LeaseCalls
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.feature import Feature, Loops
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Service


def _make(broker: Broker) -> Iterable[object]:
    made = Leases(broker.parts, broker.failing)
    broker.tables_of_features.append(made.table.tree)
    yield made


def _loops(parts: ServiceParts, _: Service) -> Loops:
    return {"leases": Expiring(parts.broker, parts.clock).run()}


FEATURE: Final = Feature(make=_make, calls=(LeaseCalls,), loops=_loops)
