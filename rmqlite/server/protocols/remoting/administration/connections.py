"""Who is connected: consumers of a group, producers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqlite.requests.groups import MemberInfo
from rmqlite.server.protocols.remoting.administration.large_bodies import large_body
from rmqlite.server.protocols.remoting.calls import Call, Handler, Refusal
from rmqlite.server.protocols.remoting.clients import Clients
from rmqlite.server.protocols.remoting.clients import Producer as Known
from rmqlite.server.service.service import Service
from rmqlite.wire.remoting.bodies.clients import (
    Connection,
    ConsumeFromWhere,
    ConsumerConnections,
    ConsumeType,
    MessageModel,
    Producer,
    ProducerConnections,
    Producers,
    Subscription,
)
from rmqlite.wire.remoting.codes import administration as codes
from rmqlite.wire.remoting.codes.response_code import ResponseCode
from rmqlite.wire.remoting.command import SERVER_VERSION, Command

_OTHER_LANGUAGE: Final = "PYTHON"
"""What members of other protocols are listed as."""


class ConnectionLists:
    """Requests for lists of clients."""

    def __init__(self, service: Service, clients: Clients) -> None:
        self._service = service
        self._clients = clients

    def handlers(self) -> dict[int, Handler]:
        return {
            codes.GET_CONSUMER_CONNECTION_LIST.code: self.consumers,
            codes.GET_PRODUCER_CONNECTION_LIST.code: self.producers,
            codes.GET_ALL_PRODUCER_INFO.code: self.all_producers,
        }

    async def consumers(self, call: Call) -> Command:
        """The members of a group on every protocol; those of other protocols have no address."""
        group = codes.GET_CONSUMER_CONNECTION_LIST.fields.read(call.command.ext).consumer_group
        members = await self._service.groups.members(group)
        if not members:
            remark = f"the consumer group {group} is not online"
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        here = self._clients.consumers(group)
        subscriptions = {
            each.topic: Subscription(each.topic, each.expression)
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
        return call.command.answer(ResponseCode.SUCCESS, body=written)

    async def producers(self, call: Call) -> Command:
        group = codes.GET_PRODUCER_CONNECTION_LIST.fields.read(call.command.ext).producer_group
        found = tuple(self._clients.producers(group).values())
        if not found:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group {group} does not exist")
        connections = (
            Connection(each.client_id, each.connection.address, each.language, each.version)
            for each in found
        )
        body = await large_body(ProducerConnections(()), "connection_set", connections)
        return call.command.answer(ResponseCode.SUCCESS, body=body)

    async def all_producers(self, call: Call) -> Command:
        known = [
            (group, tuple(producers.values()))
            for group, producers in self._clients.producer_groups().items()
        ]
        body = await large_body(
            Producers({}), "data", ((group, _infos(producers)) for group, producers in known)
        )
        return call.command.answer(ResponseCode.SUCCESS, body=body)

    def _connection(self, group: str, member: MemberInfo) -> Connection:
        consumer = self._clients.consumers(group).get(member.client_id)
        if consumer is None:
            return Connection(member.client_id, "", _OTHER_LANGUAGE, SERVER_VERSION)
        address = consumer.connection.address
        return Connection(member.client_id, address, consumer.language, consumer.version)


def _infos(producers: Iterable[Known]) -> tuple[Producer, ...]:
    return tuple(
        [
            Producer(
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
