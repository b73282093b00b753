"""Messages: pulled, failed, looked for by key, id and offset; and the ends of transactions."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Final

from rmqlite.features.finding.finding import MESSAGES_DEFAULT, MESSAGES_MAX
from rmqlite.features.finding.requests import MessageQuery
from rmqlite.features.finding.service import FindingCalls
from rmqlite.features.transactions.requests import TransactionEnd, TransactionQuestion
from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.pulling import Pulled
from rmqlite.kernel.records.record import COMMITTED, ROLLBACK
from rmqlite.kernel.requests.groups import OffsetsCommit, Subscription
from rmqlite.kernel.requests.messages import PullRequest, PullStatus, SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.turns import at_once
from rmqlite.kernel.words.errors import MessageNotFound, RmqliteError
from rmqlite.kernel.words.limits import INT64_MAX
from rmqlite.protocols.remoting.bytes.command import Command, ResponseCode
from rmqlite.protocols.remoting.bytes.fields import FRAME_BYTES_MAX
from rmqlite.protocols.remoting.bytes.requests import messages as codes
from rmqlite.protocols.remoting.bytes.requests.messages import (
    CheckTransaction,
    EndTransaction,
    PhysicalOffset,
    PullAnswer,
    PullMessage,
    QueryAnswer,
    QueryMessage,
    SendBack,
)
from rmqlite.protocols.remoting.calls import AtOnce, Call, CodeRefusal, answers
from rmqlite.protocols.remoting.connection import ClientConnection
from rmqlite.protocols.remoting.requests.clients import ProducerClient, RemotingClients, filter_of
from rmqlite.protocols.remoting.requests.sends import VERSION_WITH_LIMIT

RECORDS_BYTES_MAX: Final = FRAME_BYTES_MAX // 2
"""Records in one answer, which must fit into a frame; further ones are left out."""
COMMITS: Final = 1
MAY_WAIT: Final = 2
HAS_SUBSCRIPTION: Final = 4
"""Bits of a pull's sys flag."""
_REMARKS: Final = {
    PullStatus.FOUND: "FOUND",
    PullStatus.NO_NEW_MESSAGE: "OFFSET_OVERFLOW_ONE",
    PullStatus.NO_MATCHED_MESSAGE: "NO_MATCHED_MESSAGE",
    PullStatus.OFFSET_MOVED: "OFFSET_TOO_SMALL",
}
_COMMITS: Final = {COMMITTED: True, ROLLBACK: False}
"""commitOrRollback has the transaction type of a sys flag; any other value means: not known."""


