"""POP consumers of RocketMQ 5: the broker leases messages to them, as it does on other protocols.

A lease's handle is spread over the words of the extra info (bytes/requests/pop.py): popTime
and reviveQid are its lease, the topic type says whether the record is a retry, and the last two
words are the record's place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Final

from rmqlite.features.leases.requests import AckRequest, Handle, InvisibleChange, ReceiveRequest
from rmqlite.features.leases.service import EVERY_QUEUE, LeaseCalls
from rmqlite.features.leases.taking import Delivery, Received
from rmqlite.features.request_modes import requests as modes
from rmqlite.features.request_modes.feature import ModeCalls
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.tables.shares import allocate
from rmqlite.kernel.words.errors import HandleInvalid, Overloaded, RmqliteError
from rmqlite.kernel.words.limits import RECEIVE_MESSAGES_MAX
from rmqlite.protocols.remoting.bytes.command import Command, ResponseCode
from rmqlite.protocols.remoting.bytes.fields import BATCH_ACK_MESSAGES_MAX, FieldError, Nothing
from rmqlite.protocols.remoting.bytes.requests import pop as codes
from rmqlite.protocols.remoting.bytes.requests.clients import MessageModel
from rmqlite.protocols.remoting.bytes.requests.groups import MessageQueue
from rmqlite.protocols.remoting.bytes.requests.pop import (
    NORMAL,
    RETRY,
    AckMessage,
    AssignmentBody,
    Assignments,
    BatchAck,
    BatchAcks,
    ChangeAnswer,
    ChangeInvisibleTime,
    ExtraInfo,
    ModeChangeBody,
    Notification,
    NotificationAnswer,
    PeekMessage,
    PollingInfo,
    PollingInfoAnswer,
    PopAnswer,
    PopMessage,
    PopOffsets,
    Popped,
    QueueAssignment,
    RequestModesBody,
    topic_sent_to,
)
from rmqlite.protocols.remoting.bytes.shapes import read_body, read_change, write_body
from rmqlite.protocols.remoting.calls import Call, answers, refused
from rmqlite.protocols.remoting.registry import Registry
from rmqlite.protocols.remoting.requests.clients import RemotingClients, filter_of

ACKED_AT_ONCE: Final = 256
"""Messages of a batch that are acknowledged in one turn, and by one record of the journal."""
_FOUND: Final = "FOUND"
_NOTHING: Final = "NO_MESSAGE_IN_QUEUE"
_OLD_HANDLE: Final = (b"\x02POP_CK\x01", b"\x02OLD_CK\x01")
"""A producer that sends a received message on sends its handle, too, and a consumer would
acknowledge that one.  Another name of the same length changes nothing else of the record."""


def _modes_body(rows: Iterable[modes.RequestModeChange]) -> bytes:
    by_topic: dict[str, dict[str, ModeChangeBody]] = {}
    for each in rows:
        body = ModeChangeBody(each.topic, each.group, each.mode, each.shared_by)
        by_topic.setdefault(each.topic, {})[each.group] = body
    return write_body(RequestModesBody(by_topic))


class Modes:
    """Requests about how a group gets its messages.  registry: brokers that register here."""

    def __init__(self, broker_name: str, service: Service, registry: Registry) -> None:
        self._broker_name = broker_name
        self._service = service
        self._registry = registry

    @answers(codes.SET_MESSAGE_REQUEST_MODE)
    async def change(self, call: Call[Nothing]) -> Command:
        asked = read_change(ModeChangeBody, call.command.body)
        await self._service[ModeCalls].change_mode(
            modes.RequestModeChange(
                asked.consumer_group, asked.topic, asked.mode, asked.pop_share_queue_num
            )
        )
        return call.done()

    @answers(codes.GET_ALL_MESSAGE_REQUEST_MODE)
    async def every_mode(self, call: Call[Nothing]) -> Command:
        rows = await self._service[ModeCalls].modes()
        # Another thread: a topic of 10,000 groups takes 50 ms.
        return call.done(body=await asyncio.to_thread(_modes_body, rows))

    @answers(codes.QUERY_ASSIGNMENT)
    async def assignment(self, call: Call[Nothing]) -> Command:
        """Always the average allocation, whatever strategy the client names."""
        asked = read_body(AssignmentBody, call.command.body)
        is_broadcasting = asked.message_model is MessageModel.BROADCASTING
        group, topic, client_id = asked.consumer_group, asked.topic, asked.client_id
        found = await self._service[ModeCalls].assigned(
            modes.AssignmentQuery(group, topic, client_id, is_broadcasting)
        )
        others = None if found is None else await self._others(topic)
        if found is None or others is None:
            return call.done(body=Assignments())
        queues = self._queues(found, others, client_id, is_broadcasting)
        rows = [
            QueueAssignment(MessageQueue(topic, queue_id, broker), found.mode)
            for broker, queue_id in queues
        ]
        return call.done(body=Assignments(tuple(rows)))

    async def _others(self, topic: str) -> dict[str, int] | None:
        """How many queues of a topic each other broker has; None if that is not known now.

        A client asks any broker of the topic, and takes its answer for all of them.
        """
        elsewhere = await self._service.topics.elsewhere(topic)
        return None if elsewhere is None else {**self._registry.queues_of(topic), **elsewhere}

    def _queues(
        self, found: modes.Assigned, others: dict[str, int], client_id: str, is_broadcasting: bool
    ) -> list[tuple[str, int]]:
        """A client's queues, by broker and queue id."""
        own = [(self._broker_name, each) for each in found.queue_ids]
        if not others:
            return own
        if found.mode is modes.RequestMode.POP:
            return [*own, *[(each, EVERY_QUEUE) for each in others]] if own else []
        every = sorted(
            (broker, queue_id)
            for broker, queues in {**others, self._broker_name: found.queues}.items()
            for queue_id in range(queues)
        )
        if is_broadcasting:
            return every
        shares = allocate(every, len(found.members))
        return [*dict(zip(found.members, shares, strict=True))[client_id]]


