"""Asks producers at an interval how their open transactions ended.

A round goes over all half messages that are open when it begins, in steps; other calls get their
turns between two steps.  A question leaves when the copy of its half message is on disk.  While
the disk is full nobody is asked, because each question stores a copy.
"""

from __future__ import annotations

import asyncio
import logging

from rmqlite.broker.broker import Broker
from rmqlite.config import BrokerConfig
from rmqlite.errors import FlushFailed, StoreUnavailable
from rmqlite.server.group_commit import GroupCommit
from rmqlite.server.outage import Outage
from rmqlite.server.service.transactions import TransactionCalls
from rmqlite.server.turns import let_others

log = logging.getLogger(__name__)


class CheckingBack:
    """Run by the server until it is cancelled."""

    def __init__(
        self,
        config: BrokerConfig,
        broker: Broker,
        commit: GroupCommit,
        producers: TransactionCalls,
    ) -> None:
        self._interval_s = config.transaction_check_interval_ms / 1000
        self._broker = broker
        self._commit = commit
        self._producers = producers
        self._outage = Outage(
            "transactions cannot be checked, it is tried again", "transactions are checked again"
        )

    async def run(self) -> None:
        """Raises FlushFailed."""
        while True:
            await asyncio.sleep(self._interval_s)
            if self._broker.retention.is_disk_full:
                continue
            try:
                await self.round()
            except FlushFailed as error:
                if error.is_final:
                    raise
                log.warning("questions to producers wait, the disk is slow error=%s", error)
            except StoreUnavailable as error:
                self._outage.failed(error)
            else:
                self._outage.succeeded()

    async def round(self) -> None:
        """Check every half message that is open now.  Raises StoreUnavailable, FlushFailed."""
        transactions = self._broker.transactions
        rest = transactions.begin_round()
        while rest is not None:
            checked = transactions.check(rest, self._producers.has_producer)
            rest = checked.rest
            if checked.questions:
                await self._commit.durable(self._broker.store.end)
            for question in checked.questions:
                self._producers.ask(question)
            await let_others()
