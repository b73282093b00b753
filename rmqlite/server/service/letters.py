"""Failed messages: dead letters, retries, whole lives.

Long reads are done in steps, and other calls get their turns between them.  Reading never
consumes a message.
"""

from __future__ import annotations

from rmqlite.access.accounts import Right
from rmqlite.access.decision import Need
from rmqlite.requests.letters import (
    DeadLetterGroup,
    LetterPage,
    LettersQuery,
    Life,
    LifeQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.server.service.access import admin, needs, view
from rmqlite.server.service.part import Part
from rmqlite.server.turns import done_in_turns

_of_asked = needs(lambda query: [Need(Right.VIEW, "group" if query.group else "", query.group)])


class LetterCalls(Part):
    """Calls of administrators about failed messages."""

    @view
    async def dead_groups(self) -> tuple[DeadLetterGroup, ...]:
        """Each group with dead letters: how many letters, and their reasons."""
        return await done_in_turns(self._broker.letters.dead.groups())

    @_of_asked
    async def dead(self, query: LettersQuery) -> LetterPage:
        """One page of a group's dead letters."""
        return await done_in_turns(self._broker.letters.dead.pages(query))

    @admin
    async def purge(self, request: PurgeRequest) -> Purged:
        """Hide a group's dead letters, or show them again."""
        purged = await done_in_turns(self._broker.letters.purging.purge(request))
        await self._saved()
        return purged

    @_of_asked
    async def retries(self, query: LettersQuery) -> LetterPage:
        """One page of the messages that a group will get again."""
        return await done_in_turns(self._broker.letters.retries.pages(query))

    @view
    async def life(self, query: LifeQuery) -> Life:
        """Every hop of one message."""
        return await done_in_turns(self._broker.letters.lives.life(query))
