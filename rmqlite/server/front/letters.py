"""Failed messages: dead letters, retries, whole lives.

Long looks are done in steps, and other calls get their turns between them.  Looking never
consumes.
"""

from __future__ import annotations

from rmqlite.requests.letters import (
    DeadLetterGroup,
    LetterPage,
    LettersQuery,
    Life,
    LifeQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.server.front.part import Part
from rmqlite.server.turns import done_in_turns


class LetterCalls(Part):
    """What administrators ask about failed messages."""

    async def dead_groups(self) -> tuple[DeadLetterGroup, ...]:
        """Each group with dead letters: how many, and why."""
        return await done_in_turns(self._broker.letters.dead.groups())

    async def dead(self, query: LettersQuery) -> LetterPage:
        """One page of a group's dead letters."""
        return await done_in_turns(self._broker.letters.dead.pages(query))

    async def purge(self, request: PurgeRequest) -> Purged:
        """Hide a group's dead letters, or show them again."""
        return self._broker.letters.dead.purge(request)

    async def retries(self, query: LettersQuery) -> LetterPage:
        """One page of a group's messages that will come again."""
        return await done_in_turns(self._broker.letters.retries.pages(query))

    async def life(self, query: LifeQuery) -> Life:
        """Every hop of one message."""
        return await done_in_turns(self._broker.letters.lives.life(query))
