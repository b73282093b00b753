"""Ends of transactions, and the broker's questions to producers."""

from __future__ import annotations

from typing import Final

from rmqlite.errors import MessageNotFound
from rmqlite.records.record import COMMITTED, ROLLBACK
from rmqlite.requests.messages import TransactionEnd, TransactionQuestion
from rmqlite.server.protocols.remoting.calls import Call, Handler, Refusal
from rmqlite.server.protocols.remoting.clients import Clients, Producer
from rmqlite.server.service.service import Service
from rmqlite.wire.remoting.codes import sending as codes
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.codes.sending import CheckTransaction
from rmqlite.wire.remoting.command import Command

_COMMITS: Final = {COMMITTED: True, ROLLBACK: False}
"""commitOrRollback has the transaction type of a sys flag; any other value means: not known."""


class Transactions:
    """Requests of producers, and questions to them."""

    def __init__(self, service: Service, clients: Clients) -> None:
        self._service = service
        self._clients = clients
        self._turn = 0
        service.transactions.listen(self)

    def handlers(self) -> dict[int, Handler]:
        return {codes.END_TRANSACTION.code: self.end}

    async def end(self, call: Call) -> Command | None:
        """Commit or roll back; a producer that does not know yet gets no answer."""
        asked = codes.END_TRANSACTION.fields.read(call.command.ext)
        is_commit = _COMMITS.get(asked.commit_or_rollback)
        if is_commit is None:
            return None
        try:
            await self._service.transactions.end(
                TransactionEnd(
                    asked.producer_group,
                    asked.tran_state_table_offset,
                    asked.commit_log_offset,
                    is_commit,
                )
            )
        except MessageNotFound as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return call.command.answer(ResponseCode.SUCCESS)

    # ---- service.transactions.Producers

    def has(self, group: str) -> bool:
        return bool(self._there(group))

    def ask(self, question: TransactionQuestion) -> bool:
        """Ask the group's producers in turn."""
        there = self._there(question.group)
        if not there:
            return False
        self._turn += 1
        there[self._turn % len(there)].connection.tell(
            codes.CHECK_TRANSACTION_STATE.code,
            codes.CHECK_TRANSACTION_STATE.fields.write(
                CheckTransaction(
                    question.queue_offset,
                    question.physical_offset,
                    question.message_id,
                    question.message_id,
                    question.offset_message_id,
                )
            ),
            question.record,
        )
        return True

    def _there(self, group: str) -> list[Producer]:
        """The producers of a group that read what they are sent."""
        return [
            each
            for each in self._clients.producers(group).values()
            if each.connection.is_open and each.connection.is_read
        ]
