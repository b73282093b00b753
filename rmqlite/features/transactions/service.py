"""The ends of transactions, and questions to producers."""

from __future__ import annotations

from typing import Protocol

from rmqlite.features.transactions.requests import TransactionEnd, TransactionQuestion
from rmqlite.features.transactions.transactions import Transactions
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.service.access import Need, Right, topic_right, touches
from rmqlite.kernel.service.part import Part, ServiceParts


def _end_rights(broker: Broker, request: TransactionEnd) -> list[Need]:
    """Only who may send to a message's topic may end it: a producer group belongs to no account."""
    return [topic_right(Right.PUB, broker[Transactions].topic_of(request))]


class Producers(Protocol):
    """The producers on one protocol."""

    def has(self, group: str) -> bool:
        """Is a producer of this group there, who can be asked?"""
        ...

    def ask(self, question: TransactionQuestion) -> bool:
        """Ask one producer, without waiting for the answer, which is a TransactionEnd; False if
        none is there any more."""
        ...


class TransactionCalls(Part):
    """Calls of producers, and questions to them."""

    def __init__(self, parts: ServiceParts) -> None:
        super().__init__(parts)
        self._protocols: list[Producers] = []

    def listen(self, producers: Producers) -> None:
        """From now on the producers of a protocol are asked, too."""
        self._protocols.append(producers)

    def has_producer(self, group: str) -> bool:
        return any(protocol.has(group) for protocol in self._protocols)

    def ask(self, question: TransactionQuestion) -> bool:
        """Ask one producer; False if none is there any more."""
        return any(protocol.ask(question) for protocol in self._protocols)

    @touches(_end_rights)
    async def end(self, request: TransactionEnd) -> bool:
        """Commit a half message, or roll it back; False if it has ended before."""
        self._check_open()
        is_new = self._broker[Transactions].end(request)
        # Also for one that has ended before: its end may not be on disk yet.
        await self._durable()
        return is_new
