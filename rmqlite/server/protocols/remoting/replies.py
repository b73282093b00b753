"""Replies of consumers to clients that wait for them: RocketMQ's request and reply.

The client that asked is named by a property of the reply.  It gets the reply as a request of the
broker, which it answers; only then the consumer gets its own answer.  The reply is also stored,
for people to look at: no consumer needs it.
"""

from __future__ import annotations

from typing import Final

from rmqlite.config import BrokerConfig
from rmqlite.errors import RmqliteError
from rmqlite.message import PUSH_REPLY_TIME, REPLY_TO_CLIENT, host_text
from rmqlite.names import check_sendable
from rmqlite.property_string import PropertyString
from rmqlite.server.protocols.remoting.asked import NotAnswered
from rmqlite.server.protocols.remoting.calls import Call, Handler, refused
from rmqlite.server.protocols.remoting.clients import Clients
from rmqlite.server.protocols.remoting.sending import Sends, call_of
from rmqlite.server.service.access import CALLER
from rmqlite.server.service.service import Service
from rmqlite.wire.remoting.codes import sending as codes
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.codes.sending import (
    REFUSED_SEND_EXT,
    PushReply,
    SendAnswer,
    SendMessage,
)
from rmqlite.wire.remoting.command import Command

ANSWER_S: Final = 10.0
"""How long the client that asked has to answer."""
_NOT_STORED: Final = "0"
"""The message id of a reply that is not stored."""
_REPLIES: Final = {
    row.code: row.fields for row in (codes.SEND_REPLY_MESSAGE, codes.SEND_REPLY_MESSAGE_V2)
}


class Replies:
    """Requests that reply."""

    def __init__(
        self, config: BrokerConfig, service: Service, clients: Clients, sends: Sends
    ) -> None:
        self._config = config
        self._service = service
        self._clients = clients
        self._sends = sends

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys(_REPLIES, self.reply)

    async def reply(self, call: Call) -> Command:
        """Pass a reply on, and store it; the answer says whether its receiver has taken it."""
        try:
            # As in RocketMQ, it is one message, whatever it says of itself.
            send = _REPLIES[call.command.code].read(call.command.ext)._replace(is_batch=False)
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
        ext = codes.SEND_REPLY_MESSAGE.answer.write(answer)
        return call.command.answer(ResponseCode.SUCCESS, ext)

    async def _pushed(self, call: Call, send: SendMessage) -> str:
        """Give a reply to the client that asked.  Return why it has not taken it; "" if it has."""
        properties = PropertyString(send.properties.encode("utf-8", "replace"))
        client_id = properties.text(REPLY_TO_CLIENT)
        if not client_id:
            return f"push reply message fail, {REPLY_TO_CLIENT} is missing."
        producer = self._clients.producer_of(client_id)
        if producer is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._service.clock.now_ms()
        told = PushReply(
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
        row = codes.PUSH_REPLY_MESSAGE_TO_CLIENT
        ext = row.fields.write(told)
        try:
            answer = await producer.connection.ask(row.code, ext, call.command.body, ANSWER_S)
        except NotAnswered:
            return f"push reply message to {client_id} fail."
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail."
        return ""

    async def _stored(self, call: Call, send: SendMessage) -> SendAnswer:
        """Store a reply.  One that cannot be stored was still given to the client that asked."""
        if not self._config.stores_replies:
            return SendAnswer(_NOT_STORED, max(0, send.queue_id), 0)
        draft = call_of(send, call.command, call.connection.born_host)
        outcome = await self._service.messages.send_draft(draft)
        if isinstance(outcome, RmqliteError):
            return SendAnswer(_NOT_STORED, max(0, send.queue_id), 0)
        (physical_offset,) = outcome.physical_offsets
        message_id = self._sends.message_id(physical_offset)
        return SendAnswer(message_id, outcome.queue_id, outcome.queue_offset)