class Pops:
    """Requests about popped messages."""

    def __init__(self, config: BrokerConfig, service: Service, clients: RemotingClients) -> None:
        self._config = config
        self._service = service
        self._clients = clients

    @answers(codes.POP_MESSAGE)
    async def pop(self, call: Call[PopMessage]) -> Command:
        """Lease messages; records as they lie in the log."""
        asked, connection = call.asked(), call.connection
        wanted = filter_of(asked.topic, asked.exp or "*", asked.exp_type)
        client_id = self._clients.client_id(connection, asked.consumer_group)
        self._clients.popped(asked.consumer_group, client_id)
        request = ReceiveRequest(
            asked.consumer_group,
            asked.topic,
            client_id,
            wanted.expression,
            wanted.sql,
            min(max(asked.max_msg_nums, 1), RECEIVE_MESSAGES_MAX),
            asked.invisible_time,
            wait_ms=min(max(asked.poll_time, 0), self._config.pull_wait_ms_max),
            attempt_id=asked.attempt_id,
            queue_id=max(asked.queue_id, EVERY_QUEUE),
        )
        is_ordered = asked.order
        del asked
        async with connection.reading():
            # Not longer: many pops of one client wait side by side.
            pass
        with connection.parked(call.command) if request.wait_ms else nullcontext():
            received = await self._service[LeaseCalls].receive(request)
        return _popped(call, received, is_ordered=is_ordered)

    @answers(codes.ACK_MESSAGE)
    async def ack(self, call: Call[AckMessage]) -> Command:
        asked = call.asked()
        topic, handle = _named(asked)
        request = AckRequest(asked.consumer_group, topic, (handle,))
        (is_valid,) = await self._service[LeaseCalls].ack(request)
        if not is_valid:
            raise HandleInvalid(asked.extra_info)
        return call.done()

    @answers(codes.BATCH_ACK_MESSAGE)
    async def ack_all(self, call: Call[Nothing]) -> Command:
        """As in RocketMQ the answer does not say which were not valid."""
        asked = read_body(BatchAcks, call.command.body)
        for group, topic, handles in _acks(asked.acks):
            await self._service[LeaseCalls].ack(AckRequest(group, topic, handles))
        return call.done()

    @answers(codes.CHANGE_MESSAGE_INVISIBLETIME)
    async def change(self, call: Call[ChangeInvisibleTime]) -> Command:
        """A consumer that fails a message asks for it again after a delay."""
        try:
            asked = call.asked()
            topic, handle = _named(asked)
            change = InvisibleChange(asked.consumer_group, topic, handle, asked.invisible_time)
            changed = await self._service[LeaseCalls].change(change)
        except (RmqliteError, FieldError) as error:
            return refused(call.command, error, call.row.answer.write(ChangeAnswer()))
        answer = ChangeAnswer(changed.received_at_ms, asked.invisible_time, changed.nonce)
        return call.done(answer)

    @answers(codes.PEEK_MESSAGE)
    async def peek(self, call: Call[PeekMessage]) -> Command:
        """Messages that a pop would bring; they are not leased."""
        asked = call.asked()
        count = min(max(asked.max_msg_nums, 1), RECEIVE_MESSAGES_MAX)
        found = await self._service[LeaseCalls].peek(
            _look(asked.consumer_group, asked.topic, asked.queue_id, max_messages=count)
        )
        ext = call.row.answer.write(PopAnswer(0, 0, 0))
        if not found:
            return call.command.answer(ResponseCode.PULL_NOT_FOUND, ext, remark=_NOTHING)
        body = b"".join([record.encoded for record in found])
        return call.command.answer(ResponseCode.SUCCESS, ext, body, _FOUND)

    @answers(codes.NOTIFICATION)
    async def notify(self, call: Call[Notification]) -> Command:
        """Would a pop find a message?  If not, wait for the first one."""
        asked = call.asked()
        wait_ms = min(max(asked.poll_time, 0), self._config.pull_wait_ms_max)
        request = _look(asked.consumer_group, asked.topic, asked.queue_id, wait_ms=wait_ms)
        del asked
        try:
            with call.connection.parked(call.command) if wait_ms else nullcontext():
                found = await self._service[LeaseCalls].peek(request)
        except Overloaded:
            return call.done(NotificationAnswer(has_msg=False, polling_full=True))
        return call.done(NotificationAnswer(bool(found)))

    @answers(codes.POLLING_INFO)
    async def waiting(self, call: Call[PollingInfo]) -> Command:
        asked = call.asked()
        request = _look(asked.consumer_group, asked.topic, asked.queue_id)
        return call.done(PollingInfoAnswer(await self._service[LeaseCalls].waiting(request)))


