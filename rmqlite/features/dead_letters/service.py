"""Failed messages: dead letters, retries, whole histories.

Long reads are done in steps, and other calls get their turns between them.  Reading never
consumes a message.  A change of a redrive is answered when it is on disk.
"""

from __future__ import annotations

from rmqlite.features.dead_letters.history import Histories
from rmqlite.features.dead_letters.listing import DeadLetters
from rmqlite.features.dead_letters.purging import Purging
from rmqlite.features.dead_letters.requests import (
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
    History,
    HistoryQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.features.dead_letters.retries import Retries
from rmqlite.kernel.service.access import Need, Right, admin, needs, of_group, view
from rmqlite.kernel.service.part import Part
from rmqlite.kernel.service.turns import done_in_turns

_of_asked = needs(lambda query: [Need(Right.VIEW, "group" if query.group else "", query.group)])


class DeadLetterCalls(Part):
    """Calls of administrators about failed messages."""

    @view
    async def dead_groups(self) -> tuple[DeadLetterGroup, ...]:
        """Each group with dead letters: how many letters, and their reasons."""
        return await done_in_turns(self._broker[DeadLetters].groups())

    @of_group(Right.VIEW)
    async def reasons(self, group: str) -> DeadLetterGroup:
        """A group's dead letters, with every kind of reasons.  Raises GroupUnknown."""
        return await done_in_turns(self._broker[DeadLetters].reasons(group))

    @_of_asked
    async def dead(self, query: DeadLettersQuery) -> DeadLetterPage:
        """One page of a group's dead letters."""
        return await done_in_turns(self._broker[DeadLetters].pages(query))

    @admin
    async def purge(self, request: PurgeRequest) -> Purged:
        """Hide a group's dead letters, or show them again."""
        purged = await done_in_turns(self._broker[Purging].purge(request))
        await self._saved()
        return purged

    @_of_asked
    async def retries(self, query: DeadLettersQuery) -> DeadLetterPage:
        """One page of the messages that a group will get again."""
        return await done_in_turns(self._broker[Retries].pages(query))

    @view
    async def history(self, query: HistoryQuery) -> History:
        """Every event of one message."""
        return await done_in_turns(self._broker[Histories].history(query))
