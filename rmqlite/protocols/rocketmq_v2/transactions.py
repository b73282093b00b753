"""How transactions end, and the producers that the broker asks if nobody has said it.

Clients of this protocol have no producer groups: the topic of a half message stands for one.  So
whoever sends to the topic, and has its Telemetry call open, can be asked.
"""

from __future__ import annotations

from rmqlite.features.transactions.requests import TransactionQuestion
from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.errors import InvalidValue, MessageNotFound
from rmqlite.protocols.rocketmq_v2.bytes import rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import OK, Code, RocketmqRefusal
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import service
from rmqlite.protocols.rocketmq_v2.bytes.transactions import end_of, recover_command
from rmqlite.protocols.rocketmq_v2.clients import RocketmqClients
from rmqlite.protocols.rocketmq_v2.guard import Asker


class RocketmqTransactions:
    """Requests that end a transaction."""

    def __init__(self, own: Service) -> None:
        self._service = own

    async def end(
        self, request: service.EndTransactionRequest, _: Asker
    ) -> service.EndTransactionResponse:
        """Commit a half message, or roll it back; a producer that does not know does neither."""
        rules.check_message_id(request.message_id)
        end = end_of(request)
        if end is not None:
            try:
                await self._service[TransactionCalls].end(end)
            except (MessageNotFound, InvalidValue) as error:
                raise RocketmqRefusal(Code.INVALID_TRANSACTION_ID, str(error)) from None
        return service.EndTransactionResponse(status=OK)


class TelemetryProducers:
    """Asks producers through their Telemetry calls: the Producers of this protocol."""

    def __init__(self, clients: RocketmqClients) -> None:
        self._clients = clients

    def has(self, group: str) -> bool:
        return self._clients.has_producer(group)

    def ask(self, question: TransactionQuestion) -> bool:
        frame = recover_command(question).SerializeToString()
        return self._clients.ask_producer(question.group, frame)
