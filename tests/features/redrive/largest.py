"""The largest requests of calls about redrives."""

from __future__ import annotations

from typing import Final

from rmqlite.features.dead_letters.requests import DeadLetterFilter
from rmqlite.features.redrive.requests import (
    CHANGE_REDRIVE_JOB,
    GET_REDRIVE_JOB,
    IMPORT_DEAD_LETTERS,
    LIST_REDRIVE_JOBS,
    LIST_REDRIVE_OUTCOMES,
    PREVIEW_REDRIVE,
    START_REDRIVE,
    ImportedDeadLetter,
    ImportRequest,
    JobAction,
    JobChange,
    OutcomesQuery,
    RedriveJobQuery,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
)
from tests.support.largest_calls import READERS, Requests

LETTER_PROPERTIES: Final = b"RETRY_TOPIC\x01orders"
SPEC: Final = RedriveSpec(READERS, DeadLetterFilter(reason="nothing like that " * 50), again=True)
LARGEST: Final[Requests] = {
    PREVIEW_REDRIVE: lambda _: RedrivePreviewRequest(SPEC),
    START_REDRIVE: lambda at: RedriveRequest(SPEC, at.name),
    GET_REDRIVE_JOB: lambda _: RedriveJobQuery("redrive-0", with_results=True),
    LIST_REDRIVE_JOBS: lambda _: None,
    CHANGE_REDRIVE_JOB: lambda at: JobChange("redrive-1", JobAction.SET_RATE, at.number),
    IMPORT_DEAD_LETTERS: lambda at: ImportRequest(
        READERS,
        tuple(
            ImportedDeadLetter(
                0, 1_000_000 + 100 * at.number + n, "", 0, LETTER_PROPERTIES, b"x" * 40_000
            )
            for n in range(100)
        ),
    ),
    LIST_REDRIVE_OUTCOMES: lambda _: OutcomesQuery("redrive-0", max_letters=1_000),
}
