"""The largest requests of calls about failed messages."""

from __future__ import annotations

from typing import Final

from rmqlite.features.dead_letters.requests import (
    GET_HISTORY,
    LIST_DEAD_LETTER_GROUPS,
    LIST_DEAD_LETTERS,
    LIST_REASONS,
    LIST_RETRIES,
    PURGE_DEAD_LETTERS,
    DeadLetterFilter,
    DeadLettersQuery,
    HistoryQuery,
    PurgeRequest,
)
from tests.support.largest_calls import READERS, TEXT, Requests

EVERY_DEAD_LETTER: Final = DeadLetterFilter(reason="nothing like that " * 50)
LARGEST: Final[Requests] = {
    LIST_DEAD_LETTER_GROUPS: lambda _: None,
    LIST_REASONS: lambda _: READERS,
    LIST_DEAD_LETTERS: lambda at: DeadLettersQuery(
        READERS, EVERY_DEAD_LETTER if at.is_first else DeadLetterFilter(), max_letters=1_000
    ),
    PURGE_DEAD_LETTERS: lambda _: PurgeRequest(READERS, dry_run=True),
    LIST_RETRIES: lambda at: DeadLettersQuery(
        READERS, EVERY_DEAD_LETTER if at.is_first else DeadLetterFilter(), max_letters=1_000
    ),
    GET_HISTORY: lambda at: HistoryQuery("id-1" if at.is_first else TEXT),
}
