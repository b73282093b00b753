"""What the feature adds to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.features.dead_letters.purge_markers import PurgeMarkers
from rmqlite.features.dead_letters.redriven import Redriven
from rmqlite.features.native import NativeFeature, bodies_limit
from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.redriving import Redriving
from rmqlite.features.redrive.requests import (
    CHANGE_REDRIVE_JOB,
    GET_REDRIVE_JOB,
    IMPORT_DEAD_LETTERS,
    IMPORTED_DEAD_LETTERS_MAX,
    LIST_REDRIVE_JOBS,
    LIST_REDRIVE_OUTCOMES,
    PREVIEW_REDRIVE,
    START_REDRIVE,
    RedriveOutcome,
)
from rmqlite.features.redrive.service import RedriveCalls
from rmqlite.features.rows import Limit
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Loops, Service
from rmqlite.kernel.words.errors import MessageTooLarge
from rmqlite.kernel.words.limits import PROPERTIES_BYTES_MAX


def _make(broker: Broker) -> Iterable[object]:
    made = Redrive(broker.parts, broker.retention, broker[PurgeMarkers], broker[Redriven])
    broker.tables_of_features.append(made.jobs.tree)
    yield made


def _loops(parts: ServiceParts, _: Service) -> Loops:
    return {"redrive": Redriving(parts.broker, parts.commit, parts.clock).run()}


FEATURE: Final = NativeFeature(
    make=_make,
    calls=(RedriveCalls,),
    loops=_loops,
    answers={
        PREVIEW_REDRIVE: lambda service: service[RedriveCalls].preview,
        START_REDRIVE: lambda service: service[RedriveCalls].start,
        GET_REDRIVE_JOB: lambda service: service[RedriveCalls].get,
        LIST_REDRIVE_JOBS: lambda service: service[RedriveCalls].all,
        CHANGE_REDRIVE_JOB: lambda service: service[RedriveCalls].change,
        IMPORT_DEAD_LETTERS: lambda service: service[RedriveCalls].import_letters,
        LIST_REDRIVE_OUTCOMES: lambda service: service[RedriveCalls].outcomes,
    },
    limits=lambda config: {
        "ImportDeadLettersRequest.letters": Limit(count=IMPORTED_DEAD_LETTERS_MAX),
        "ImportedDeadLetter.properties": Limit(size=PROPERTIES_BYTES_MAX, error=MessageTooLarge),
        "ImportedDeadLetter.body": bodies_limit(config),
        "ListRedriveOutcomesRequest.outcomes": Limit(count=len(RedriveOutcome)),
    },
)