class Messages:
    """Requests of consumers, and of whoever looks for a message."""

    def __init__(self, config: BrokerConfig, service: Service, clients: RemotingClients) -> None:
        self._config = config
        self._service = service
        self._clients = clients

    def at_once(self) -> dict[int, AtOnce]:
        """The handlers that may be called before the others."""
        return dict.fromkeys(
            (codes.PULL_MESSAGE.code, codes.LITE_PULL_MESSAGE.code), self.pull_at_once
        )

    @answers(codes.PULL_MESSAGE, codes.LITE_PULL_MESSAGE)
    async def pull(self, call: Call[PullMessage]) -> Command:
        """Records as they lie in the log; the client takes them apart."""
        asked = call.asked()
        await self._commit(asked)
        connection = call.connection
        wait_ms = asked.suspend_timeout_millis if asked.sys_flag & MAY_WAIT else 0
        request = self._pull_request(connection, asked, wait_ms)
        del asked
        with connection.parked(call.command) if request.wait_ms else nullcontext():
            pulled = await self._service.messages.pull(
                request, connection.reading, ends_unmatched=True
            )
        return _pulled(call, pulled)

    def pull_at_once(self, call: Call[PullMessage]) -> Command | None:
        """The same if there are records: most pulls of a consumer that is behind find some."""
        asked = call.asked()
        at_once(self._commit(asked))
        request = self._pull_request(call.connection, asked, 0)
        # A look with an SQL92 expression may take several steps.
        pulled = None if request.sql else at_once(self._service.messages.pull(request))
        return _pulled(call, pulled) if pulled is not None and pulled.records else None

    @answers(codes.CONSUMER_SEND_MSG_BACK)
    async def send_back(self, call: Call[SendBack]) -> Command:
        asked = call.asked()
        limit = asked.max_reconsume_times if call.command.version >= VERSION_WITH_LIMIT else None
        await self._service.messages.send_back(
            SendBackRequest(asked.group, asked.offset, asked.delay_level, max_reconsume_times=limit)
        )
        return call.done()

    @answers(codes.QUERY_MESSAGE)
    async def query(self, call: Call[QueryMessage]) -> Command:
        """The newest messages with a key, as records; the client compares the key itself."""
        asked = call.asked()
        most = MESSAGES_DEFAULT if asked.is_unique_key else asked.max_num
        found = await self._service[FindingCalls].find(
            MessageQuery(
                asked.topic,
                asked.key,
                asked.is_unique_key,
                max(0, asked.begin_timestamp),
                # RocketMQ's end belongs to the range.
                min(asked.end_timestamp, INT64_MAX - 1) + 1,
                min(max(most, 1), MESSAGES_MAX),
            )
        )
        if not found.messages:
            ext = call.row.answer.write(QueryAnswer(0, 0))
            remark = "can not find message, maybe time range not correct"
            return call.command.answer(ResponseCode.QUERY_NOT_FOUND, ext, remark=remark)
        newest = found.messages[-1].message
        async with call.connection.reading():
            records: list[bytes] = []
            size = 0
            for each in found.messages:
                record = await self._service.messages.record(each.message.physical_offset)
                size += len(record.encoded)
                if records and size > RECORDS_BYTES_MAX:
                    break
                records.append(record.encoded)
            answer = QueryAnswer(newest.store_timestamp_ms, newest.physical_offset)
            return call.done(answer, b"".join(records))

    @answers(codes.VIEW_MESSAGE_BY_ID)
    async def view(self, call: Call[PhysicalOffset]) -> Command:
        """The record that begins at a physical offset."""
        offset = call.asked().offset
        async with call.connection.reading():
            try:
                record = await self._service.messages.record(offset)
            except MessageNotFound:
                remark = f"can not find message by the offset, {offset}"
                raise CodeRefusal(ResponseCode.SYSTEM_ERROR, remark) from None
            return call.done(body=record.encoded)

    # ---- inside

    def _pull_request(
        self, connection: ClientConnection, asked: PullMessage, wait_ms: int
    ) -> PullRequest:
        """Raises InvalidValue, Refusal."""
        wanted = self._filter(connection, asked)
        return PullRequest(
            asked.consumer_group,
            asked.topic,
            asked.queue_id,
            asked.queue_offset,
            wanted.expression,
            min(max(asked.max_msg_nums, 1), self._config.pull_messages_max),
            wait_ms=min(max(wait_ms, 0), self._config.pull_wait_ms_max),
            sql=wanted.sql,
        )

    def _filter(self, connection: ClientConnection, asked: PullMessage) -> Subscription:
        """The filter of a pull: its own, or that of the last heartbeat."""
        if asked.sys_flag & HAS_SUBSCRIPTION:
            return filter_of(asked.topic, asked.subscription, asked.expression_type)
        group, topic = asked.consumer_group, asked.topic
        wanted = self._clients.subscription(connection, group, topic)
        if wanted is None:
            remark = f"the consumer group {group} has no subscription of {topic} here"
            raise CodeRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        return wanted

    async def _commit(self, asked: PullMessage) -> None:
        """Commit what a pull says, if anything; a refusal does not keep back the messages."""
        if not asked.sys_flag & COMMITS:
            return
        offsets = {Queue(asked.topic, asked.queue_id): asked.commit_offset}
        try:
            await self._service.groups.commit(OffsetsCommit(asked.consumer_group, offsets))
        except RmqliteError:
            return


def _pulled(call: Call[PullMessage], pulled: Pulled) -> Command:
    ext = call.row.answer.write(
        PullAnswer(pulled.next_offset, pulled.min_offset, pulled.max_offset)
    )
    return call.command.answer(pulled.status, ext, pulled.records.encoded, _REMARKS[pulled.status])


class TransactionRequests:
    """Requests of producers, and questions to them."""

    def __init__(self, service: Service, clients: RemotingClients) -> None:
        self._service = service
        self._clients = clients
        self._turn = 0
        service[TransactionCalls].listen(self)

    @answers(codes.END_TRANSACTION)
    async def end(self, call: Call[EndTransaction]) -> Command | None:
        """Commit or roll back; a producer that does not know yet gets no answer."""
        asked = call.asked()
        is_commit = _COMMITS.get(asked.commit_or_rollback)
        if is_commit is None:
            return None
        try:
            await self._service[TransactionCalls].end(
                TransactionEnd(
                    asked.producer_group,
                    asked.tran_state_table_offset,
                    asked.commit_log_offset,
                    is_commit,
                )
            )
        except MessageNotFound as error:
            raise CodeRefusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return call.done()

    # ---- service[TransactionCalls].Producers

    def has(self, group: str) -> bool:
        return bool(self._there(group))

    def ask(self, question: TransactionQuestion) -> bool:
        """Ask the group's producers in turn."""
        there = self._there(question.group)
        if not there:
            return False
        self._turn += 1
        asked = CheckTransaction(
            question.queue_offset,
            question.physical_offset,
            question.message_id,
            question.message_id,
            question.offset_message_id,
        )
        connection = there[self._turn % len(there)].connection
        connection.notify(codes.CHECK_TRANSACTION_STATE, asked, question.record)
        return True

    def _there(self, group: str) -> list[ProducerClient]:
        """The producers of a group that read what they are sent."""
        return [
            each
            for each in self._clients.producers(group).values()
            if each.connection.is_open and each.connection.is_read
        ]
