"""The brokers beside this one; a feature finds them, and without it there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.figures import NameServerStatus
from rmqlite.kernel.words.clock import Clock


class Neighbours:
    """None.  The server calls check(), meet(), begin() and close(), in this order."""

    async def check(self, config: BrokerConfig) -> None:
        """May this broker start beside the others?  Raises InvalidValue."""

    def meet(self, config: BrokerConfig, broker: Broker, clock: Clock) -> None:
        """The broker that the others shall know; its store is open."""

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Let clients come from now on."""

    def changed(self) -> None:
        """What the others know of this broker is another one now."""

    async def close(self) -> None:
        """Let clients go to the others."""

    def statuses(self) -> Sequence[NameServerStatus]:
        """The state of each name server at which the broker registers."""
        return ()

    async def queues_of(self, topic: str) -> Mapping[str, int] | None:  # noqa: ARG002
        """How many queues of a topic the others have, by their names; None: not known now."""
        return {}
