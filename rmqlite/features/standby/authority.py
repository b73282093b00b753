"""Who decides which of two brokers is the master: an operator, or what a feature puts in here.

The master asks before it answers anybody, notes which standby has all before it counts, and hands
over there, too.  A standby asks before it is the master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.broker import ReplicationStatus
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.protocols.native.replication import FollowerFrame, followed, read_master


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


async def other_leads(
    config: BrokerConfig,
    access: Access,
    log_file_bytes: int,
    *,
    has_led: bool,
    seconds: float,
) -> bool:
    """Is the broker at masterAddress a master that should be followed?

    has_led: this one was the master before, so it has the log.
    """
    hello = FollowerFrame(log_file_bytes=log_file_bytes)
    try:
        async with asyncio.timeout(seconds), followed(config, access) as (read, write):
            await write(hello.to_bytes())
            first = read_master(await read() or b"")
    except (RmqliteError, TimeoutError):
        return False
    # With a new disk there is nothing to lose here.
    return first.is_alone or (first.term > 1 and not has_led)