def _look(
    group: str, topic: str, queue_id: int, *, max_messages: int = 1, wait_ms: int = 0
) -> ReceiveRequest:
    """A receive that is not to lease anything."""
    return ReceiveRequest(
        group,
        topic,
        client_id="",
        max_messages=max_messages,
        auto_renew=True,
        wait_ms=wait_ms,
        queue_id=max(queue_id, EVERY_QUEUE),
    )


def _popped(call: Call[PopMessage], received: Received, *, is_ordered: bool) -> Command:
    """The answer to a pop.  All its messages have the same lease."""
    if not received.messages:
        ext = call.row.answer.write(PopAnswer(received.received_at_ms, received.invisible_ms, 0))
        return call.command.answer(ResponseCode.POLLING_TIMEOUT, ext, remark=_NOTHING)
    offsets = PopOffsets.of([_place(each, is_ordered) for each in received.messages])
    lease = received.messages[0].handle
    ext = call.row.answer.write(
        PopAnswer(
            lease.received_at_ms,
            received.invisible_ms,
            lease.nonce,
            0,
            offsets.start,
            offsets.messages,
            offsets.attempts,
        )
    )
    body = b"".join([_record(each.record) for each in received.messages])
    return call.command.answer(ResponseCode.SUCCESS, ext, body, _FOUND)


def _place(delivery: Delivery, is_ordered: bool) -> Popped:
    handle = delivery.handle
    return Popped(
        RETRY if handle.is_retry else NORMAL,
        handle.queue_id,
        handle.queue_offset,
        delivery.attempt - 1 if is_ordered else 0,
    )


def _record(record: Record) -> bytes:
    encoded, properties = record.encoded, record.head.properties
    if b"POP_CK\x01" not in properties:
        return encoded
    renamed = (b"\x02" + properties).replace(*_OLD_HANDLE)[1:]
    return encoded[: len(encoded) - len(properties)] + renamed


def _named(asked: AckMessage | ChangeInvisibleTime) -> tuple[str, Handle]:
    """The message's topic, and the handle.  Raises FieldError, HandleInvalid."""
    info = ExtraInfo.parse(asked.extra_info)
    topic = topic_sent_to(asked.topic, asked.consumer_group, info.topic_type)
    lease = Handle.lease_of(info.pop_time, info.revive_qid)
    return topic, Handle(lease, info.topic_type != NORMAL, asked.queue_id, asked.offset)


def _acks(acks: Iterable[BatchAck]) -> Iterator[tuple[str, str, tuple[Handle, ...]]]:
    """Groups, topics and handles, some handles together.

    The topic is the one that the messages were sent to, also of retries.  Raises FieldError,
    HandleInvalid.
    """
    handles: dict[tuple[str, str], list[Handle]] = {}
    count = 0
    for ack in acks:
        lease = Handle.lease_of(ack.pop_time, ack.revive_queue_id)
        found = handles.setdefault((ack.consumer_group, ack.topic), [])
        for offset in ack.offsets():
            found.append(Handle(lease, ack.retry != NORMAL, ack.queue_id, offset))
            count += 1
            if count > BATCH_ACK_MESSAGES_MAX:
                raise FieldError("acks", "more", f"at most {BATCH_ACK_MESSAGES_MAX} messages")
    for (group, topic), each in handles.items():
        for begin in range(0, len(each), ACKED_AT_ONCE):
            yield group, topic, tuple(each[begin : begin + ACKED_AT_ONCE])
