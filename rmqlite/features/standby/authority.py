"""Who decides which of two brokers is the master: an operator, or what a feature puts in here.

The master asks before it answers anybody, notes which standby has all before it counts, and hands
over there, too.  A standby asks before it is the master.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rmqlite.kernel.requests.broker import ReplicationStatus


class Authority(Protocol):
    """What a master and a standby ask it."""

    peer: str
    """The address of the standby that may take over, or that may have been noted so; or ""."""

    @property
    def closed_to(self) -> Callable[[str], None] | None:
        """Raises what refuses a call to this master, by its name, while it may not lead."""
        ...

    @property
    def may_lead(self) -> bool:
        """May this master answer, and take what a standby acknowledges?"""
        ...

    async def note_peer(self, address: str) -> None:
        """Let the standby there take over, beside this master; "": nobody may.

        Raises Unavailable: then it may be noted or not.
        """
        ...

    async def hand_over(self, address: str) -> None:
        """Let the standby there be the master, before it knows.  Raises Unavailable."""
        ...

    async def take_over(self, *, force: bool) -> None:
        """Let this standby be the master.  Raises Refused, unless it is forced; Unavailable."""
        ...

    def add_to(self, status: ReplicationStatus) -> ReplicationStatus:
        """What an operator should know, with what the authority says."""
        ...


class ByHand:
    """An operator decides, and everything else is true."""

    peer = ""
    closed_to: Callable[[str], None] | None = None
    may_lead = True

    async def note_peer(self, address: str) -> None:
        """Nobody has to know."""

    async def hand_over(self, address: str) -> None:
        """Nobody has to know."""

    async def take_over(self, *, force: bool) -> None:
        """The operator has decided."""

    def add_to(self, status: ReplicationStatus) -> ReplicationStatus:
        return status
