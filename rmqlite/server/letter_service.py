"""The part of rmqlite.v1.Admin that looks at failed messages, and purges dead letters.

What takes long is done in steps, and between two of them every other call gets its turn.
Looking never consumes.
"""

from __future__ import annotations

from rmqlite.broker.broker import Broker
from rmqlite.requests.letters import (
    DeadLetterGroup,
    LetterPage,
    LettersQuery,
    Life,
    LifeQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.server.front import Context, Methods
from rmqlite.server.turns import done_in_turns
from rmqlite.wire import rpcs


class LetterService:
    """Dead letters, retries, and whole lives."""

    def __init__(self, broker: Broker) -> None:
        self._letters = broker.letters

    def methods(self) -> Methods:
        return {
            rpcs.LIST_DEAD_LETTER_GROUPS: self.list_dead_letter_groups,
            rpcs.LIST_DEAD_LETTERS: self.list_dead_letters,
            rpcs.PURGE_DEAD_LETTERS: self.purge_dead_letters,
            rpcs.LIST_RETRIES: self.list_retries,
            rpcs.GET_LIFE: self.get_life,
        }

    async def list_dead_letter_groups(self, _: None, __: Context) -> tuple[DeadLetterGroup, ...]:
        return await done_in_turns(self._letters.dead.groups())

    async def list_dead_letters(self, query: LettersQuery, _: Context) -> LetterPage:
        return await done_in_turns(self._letters.dead.pages(query))

    async def purge_dead_letters(self, request: PurgeRequest, _: Context) -> Purged:
        return self._letters.dead.purge(request)

    async def list_retries(self, query: LettersQuery, _: Context) -> LetterPage:
        return await done_in_turns(self._letters.retries.pages(query))

    async def get_life(self, query: LifeQuery, _: Context) -> Life:
        return await done_in_turns(self._letters.lives.life(query))
