"""How many entries of a table each account has, so that none keeps the others out.

A table in memory has a limit.  One account may fill half of it, and then is refused, while the
others still find room.  Without an account ("": there are none, or the caller's address is
trusted) only the limit of the whole table counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from rmqlite.kernel.words.errors import Overloaded

Q = TypeVar("Q")

ACCOUNT_PART: Final = 2
"""One account may have the limit, divided by this."""


class AccountShares:
    """The counts of one table.  name: of its limit, for errors."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._of: dict[str, int] = {}
        self.total = 0

    def check(self, account: str, added: int = 1) -> None:
        """Raises Overloaded unless the account may have so many entries more."""
        refusal = self.refusal(account, added)
        if refusal is not None:
            raise refusal

    def refusal(self, account: str, added: int = 1) -> Overloaded | None:
        """What check() raises, if anything."""
        own = -(-self._limit // ACCOUNT_PART)
        if added > 0 and self.total + added > self._limit:
            return Overloaded(self._name, self._limit)
        if added > 0 and account and self.of(account) + added > own:
            return Overloaded(f"{self._name} of one account", own)
        return None

    def add(self, account: str, added: int = 1) -> None:
        """The account has so many entries more, or fewer if the number is negative."""
        self.total += added
        if account:
            count = self._of[account] = self.of(account) + added
            if not count:
                del self._of[account]

    def of(self, account: str) -> int:
        """How many entries the account has."""
        return self._of.get(account, 0)


def allocate(queues: Sequence[Q], readers: int) -> Iterable[Sequence[Q]]:
    """RocketMQ's average allocation: consecutive shares, the first ones larger by one."""
    size, larger = divmod(len(queues), readers)
    start = 0
    for index in range(readers):
        end = start + size + (1 if index < larger else 0)
        yield queues[start:end]
        start = end
