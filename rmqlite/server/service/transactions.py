"""Transactions: how they end, and the producers that can be asked."""

from __future__ import annotations

from typing import Protocol

from rmqlite.access.accounts import Right
from rmqlite.access.decision import Need
from rmqlite.broker.broker import Broker
from rmqlite.requests.messages import TransactionEnd, TransactionQuestion
from rmqlite.server.service.access import topic_right, touches
from rmqlite.server.service.part import Behind, Part


def _end_rights(broker: Broker, request: TransactionEnd) -> list[Need]:
    """Only who may send to a message's topic may end it: a producer group belongs to no account."""
    return [topic_right(Right.PUB, broker.transactions.topic_of(request))]


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

    def __init__(self, behind: Behind) -> None:
        super().__init__(behind)
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
        is_new = self._broker.transactions.end(request)
        # Also for one that has ended before: its end may not be on disk yet.
        await self._durable()
        return is_new
