"""Sends, and recalls of timers.

All sends that arrive in one turn of the loop, on all connections, are one append.  Its messages
then wait for one sync, and the answers of a connection leave in one write.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, NamedTuple

from rmqlite.broker.sends.calls import DraftCall, Outcome, Stored
from rmqlite.compiled import only_in_c
from rmqlite.config import BrokerConfig
from rmqlite.errors import AccessDenied, InvalidValue, MessageTooLarge
from rmqlite.message import UNIQ_KEY, host_text, pack_host
from rmqlite.property_string import PropertyString
from rmqlite.records.drafts import Draft
from rmqlite.requests.schedule import ChangeOutcome, RecallHandle
from rmqlite.server.protocols.remoting.calls import Call, Handler, refused
from rmqlite.server.protocols.remoting.connection import Answered, Connection
from rmqlite.server.service.access import BROKER, CALLER, Caller
from rmqlite.server.service.messages import DraftsSent
from rmqlite.server.service.service import Service
from rmqlite.server.turns import let_others
from rmqlite.wire.remoting.batch import read_batch
from rmqlite.wire.remoting.codes import sending as codes
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.codes.sending import (
    REFUSED_RECALL_EXT,
    REFUSED_SEND_EXT,
    RecallAnswer,
    SendMessage,
)
from rmqlite.wire.remoting.command import Command
from rmqlite.wire.remoting.frame import encode, encode_sent
from rmqlite.wire.remoting.names import FieldError

STEP_IDS: Final = 5_000
"""So many message ids are written into answers in 2 ms; then other calls may run."""
CALLS_MAX: Final = 500
"""How many sends are stored together at most."""
make_draft: Final = only_in_c("make_draft")
"""(ext fields with the short names, body, born_host, Draft) -> the draft of a single send."""
VERSION_WITH_LIMIT: Final = 121
"""Clients from this version on say themselves how often a message is retried."""

SENDS: Final = {
    row.code: row.fields
    for row in (codes.SEND_MESSAGE, codes.SEND_MESSAGE_V2, codes.SEND_BATCH_MESSAGE)
}


_NOT_RECALLED: Final = {
    ChangeOutcome.NOT_FOUND: "is not known here: it was not sent to this broker, was moved to"
    " another instant, or has been deleted since",
    ChangeOutcome.ALREADY_DELIVERED: "is delivered already",
    ChangeOutcome.ALREADY_CANCELLED: "is cancelled already",
    ChangeOutcome.UNDELIVERABLE: "could not be delivered: it is a dead letter of the schedule",
}


class _Send(NamedTuple):
    connection: Connection
    command: Command
    size: int
    call: DraftCall


class Sends:
    """The sends that have arrived and are not yet answered."""

    def __init__(self, config: BrokerConfig, service: Service) -> None:
        self._service = service
        self._broker_name = config.broker_name
        self._host = pack_host(host_text(config.broker_ip, config.listen_port)).hex().upper()
        self._arrived = asyncio.Event()
        self._waiting: list[_Send] = []
        self._unanswered = 0
        self._answering: set[asyncio.Task[None]] = set()
        """The tasks that answer long batches."""
        self.all_answered = asyncio.Event()
        self.all_answered.set()

    def add(
        self, connection: Connection, command: Command, size: int, caller: Caller | None
    ) -> None:
        """Store a message, or a batch, with everything else that arrives in this turn."""
        check_sender = self._service.messages.check_sender
        try:
            draft = ordinary_draft(command, connection.born_host)
            if draft is not None:
                check_sender(caller, draft.topic)
                call = DraftCall((draft,))
            else:
                send = SENDS[command.code].read(command.ext)
                check_sender(caller, send.topic)
                call = call_of(send, command, connection.born_host)
        except (AccessDenied, FieldError, MessageTooLarge) as error:
            connection.answer(command, size, encode(refused(command, error, REFUSED_SEND_EXT)))
            return
        if not self._waiting:
            self._arrived.set()
            self.all_answered.clear()
        self._waiting.append(_Send(connection, command, size, call))
        self._unanswered += 1

    async def run(self) -> None:
        """Store what has arrived, again and again, in one task: a turn of the loop makes none."""
        CALLER.set(BROKER)
        while True:
            await self._arrived.wait()
            # What comes with them joins them.  And a route that is asked right behind the send
            # that makes its topic is unknown still, as in RocketMQ's captured answers.
            await asyncio.sleep(0)
            self._arrived.clear()
            waiting, self._waiting = self._waiting, []
            for first in range(0, len(waiting), CALLS_MAX):
                await self._store(waiting[first : first + CALLS_MAX])

    async def _store(self, sends: list[_Send]) -> None:
        try:
            await self._service.messages.send_drafts(
                [send.call for send in sends], partial(self._stored, sends)
            )
        except Exception as error:
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
        answered: dict[Connection, list[Answered]] = {}
        for (connection, command, size, _), frame in zip(sends, frames, strict=True):
            answers = answered.setdefault(connection, [])
            answers.append(Answered(command, size, frame))
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
        handle = self._recall_handle(send.call, outcome) if outcome.timer_out_ms else ""
        return encode_sent(send.command, code, ids, outcome.queue_id, outcome.queue_offset, handle)

    def _recall_handle(self, call: DraftCall, outcome: Stored) -> str:
        """Of a timer; "" if it has no id that a handle can name."""
        (draft,) = call.drafts
        message_id = PropertyString(draft.properties).text(UNIQ_KEY)
        to = draft.topic, self._broker_name
        return RecallHandle(*to, outcome.timer_out_ms, message_id).text()


class Recalls:
    """Recalls of timers, each answered with what became of the message.

    RocketMQ answers 0 whatever becomes of it.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def handlers(self) -> dict[int, Handler]:
        return {codes.RECALL_MESSAGE.code: self.recall}

    async def recall(self, call: Call) -> Command:
        command = call.command
        asked = codes.RECALL_MESSAGE.fields.read(command.ext)
        try:
            changed = await self._service.schedule.recall(asked.topic, asked.recall_handle)
        except InvalidValue as error:
            why = str(error)
        except Exception as error:
            return refused(command, error, REFUSED_RECALL_EXT)
        else:
            if changed.outcome is ChangeOutcome.DONE:
                ext = codes.RECALL_MESSAGE.answer.write(RecallAnswer(changed.message_id))
                return command.answer(ResponseCode.SUCCESS, ext)
            why = f"the message {changed.message_id} {_NOT_RECALLED[changed.outcome]}"
        remark = f"recall failed: {why}"
        return command.answer(ResponseCode.ILLEGAL_OPERATION, REFUSED_RECALL_EXT, remark=remark)


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
