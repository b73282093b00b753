"""Sends, recalls of timers, and replies to clients that wait for them.

The sends of all connections are gathered (shared/gathering.py), and the answers of a connection
leave in one write.

The client that a reply is for is named by a property of the reply.  It gets the reply as a request
of the broker, which it answers; only then the consumer gets its own answer.  The reply is also
stored, for people to look at: no consumer needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from rmqlite.features.changes.requests import ChangeOutcome, RecallHandle
from rmqlite.features.changes.service import ChangeCalls, why_not_recalled
from rmqlite.kernel.admission import is_half
from rmqlite.kernel.compiled import only_in_c
from rmqlite.kernel.config.config import KEYS, BrokerConfig
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.sends.calls import DraftCall, Outcome, Stored
from rmqlite.kernel.service.access import CALLER, Caller
from rmqlite.kernel.service.messages import DraftsSent
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.turns import let_others
from rmqlite.kernel.words.errors import AccessDenied, InvalidValue, MessageTooLarge, RmqliteError
from rmqlite.kernel.words.message import (
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    UNIQ_KEY,
    host_text,
    pack_host,
)
from rmqlite.kernel.words.names import check_sendable
from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.protocols.remoting.bytes.batch import read_batch
from rmqlite.protocols.remoting.bytes.command import Command, ResponseCode
from rmqlite.protocols.remoting.bytes.fields import FieldError
from rmqlite.protocols.remoting.bytes.frame import encode, encode_sent
from rmqlite.protocols.remoting.bytes.requests import sends as codes
from rmqlite.protocols.remoting.bytes.requests.sends import (
    REFUSED_RECALL_EXT,
    REFUSED_SEND_EXT,
    PushReply,
    Recall,
    RecallAnswer,
    SendAnswerFields,
    SendMessage,
)
from rmqlite.protocols.remoting.calls import Call, answers, refused
from rmqlite.protocols.remoting.connection import AnsweredRequest, ClientConnection, NotAnswered
from rmqlite.protocols.remoting.requests.clients import RemotingClients
from rmqlite.protocols.shared.gathering import Gathering

STEP_IDS: Final = 5_000
"""So many message ids are written into answers in 2 ms; then other calls may run."""
make_draft: Final = only_in_c("make_draft")
"""(ext fields with the short names, body, born_host, Draft) -> the draft of a single send."""
VERSION_WITH_LIMIT: Final = 121
"""Clients from this version on say themselves how often a message is retried."""
REPLY_S: Final = 10.0
"""How long the client that asked has to answer to a reply."""
_NOT_STORED: Final = "0"
"""The message id of a reply that is not stored."""

SENDS: Final = {
    row.code: row.fields
    for row in (codes.SEND_MESSAGE, codes.SEND_MESSAGE_V2, codes.SEND_BATCH_MESSAGE)
}


class _Send(NamedTuple):
    connection: ClientConnection
    command: Command
    size: int
    call: DraftCall


class SendRequests:
    """The sends that have arrived and are not yet answered."""

    def __init__(self, config: BrokerConfig, service: Service) -> None:
        self._check_sender = service.messages.check_sender
        self._broker_name = config.broker_name
        self._batch_bytes_max = config.max_message_bytes
        self._host = pack_host(host_text(config.broker_ip, config.listen_port)).hex().upper()
        self._gathering = Gathering[_Send](service.messages, self._stored, self._refuse)
        self._unanswered = 0
        self._answering: set[asyncio.Task[None]] = set()
        """The tasks that answer long batches."""
        self.all_answered = asyncio.Event()
        self.all_answered.set()

    def add(
        self, connection: ClientConnection, command: Command, size: int, caller: Caller | None
    ) -> None:
        """Store a message, or a batch, with everything else that arrives in this turn."""
        try:
            draft = ordinary_draft(command, connection.born_host)
            if draft is not None:
                self._check_sender(caller, draft.topic)
                call = DraftCall((draft,))
            else:
                send = SENDS[command.code].read(command.ext)
                self._check_sender(caller, send.topic)
                if send.is_batch:
                    self._check_batch(len(command.body))
                call = call_of(send, command, connection.born_host)
        except (AccessDenied, FieldError, MessageTooLarge) as error:
            connection.answer(command, size, encode(refused(command, error, REFUSED_SEND_EXT)))
            return
        self.all_answered.clear()
        self._unanswered += 1
        self._gathering.add(_Send(connection, command, size, call), call)

    def _check_batch(self, size: int) -> None:
        """As RocketMQ does: it limits the bytes of a batch as it was sent, not its messages."""
        if size > self._batch_bytes_max:
            rule = f"at most {self._batch_bytes_max} bytes ({KEYS['max_message_bytes']})"
            raise MessageTooLarge("batch", size, rule)

    def _refuse(self, sends: list[_Send], error: Exception) -> None:
        refusals = [refused(send.command, error, REFUSED_SEND_EXT) for send in sends]
        self._answer(sends, [encode(refusal) for refusal in refusals])

    def _stored(self, sends: list[_Send], sent: DraftsSent) -> None:
        code = ResponseCode.SUCCESS if sent.is_durable else ResponseCode.FLUSH_DISK_TIMEOUT
        if sum(map(_id_count, sent.outcomes)) > STEP_IDS:
            task = asyncio.create_task(self._answer_in_steps(sends, code, sent.outcomes))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        pairs = zip(sends, sent.outcomes, strict=True)
        self._answer(
            sends,
            [self._frame(send, code, outcome, self._ids(outcome)) for send, outcome in pairs],
        )

    async def _answer_in_steps(
        self, sends: list[_Send], code: int, outcomes: list[Outcome]
    ) -> None:
        for send, outcome in zip(sends, outcomes, strict=True):
            ids = [self._ids(outcome, 0)]
            for begin in range(STEP_IDS, _id_count(outcome), STEP_IDS):
                await let_others()
                ids.append(self._ids(outcome, begin))
            self._answer([send], [self._frame(send, code, outcome, ",".join(ids))])
            await let_others()

    def _answer(self, sends: list[_Send], frames: list[bytes]) -> None:
        """Answer these sends: each connection in one write."""
        answered: dict[ClientConnection, list[AnsweredRequest]] = {}
        for (connection, command, size, _), frame in zip(sends, frames, strict=True):
            answers = answered.setdefault(connection, [])
            answers.append(AnsweredRequest(command, size, frame))
        for connection, answers in answered.items():
            connection.answer_all(answers)
        self._unanswered -= len(sends)
        if not self._unanswered:
            self.all_answered.set()

    def message_id(self, physical_offset: int) -> str:
        """The offset message id of a record of this broker."""
        return f"{self._host}{physical_offset:016X}"

    def _ids(self, outcome: Outcome, begin: int = 0) -> str:
        """The message ids of at most STEP_IDS messages of a call."""
        if isinstance(outcome, Exception):
            return ""
        host = self._host
        offsets = outcome.physical_offsets[begin : begin + STEP_IDS]
        return ",".join([f"{host}{at:016X}" for at in offsets])

    def _frame(self, send: _Send, code: int, outcome: Outcome, ids: str) -> bytes:
        if isinstance(outcome, Exception):
            return encode(refused(send.command, outcome, REFUSED_SEND_EXT))
        more = self._more(send.call, outcome)
        return encode_sent(send.command, code, ids, outcome.queue_id, outcome.queue_offset, more)

    def _more(self, call: DraftCall, outcome: Stored) -> Mapping[str, str]:
        """The handle of a timer, for RocketMQ's proxy the id of a half message, and the positions
        of messages that were not stored."""
        draft, *others = call.drafts
        more: dict[str, str] = {}
        message_id = ""
        if outcome.duplicates:
            more["duplicates"] = ",".join(map(str, outcome.duplicates))
            message_id = next(iter(outcome.duplicates.values()))[1]
        if others or not (outcome.timer_out_ms or is_half(draft)):
            return more
        message_id = message_id or PropertyString(draft.properties).text(UNIQ_KEY)
        if not outcome.timer_out_ms:
            return {"transactionId": message_id}
        to = draft.topic, self._broker_name
        handle = RecallHandle(*to, outcome.timer_out_ms, message_id).text()
        return more | ({"recallHandle": handle} if handle else {})


class Recalls:
    """Recalls of timers, each answered with what became of the message.

    RocketMQ answers 0 whatever becomes of it.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    @answers(codes.RECALL_MESSAGE)
    async def recall(self, call: Call[Recall]) -> Command:
        command, asked = call.command, call.asked()
        try:
            changed = await self._service[ChangeCalls].recall(asked.topic, asked.recall_handle)
        except InvalidValue as error:
            why = str(error)
        except Exception as error:
            return refused(command, error, REFUSED_RECALL_EXT)
        else:
            if changed.outcome is ChangeOutcome.DONE:
                return call.done(RecallAnswer(changed.message_id))
            why = why_not_recalled(changed)
        remark = f"recall failed: {why}"
        return command.answer(ResponseCode.ILLEGAL_OPERATION, REFUSED_RECALL_EXT, remark=remark)


