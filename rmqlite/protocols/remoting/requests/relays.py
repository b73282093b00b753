"""Who is connected, and the requests that the broker passes on to a client.

An answer of a client is passed on as it came: its bodies have parts that only the tools know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from rmqlite.features.finding.service import FindingCalls
from rmqlite.features.operating.service import ProgressCalls
from rmqlite.kernel.requests.groups import MemberInfo
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.service.service import Service
from rmqlite.protocols.remoting.bytes.command import SERVER_VERSION, Command, ResponseCode
from rmqlite.protocols.remoting.bytes.fields import FieldError, Nothing
from rmqlite.protocols.remoting.bytes.requests import clients as codes
from rmqlite.protocols.remoting.bytes.requests.clients import (
    ClientOffsets,
    ClientsOffsets,
    ConnectionBody,
    ConsumeDirectly,
    ConsumeFromWhere,
    ConsumerConnections,
    ConsumerStatusQuery,
    ConsumeType,
    MessageModel,
    OffsetList,
    OffsetTable,
    OfProducerGroup,
    ProducerBody,
    ProducerConnections,
    ProducersBody,
    QueueOffset,
    ResetOffset,
    RunningInfoQuery,
    SubscriptionBody,
)
from rmqlite.protocols.remoting.bytes.requests.groups import GroupAndTopic, MessageQueue, OfGroup
from rmqlite.protocols.remoting.bytes.shapes import read_body, write_body
from rmqlite.protocols.remoting.calls import Call, CodeRefusal, answers, large_body
from rmqlite.protocols.remoting.connection import NotAnswered
from rmqlite.protocols.remoting.requests.clients import Consumer, ProducerClient, RemotingClients

ANSWER_S: Final = 10.0
"""How long a client may take for an answer that is passed on."""
OFFSETS_S: Final = 5.0
"""How long each client may take to say how far it is."""
NOW: Final = -1
"""As a time to reset to: behind the last message."""
_ANSWERS_BEGIN: Final = 62
"""Clients from this version on answer requests of the broker."""
_CPP: Final = "CPP"
_OTHER_LANGUAGE: Final = "PYTHON"
"""What members of other protocols are listed as."""

Q = TypeVar("Q", bound=tuple[Any, ...])
log = logging.getLogger(__name__)


class ConnectionLists:
    """Requests for lists of clients."""

    def __init__(self, service: Service, clients: RemotingClients) -> None:
        self._service = service
        self._clients = clients

    @answers(codes.GET_CONSUMER_CONNECTION_LIST)
    async def consumers(self, call: Call[OfGroup]) -> Command:
        """The members of a group on every protocol; those of other protocols have no address."""
        group = call.asked().consumer_group
        members = await self._service.groups.members(group)
        if not members:
            remark = f"the consumer group {group} is not online"
            raise CodeRefusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        here = self._clients.consumers(group)
        subscriptions = {
            each.topic: SubscriptionBody(each.topic, each.expression)
            for member in members
            for each in member.subscriptions
        }
        for consumer in here.values():
            subscriptions |= {each.topic: each for each in consumer.data.subscription_data_set}
        data = next((consumer.data for consumer in here.values()), None)
        body = ConsumerConnections(
            (),
            subscriptions,
            data.consume_type if data else ConsumeType.PASSIVELY,
            data.message_model if data else MessageModel.CLUSTERING,
            data.consume_from_where if data else ConsumeFromWhere.LAST_OFFSET,
        )
        connections = (self._connection(group, member) for member in members)
        written = await large_body(body, "connection_set", connections)
        return call.done(body=written)

    @answers(codes.GET_PRODUCER_CONNECTION_LIST)
    async def producers(self, call: Call[OfProducerGroup]) -> Command:
        group = call.asked().producer_group
        found = tuple(self._clients.producers(group).values())
        if not found:
            raise CodeRefusal(
                ResponseCode.SYSTEM_ERROR, f"the producer group {group} does not exist"
            )
        connections = (
            ConnectionBody(each.client_id, each.connection.address, each.language, each.version)
            for each in found
        )
        body = await large_body(ProducerConnections(()), "connection_set", connections)
        return call.done(body=body)

    @answers(codes.GET_ALL_PRODUCER_INFO)
    async def all_producers(self, call: Call[Nothing]) -> Command:
        known = [
            (group, tuple(producers.values()))
            for group, producers in self._clients.producer_groups().items()
        ]
        body = await large_body(
            ProducersBody({}), "data", ((group, _infos(producers)) for group, producers in known)
        )
        return call.done(body=body)

    def _connection(self, group: str, member: MemberInfo) -> ConnectionBody:
        consumer = self._clients.consumers(group).get(member.client_id)
        if consumer is None:
            return ConnectionBody(member.client_id, "", _OTHER_LANGUAGE, SERVER_VERSION)
        address = consumer.connection.address
        return ConnectionBody(member.client_id, address, consumer.language, consumer.version)


def _infos(producers: Iterable[ProducerClient]) -> tuple[ProducerBody, ...]:
    return tuple(
        [
            ProducerBody(
                each.client_id,
                # As Java shows an address.
                f"/{each.connection.address}",
                each.language,
                each.version,
                each.seen_ms,
            )
            for each in producers
        ]
    )


class Relays:
    """Requests for which the broker asks the members of a group."""

    def __init__(self, broker_name: str, service: Service, clients: RemotingClients) -> None:
        self._broker_name = broker_name
        self._service = service
        self._clients = clients

    @answers(codes.GET_CONSUMER_RUNNING_INFO)
    async def running_info(self, call: Call[RunningInfoQuery]) -> Command:
        """What a member says of itself."""
        asked = call.asked()
        consumer = self._consumer(asked.consumer_group, asked.client_id)
        return await _relayed(call, consumer, asked)

    @answers(codes.CONSUME_MESSAGE_DIRECTLY)
    async def consume(self, call: Call[ConsumeDirectly]) -> Command:
        """Give a member a message, whatever its offsets, and answer what its listener returned."""
        asked = call.asked()
        consumer = self._consumer(asked.consumer_group, asked.client_id)
        record = await self._service[FindingCalls].hand_out(asked.msg_id)
        asked = asked._replace(broker_name=self._broker_name)
        return await _relayed(call, consumer, asked, record.encoded)

    @answers(codes.INVOKE_BROKER_TO_RESET_OFFSET)
    async def reset_offsets(self, call: Call[ResetOffset]) -> Command:
        """Let all members go on at the messages of a time.

        Those that pull are notified, and commit it themselves; a POP consumer would only pause.
        """
        asked = call.asked()
        known = tuple(self._clients.consumers(asked.group).values())
        receives = self._service.groups.receives(asked.group)
        members = [each for each in known if not each.pops]
        offsets = await self._service[ProgressCalls].reset(
            asked.group,
            asked.topic,
            None if asked.timestamp == NOW else asked.timestamp,
            may_advance=asked.is_force,
        )
        if not known and not receives:
            remark = f"Consumer not online, so can not reset offset, Group: {asked.group}"
            raise CodeRefusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        table = write_body(OffsetTable(dict(self._offsets(offsets.items()))))
        body = table
        if call.command.language == _CPP:
            body = write_body(OffsetList(tuple(self._listed(offsets.items()))))
        reset = asked._replace(is_force=False)
        for member in members:
            member.connection.notify(codes.RESET_CONSUMER_CLIENT_OFFSET, reset, body)
        log.info(
            "offsets reset group=%s topic=%s timestamp=%d notified=%d",
            asked.group,
            asked.topic,
            asked.timestamp,
            len(members),
        )
        return call.done(body=table)

    @answers(codes.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    async def offsets(self, call: Call[ConsumerStatusQuery]) -> Command:
        """How far the members of a group say they are in a topic."""
        asked = call.asked()
        members = [
            consumer
            for client_id, consumer in self._clients.consumers(asked.group).items()
            if asked.client_addr in ("", client_id)
        ]
        if not members:
            remark = f"No Any Consumer online in the consumer group: [{asked.group}]"
            raise CodeRefusal(ResponseCode.SYSTEM_ERROR, remark)
        wanted = GroupAndTopic(asked.topic, asked.group)
        found = await asyncio.gather(*[_offsets_of(member, wanted) for member in members])
        table = {
            member.client_id: offsets
            for member, offsets in zip(members, found, strict=True)
            if offsets is not None
        }
        return call.done(body=ClientsOffsets(table))

    def _consumer(self, group: str, client_id: str) -> Consumer:
        consumer = self._clients.consumers(group).get(client_id)
        if consumer is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            raise CodeRefusal(ResponseCode.SYSTEM_ERROR, remark)
        if consumer.version < _ANSWERS_BEGIN:
            remark = f"The Consumer <{client_id}> Version <{consumer.version}> too low to finish"
            raise CodeRefusal(ResponseCode.SYSTEM_ERROR, remark)
        return consumer

    def _offsets(self, offsets: Iterable[tuple[Queue, int]]) -> Iterable[tuple[MessageQueue, int]]:
        for queue, offset in offsets:
            yield MessageQueue(queue.topic, queue.queue_id, self._broker_name), offset

    def _listed(self, offsets: Iterable[tuple[Queue, int]]) -> Iterable[QueueOffset]:
        for queue, offset in offsets:
            yield QueueOffset(queue.topic, queue.queue_id, offset, self._broker_name)


async def _relayed(call: Call[Q], consumer: Consumer, asked: Q, body: bytes = b"") -> Command:
    """Ask a client the same, and answer what it answers.  Raises NotAnswered."""
    answer = await consumer.connection.ask(call.row, asked, body, seconds=ANSWER_S)
    return call.command.answer(answer.code, answer.ext, answer.body, answer.remark)


async def _offsets_of(member: Consumer, asked: GroupAndTopic) -> dict[MessageQueue, int] | None:
    row = codes.GET_CONSUMER_STATUS_FROM_CLIENT
    try:
        answer = await member.connection.ask(row, asked, seconds=OFFSETS_S)
        return read_body(ClientOffsets, answer.body).message_queue_table
    except (FieldError, NotAnswered) as error:
        log.info("a member does not say its offsets client=%s error=%s", member.client_id, error)
        return None
