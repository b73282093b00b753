"""AdminClient.dead_letters: lists retries and dead letters, and purges dead letters.

Looking never consumes.  A long list comes page by page, each page when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from rmqlite.client.admin import AdminCalls
from rmqlite.features.cursors import pages
from rmqlite.features.dead_letters.requests import (
    EVERY_DEAD_LETTER,
    GET_HISTORY,
    LIST_DEAD_LETTER_GROUPS,
    LIST_DEAD_LETTERS,
    LIST_REASONS,
    LIST_RETRIES,
    PURGE_DEAD_LETTERS,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
    History,
    HistoryQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.features.rows import Row

BEFORE_ALL_MS: Final = 1
"""No letter died before."""


class DeadLetterAdmin(AdminCalls):
    """Asks the broker behind a connection about retries and dead letters.

    Every method raises RmqliteError: InvalidValue for a value beyond a limit, Unavailable if the
    call may work later.
    """

    def groups(self) -> tuple[DeadLetterGroup, ...]:
        """Every group that has dead letters, purged ones included; sorted by name."""
        return self._ask(LIST_DEAD_LETTER_GROUPS, None)

    def reasons(self, group: str) -> DeadLetterGroup:
        """One group, with every kind of reasons instead of the five most frequent ones.

        Raises GroupUnknown for an unknown group without dead letters.
        """
        return self._ask(LIST_REASONS, group)

    def list_dead(self, query: DeadLettersQuery) -> DeadLetterPage:
        """One page of dead letters in the order in which they died; it may be empty.

        While a page has a cursor there are more, even if the page is empty.  Raises GroupUnknown
        for an unknown group without dead letters.
        """
        return self._ask(LIST_DEAD_LETTERS, query)

    def dead(
        self,
        group: str,
        filter: DeadLetterFilter = EVERY_DEAD_LETTER,
        *,
        newest_first: bool = False,
        is_open: bool = False,
    ) -> Iterator[DeadLetter]:
        """All dead letters of a group that match the filter, page by page as they are needed."""
        query = DeadLettersQuery(group, filter, newest_first=newest_first, is_open=is_open)
        return self._all(LIST_DEAD_LETTERS, query)

    def list_retries(self, query: DeadLettersQuery) -> DeadLetterPage:
        """One page of a group's retries.  Raises GroupUnknown.

        First the due retries that are not consumed yet, then the waiting ones, in due order.
        """
        return self._ask(LIST_RETRIES, query)

    def retries(
        self, group: str, filter: DeadLetterFilter = EVERY_DEAD_LETTER
    ) -> Iterator[DeadLetter]:
        """All of list_retries(), page by page as they are needed."""
        return self._all(LIST_RETRIES, DeadLettersQuery(group, filter))

    def history(self, message_id: str) -> History:
        """The whole history of a message, by its message id or an offset message id."""
        return self._ask(GET_HISTORY, HistoryQuery(message_id))

    def purge(self, request: PurgeRequest) -> Purged:
        """Hide dead letters, or show them again; returns when that is on disk.

        Only retention deletes them.  Raises GroupUnknown.
        """
        if request.filter != EVERY_DEAD_LETTER:
            # An older broker knows no filter: to it the request is about no letter, not about all.
            request = replace(request, until_ms=BEFORE_ALL_MS)
        return self._ask(PURGE_DEAD_LETTERS, request)

    def _all(
        self, rpc: Row[DeadLettersQuery, DeadLetterPage], query: DeadLettersQuery
    ) -> Iterator[DeadLetter]:
        for page in pages(partial(self._ask, rpc), query):
            yield from page.letters