class Replies:
    """Requests that reply."""

    def __init__(
        self, config: BrokerConfig, service: Service, clients: RemotingClients, sends: SendRequests
    ) -> None:
        self._config = config
        self._service = service
        self._clients = clients
        self._sends = sends

    @answers(codes.SEND_REPLY_MESSAGE, codes.SEND_REPLY_MESSAGE_V2)
    async def reply(self, call: Call[SendMessage]) -> Command:
        """Pass a reply on, and store it; the answer says whether its receiver has taken it."""
        try:
            # As in RocketMQ, it is one message, whatever it says of itself.
            send = call.asked()._replace(is_batch=False)
            # Before it is passed on: the client that asked would take it for an answer.
            self._service.messages.check_sender(CALLER.get(), send.topic)
            check_sendable(send.topic)
            for draft in call_of(send, call.command, call.connection.born_host).drafts:
                self._service.messages.check_draft(draft)
            failure = await self._pushed(call, send)
            answer = await self._stored(call, send)
        except Exception as error:
            return refused(call.command, error, REFUSED_SEND_EXT)
        if failure:
            return call.command.answer(ResponseCode.SYSTEM_ERROR, REFUSED_SEND_EXT, remark=failure)
        return call.done(answer)

    async def _pushed(self, call: Call[SendMessage], send: SendMessage) -> str:
        """Give a reply to the client that asked.  Return why it has not taken it; "" if it has."""
        properties = PropertyString(send.properties.encode("utf-8", "replace"))
        client_id = properties.text(REPLY_TO_CLIENT)
        if not client_id:
            return f"push reply message fail, {REPLY_TO_CLIENT} is missing."
        producer = self._clients.producer_of(client_id)
        if producer is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._service.clock.now_ms()
        reply = PushReply(
            send.producer_group,
            send.topic,
            send.default_topic,
            send.default_topic_queue_nums,
            send.queue_id,
            send.sys_flag,
            send.born_timestamp,
            send.flag,
            properties.edited({PUSH_REPLY_TIME: str(now_ms)}).encoded.decode(),
            send.reconsume_times,
            send.unit_mode,
            call.connection.address,
            host_text(self._config.broker_ip, self._config.listen_port),
            now_ms,
        )
        row, body = codes.PUSH_REPLY_MESSAGE_TO_CLIENT, call.command.body
        try:
            answer = await producer.connection.ask(row, reply, body, seconds=REPLY_S)
        except NotAnswered:
            return f"push reply message to {client_id} fail."
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail."
        return ""

    async def _stored(self, call: Call[SendMessage], send: SendMessage) -> SendAnswerFields:
        """Store a reply.  One that cannot be stored was still given to the client that asked."""
        if not self._config.stores_replies:
            return SendAnswerFields(_NOT_STORED, max(0, send.queue_id), 0)
        drafts = call_of(send, call.command, call.connection.born_host)
        try:
            stored = await self._service.messages.send(drafts)
        except RmqliteError:
            return SendAnswerFields(_NOT_STORED, max(0, send.queue_id), 0)
        (physical_offset,) = stored.physical_offsets
        message_id = self._sends.message_id(physical_offset)
        return SendAnswerFields(message_id, stored.queue_id, stored.queue_offset)


def _id_count(outcome: Outcome) -> int:
    return 0 if isinstance(outcome, Exception) else len(outcome.physical_offsets)


def ordinary_draft(command: Command, born_host: bytes) -> Draft | None:
    """The draft of an ordinary single send, by the compiled form; None if call_of() has to make it.

    It saves 2 of the 11 us that a send costs beside its share of an append.
    """
    if command.code != codes.SEND_MESSAGE_V2.code:
        return None
    draft: Draft | None = make_draft(command.ext, command.body, born_host, Draft)
    return draft


def call_of(send: SendMessage, command: Command, born_host: bytes) -> DraftCall:
    """The drafts of one request.  Raises FieldError for a damaged batch, and MessageTooLarge."""
    properties = send.properties.encode("utf-8", "replace")
    draft = Draft(
        send.topic,
        send.queue_id,
        properties,
        command.body,
        send.born_timestamp,
        born_host,
        send.flag,
        send.sys_flag,
        send.reconsume_times,
    )
    limit = send.max_reconsume_times if command.version >= VERSION_WITH_LIMIT else None
    if send.is_batch:
        draft = draft._replace(spans=read_batch(command.body))
    return DraftCall((draft,), limit)
