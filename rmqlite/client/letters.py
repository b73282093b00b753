"""Failed messages, looked at and dealt with: AdminClient.letters.

Looking never consumes.  What is larger than one call may be is asked for in several, one
after the other, as it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rmqlite.client.channel import Connection
from rmqlite.requests.letters import (
    EVERY_LETTER,
    DeadLetterGroup,
    Letter,
    LetterFilter,
    LetterPage,
    LettersQuery,
    Life,
    LifeQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.requests.paging import pages
from rmqlite.wire import rpcs


class LetterAdmin:
    """Asks the broker behind a connection about retries and dead letters.

    Every method raises RmqliteError: InvalidValue for what breaks a limit, Unavailable when
    it may work later.
    """

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    def groups(self) -> tuple[DeadLetterGroup, ...]:
        """Every group that has dead letters, purged ones included; sorted by name."""
        return self._ask(rpcs.LIST_DEAD_LETTER_GROUPS, None)

    def list_dead(self, query: LettersQuery) -> LetterPage:
        """One page of dead letters in the order in which they died; it may be empty.

        There are more while the page has a cursor, whatever else is on it.  Raises
        GroupUnknown for a group that is neither known nor has any.
        """
        return self._ask(rpcs.LIST_DEAD_LETTERS, query)

    def dead(
        self,
        group: str,
        filter: LetterFilter = EVERY_LETTER,
        *,
        newest_first: bool = False,
        is_open: bool = False,
    ) -> Iterator[Letter]:
        """All dead letters of a group that fit, page by page as they are needed."""
        query = LettersQuery(group, filter, newest_first=newest_first, is_open=is_open)
        return self._all(rpcs.LIST_DEAD_LETTERS, query)

    def list_retries(self, query: LettersQuery) -> LetterPage:
        """One page of what a group will be given again.  Raises GroupUnknown.

        First what is due and not consumed yet, then what waits, in due order.
        """
        return self._ask(rpcs.LIST_RETRIES, query)

    def retries(self, group: str, filter: LetterFilter = EVERY_LETTER) -> Iterator[Letter]:
        """All of list_retries(), page by page as they are needed."""
        return self._all(rpcs.LIST_RETRIES, LettersQuery(group, filter))

    def life(self, message_id: str) -> Life:
        """All that became of a message, by its message id or an offset message id."""
        return self._ask(rpcs.GET_LIFE, LifeQuery(message_id))

    def purge(self, request: PurgeRequest) -> Purged:
        """Put dead letters out of sight, or back; returns when that is on disk.

        Nothing is deleted before retention does it.  Raises GroupUnknown.
        """
        return self._ask(rpcs.PURGE_DEAD_LETTERS, request)

    def _all(
        self, rpc: rpcs.Rpc[LettersQuery, LetterPage], query: LettersQuery
    ) -> Iterator[Letter]:
        for page in pages(partial(self._ask, rpc), query):
            yield from page.letters

    def _ask(self, rpc: rpcs.Rpc[rpcs.Q, rpcs.A], value: rpcs.Q) -> rpcs.A:
        return self._connection.call(rpc, value, self._timeout_s)
