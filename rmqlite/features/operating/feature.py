"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.changes.pending import Pending
from rmqlite.features.figures.traffic import Traffic
from rmqlite.features.leases.leases import Leases
from rmqlite.features.operating.deleting import Deleting
from rmqlite.features.operating.progress import Progress
from rmqlite.features.operating.resetting import Resetting
from rmqlite.features.operating.service import DeletionCalls, ProgressCalls, SettingCalls
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.service import Feature


def _make(broker: Broker) -> Iterable[object]:
    progress = Progress(broker.parts, broker[Traffic], broker[Leases].table)
    deleting = Deleting(broker.parts, broker[Pending], progress)
    broker.retention.on_clean.append(deleting.forget_old)
    yield progress
    yield deleting
    yield Resetting(broker.parts, progress)


FEATURE: Final = Feature(
    make=_make,
    calls=(DeletionCalls, ProgressCalls, SettingCalls),
)
