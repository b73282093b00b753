"""What the server does with every face, from the first moment of a broker to its last.

bind, open, drain, close, in this order; a broker that fails goes from any of them to close.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from rmqlite.broker.broker import Broker
from rmqlite.server.clock_watch import ClockWatch
from rmqlite.server.front.front import Front
from rmqlite.server.group_commit import GroupCommit


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that runs, as its faces are given it.

    front: everything that a caller can ask.  tasks: those of the broker; a face's loop is one of
    them, so that its end is the broker's.  The rest counts something, and is for the metrics.
    """

    front: Front
    tasks: asyncio.TaskGroup
    broker: Broker
    commit: GroupCommit
    watch: ClockWatch


class Face(Protocol):
    """One port and its protocol."""

    async def bind(self) -> None:
        """Have the port; nobody is answered yet.  Raises InvalidValue if it cannot be had.

        This comes before the store is opened.
        """
        ...

    async def open(self, running: Running) -> None:
        """Answer from now on."""
        ...

    async def drain(self) -> None:
        """Take no more calls; return when those that run are answered, or late.

        The front is closed: no call waits.  A face that only shows may go on until close().
        """
        ...

    async def close(self) -> None:
        """Answer nobody from now on.  Also for a face that was never bound or opened."""
        ...
