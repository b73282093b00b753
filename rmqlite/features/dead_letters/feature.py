"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.changes.pending import Pending
from rmqlite.features.dead_letters.history import Histories
from rmqlite.features.dead_letters.listing import DeadLetters, Shown
from rmqlite.features.dead_letters.purge_markers import PurgeMarkers
from rmqlite.features.dead_letters.purging import Purging
from rmqlite.features.dead_letters.redriven import Redriven
from rmqlite.features.dead_letters.retries import Retries
from rmqlite.features.dead_letters.service import DeadLetterCalls
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.service import Feature


def _make(broker: Broker) -> Iterable[object]:
    parts, markers, redriven = broker.parts, PurgeMarkers(broker.store), Redriven()
    shown = Shown(markers, redriven)
    dead = DeadLetters(parts, shown, redriven)
    yield markers
    yield redriven
    yield dead
    yield Purging(parts, markers, dead, shown, redriven)
    yield Retries(parts, broker[Pending])
    yield Histories(parts, redriven)


FEATURE: Final = Feature(make=_make, calls=(DeadLetterCalls,))
