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
from rmqlite.features.dead_letters.requests import (
    GET_HISTORY,
    LIST_DEAD_LETTER_GROUPS,
    LIST_DEAD_LETTERS,
    LIST_REASONS,
    LIST_RETRIES,
    PURGE_DEAD_LETTERS,
)
from rmqlite.features.dead_letters.retries import Retries
from rmqlite.features.dead_letters.service import DeadLetterCalls
from rmqlite.features.native import NativeFeature
from rmqlite.features.rows import SEARCHED
from rmqlite.kernel.broker import Broker


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


FEATURE: Final = NativeFeature(
    make=_make,
    calls=(DeadLetterCalls,),
    answers={
        LIST_DEAD_LETTER_GROUPS: lambda service: service[DeadLetterCalls].dead_groups,
        LIST_REASONS: lambda service: service[DeadLetterCalls].reasons,
        LIST_DEAD_LETTERS: lambda service: service[DeadLetterCalls].dead,
        PURGE_DEAD_LETTERS: lambda service: service[DeadLetterCalls].purge,
        LIST_RETRIES: lambda service: service[DeadLetterCalls].retries,
        GET_HISTORY: lambda service: service[DeadLetterCalls].history,
    },
    limits=lambda _: {"GetHistoryRequest.message_id": SEARCHED},
)
