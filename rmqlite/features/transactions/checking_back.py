"""The loop that asks producers how their transactions ended."""

from __future__ import annotations

import asyncio
import logging

from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.features.transactions.transactions import Transactions
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.loops import Outage
from rmqlite.kernel.service.group_commit import GroupCommit
from rmqlite.kernel.service.turns import let_others
from rmqlite.kernel.words.errors import FlushFailed, StoreUnavailable

log = logging.getLogger(__name__)


class CheckingBack:
    """Asks producers at an interval how their open transactions ended.

    A round goes over all half messages that are open when it begins.  A question leaves when the
    copy of its half message is on disk.  While the disk is full nobody is asked, because each
    question stores a copy.
    """

    def __init__(
        self, config: BrokerConfig, broker: Broker, commit: GroupCommit, producers: TransactionCalls
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
        transactions = self._broker[Transactions]
        rest = transactions.begin_round()
        while rest is not None:
            checked = transactions.check(rest, self._producers.has_producer)
            rest = checked.rest
            if checked.questions:
                await self._commit.durable(self._broker.store.end)
            for question in checked.questions:
                self._producers.ask(question)
            await let_others()
