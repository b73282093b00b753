"""Messages that come in, each stored once however often it is sent; and recalls of timers.

Each message of a send has an outcome of its own, and the send has that of all of them if they are
the same: some clients look at one, some at the other.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from rmqlite.features.changes.requests import ChangeOutcome, RecallHandle
from rmqlite.features.changes.service import ChangeCalls, why_not_recalled
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import RouteRequest
from rmqlite.kernel.sends.calls import DraftCall, Stored, check_messages
from rmqlite.kernel.service.access import CALLER
from rmqlite.kernel.service.messages import DraftsSent
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.errors import FlushFailed, RmqliteError
from rmqlite.protocols.rocketmq_v2.bytes import rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import OK, Code, RocketmqRefusal, status
from rmqlite.protocols.rocketmq_v2.bytes.messages import SendRules, draft_of, takes_long_to_store
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import SEND_MESSAGE, definition, service
from rmqlite.protocols.rocketmq_v2.bytes.transactions import transaction_id
from rmqlite.protocols.rocketmq_v2.calls import refused
from rmqlite.protocols.rocketmq_v2.clients import RocketmqClients
from rmqlite.protocols.rocketmq_v2.guard import Asker
from rmqlite.protocols.rocketmq_v2.sent_window import SentWindow, key_of
from rmqlite.protocols.shared.gathering import Gathering

_Sender = asyncio.Future[Stored]
AT_ONCE_MAX: Final = 32
"""So many messages of one call are stored together, in 5 ms; clients send one."""


class RocketmqSends:
    """Requests of producers."""

    def __init__(self, config: BrokerConfig, own: Service, clients: RocketmqClients) -> None:
        self._config = config
        self._service = own
        self._clients = clients
        self._allowed = SendRules(config.max_message_bytes, 1_000 * config.timer_max_delay_s)
        self._gathering = Gathering[_Sender](own.messages, _answer, _refuse)
        self._window = SentWindow()

    async def send(
        self, request: service.SendMessageRequest, asker: Asker
    ) -> service.SendMessageResponse:
        """Store messages of one topic, each by itself."""
        self._clients.begun(asker.key)
        topic = rules.topic_of_messages(request.messages)
        most = self._config.send_messages_max
        check_messages("messages", len(request.messages), most, "maxSendMessages")
        queues = 1
        if any(each.system_properties.message_group for each in request.messages):
            route = await self._service.topics.route(RouteRequest(topic, create=True))
            queues = route.topic.write_queues
        entries: list[service.SendResultEntry] = []
        for begin in range(0, len(request.messages), AT_ONCE_MAX):
            some = request.messages[begin : begin + AT_ONCE_MAX]
            entries += await asyncio.gather(
                *[self._entry(each, topic, queues, asker) for each in some]
            )
        codes = {entry.status.code for entry in entries}
        outcome = entries[0].status if len(codes) == 1 else status(Code.MULTIPLE_RESULTS)
        return service.SendMessageResponse(status=outcome, entries=entries)

    async def recall(
        self, request: service.RecallMessageRequest, _: Asker
    ) -> service.RecallMessageResponse:
        """Cancel a message that waits for its time; the answer says what has become of it."""
        topic = rules.topic_of(request.topic)
        changed = await self._service[ChangeCalls].recall(topic, request.recall_handle)
        if changed.outcome is not ChangeOutcome.DONE:
            # Not MESSAGE_NOT_FOUND: some clients take that for success.
            raise RocketmqRefusal(Code.NOT_FOUND, why_not_recalled(changed))
        return service.RecallMessageResponse(status=OK, message_id=changed.message_id)

    async def _entry(
        self, message: definition.Message, topic: str, write_queues: int, asker: Asker
    ) -> service.SendResultEntry:
        """The outcome of one message."""
        message_id = message.system_properties.message_id
        try:
            # Before its result is looked up: a blank id names nothing.
            rules.check_message_id(message_id)
            key = key_of(asker.key, topic, message_id)
            data = await self._window.once(
                key, partial(self._stored, message, topic, write_queues, asker)
            )
        except Exception as error:
            shown = refused(SEND_MESSAGE.path, error).status
            return service.SendResultEntry(status=shown, message_id=message_id)
        return service.SendResultEntry.FromString(data)

    async def _stored(
        self, message: definition.Message, topic: str, write_queues: int, asker: Asker
    ) -> bytes:
        """Store a message; the entry of the answer."""
        make = partial(
            draft_of,
            message,
            topic,
            self._allowed,
            write_queues=write_queues,
            born_host=asker.host,
            now_ms=self._service.clock.now_ms(),
        )
        draft = await asyncio.to_thread(make) if takes_long_to_store(message) else make()
        self._service.messages.check_sender(CALLER.get(), topic)
        storing: _Sender = asyncio.get_running_loop().create_future()
        self._gathering.add(storing, DraftCall((draft,)))
        stored = await storing
        system = message.system_properties
        entry = service.SendResultEntry(
            status=OK, message_id=system.message_id, offset=stored.queue_offset
        )
        if system.message_type == definition.TRANSACTION:
            (physical_offset,) = stored.physical_offsets
            entry.transaction_id = transaction_id(stored.queue_offset, physical_offset)
        if stored.timer_out_ms:
            entry.recall_handle = RecallHandle(
                topic, self._config.broker_name, stored.timer_out_ms, system.message_id
            ).text()
        return entry.SerializeToString()


def _answer(senders: list[_Sender], sent: DraftsSent) -> None:
    for sender, outcome in zip(senders, sent.outcomes, strict=True):
        if isinstance(outcome, RmqliteError):
            _refuse([sender], outcome)
        elif not sent.is_durable:
            sentence = "the disk is slow: the message may or may not survive a crash"
            _refuse([sender], FlushFailed(sentence, is_final=False))
        elif not sender.done():
            sender.set_result(outcome)


def _refuse(senders: list[_Sender], error: Exception) -> None:
    for sender in senders:
        if not sender.done():
            sender.set_exception(error)
