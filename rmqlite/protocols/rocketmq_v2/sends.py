"""Messages that come in, each stored once however often it is sent; recalls; ends of transactions.

Each message of a send has an outcome of its own, and the send has that of all of them if they are
the same: some clients look at one, some at the other.

RocketMQ's clients send a message up to three times, each time with the same id, at once after an
error or when their time is over.  The first result answers the later ones; one that comes
while the first is still being stored waits for it.  What was refused is not remembered, so that
it can be tried again.  The window lives in memory: a message that is sent again over a restart of
the broker is stored again.

Clients of this protocol have no producer groups: the topic of a half message stands for one.  So
whoever sends to the topic, and has its Telemetry call open, can be asked how a transaction ends.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from rmqlite.features.changes.requests import ChangeOutcome, RecallHandle
from rmqlite.features.changes.service import ChangeCalls, why_not_recalled
from rmqlite.features.transactions.requests import TransactionQuestion
from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import RouteRequest
from rmqlite.kernel.sends.calls import DraftCall, Stored, check_messages
from rmqlite.kernel.service.access import CALLER
from rmqlite.kernel.service.messages import DraftsSent
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import FlushFailed, InvalidValue, MessageNotFound, RmqliteError
from rmqlite.protocols.rocketmq_v2.bytes import rules
from rmqlite.protocols.rocketmq_v2.bytes.codes import OK, Code, RocketmqRefusal, status
from rmqlite.protocols.rocketmq_v2.bytes.messages import (
    SendRules,
    draft_of,
    end_of,
    recover_command,
    takes_long_to_store,
    transaction_id,
)
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import SEND_MESSAGE, definition, service
from rmqlite.protocols.rocketmq_v2.calls import Asker, ClientKey, refused
from rmqlite.protocols.rocketmq_v2.clients import RocketmqClients
from rmqlite.protocols.shared.gathering import Gathering

WINDOW_S: Final = 60.0
"""How long a result is remembered: three attempts of an ordinary client take ten seconds."""
RESULTS_MAX: Final = 65_536
"""How many of them, with about 300 bytes each; beyond it the oldest is forgotten."""
FORGOTTEN_MAX: Final = 16
"""How many old results one send forgets."""
Store = Callable[[], Coroutine[Any, Any, bytes]]
"""Stores a message, and returns its result as bytes.  Raises RmqliteError, Refusal."""
_Sender = asyncio.Future[Stored]
DUPLICATE: Final = "duplicate: another message has this unique id"
AT_ONCE_MAX: Final = 32
"""So many messages of one call are stored together, in 5 ms; clients send one."""


class _Result(NamedTuple):
    at_s: float
    data: bytes


class SentWindow:
    """The sends of all clients of this protocol."""

    def __init__(self, elapsed: Callable[[], float] = elapsed_s) -> None:
        self._elapsed = elapsed
        self._results: OrderedDict[bytes, _Result] = OrderedDict()
        self._storing: dict[bytes, asyncio.Task[bytes]] = {}

    async def once(self, key: bytes, store: Store) -> bytes:
        """The result of a message with this key, which is stored unless it has been before."""
        result = self._results.get(key)
        if result is not None and self._elapsed() - result.at_s <= WINDOW_S:
            return result.data
        storing = self._storing.get(key)
        if storing is None:
            storing = self._storing[key] = asyncio.create_task(store())
            storing.add_done_callback(lambda done: self._stored(key, done))
        # The client may leave, but what becomes of its message must be known when it comes back.
        return await asyncio.shield(storing)

    def __len__(self) -> int:
        return len(self._results) + len(self._storing)

    def _stored(self, key: bytes, storing: asyncio.Task[bytes]) -> None:
        del self._storing[key]
        # Asked for, so that nothing is logged of an error for which nobody waits any more.
        if storing.cancelled() or storing.exception() is not None:
            return
        now_s = self._elapsed()
        self._results[key] = _Result(now_s, storing.result())
        self._results.move_to_end(key)
        self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        """Forget old results.  One send adds one, so this keeps up."""
        results = self._results
        if len(results) > RESULTS_MAX:
            results.popitem(last=False)
        for _ in range(min(FORGOTTEN_MAX, len(results))):
            if now_s - next(iter(results.values())).at_s <= WINDOW_S:
                return
            results.popitem(last=False)


def key_of(client: ClientKey, topic: str, message_id: str) -> bytes:
    """Names a message of a client.

    A message id alone is not enough: two machines can make the same one.
    """
    parts = (*client, topic, message_id)
    digest = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4) + data)
    return digest.digest()


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
        _, message_id = stored.duplicates.get(0, (0, system.message_id))
        is_other = message_id != system.message_id
        entry = service.SendResultEntry(
            status=status(Code.OK, DUPLICATE) if is_other else OK,
            message_id=message_id,
            offset=stored.queue_offset,
        )
        if system.message_type == definition.TRANSACTION:
            (physical_offset,) = stored.physical_offsets
            entry.transaction_id = transaction_id(stored.queue_offset, physical_offset)
        if stored.timer_out_ms:
            entry.recall_handle = RecallHandle(
                topic, self._config.broker_name, stored.timer_out_ms, message_id
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
