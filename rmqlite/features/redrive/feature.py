"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.dead_letters.purge_markers import PurgeMarkers
from rmqlite.features.dead_letters.redriven import Redriven
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.redriving import Redriving
from rmqlite.features.redrive.service import RedriveCalls
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Feature, Loops, Service


def _make(broker: Broker) -> Iterable[object]:
    made = Redrive(broker.parts, broker.retention, broker[PurgeMarkers], broker[Redriven])
    broker.tables_of_features.append(made.jobs.tree)
    yield made


def _loops(parts: ServiceParts, _: Service) -> Loops:
    return {"redrive": Redriving(parts.broker, parts.commit, parts.clock).run()}


FEATURE: Final = Feature(
    make=_make,
    calls=(RedriveCalls,),
    loops=_loops,
)
