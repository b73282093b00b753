"""Who is connected: heartbeats, the members of groups, the producers, and who to notify."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from rmqlite.features.leases.service import LeaseCalls
from rmqlite.kernel.requests.groups import HeartbeatRequest, LeaveRequest, MemberKind, Subscription
from rmqlite.kernel.service.access import CALLER, Caller, account_of_caller
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.tables.shares import AccountShares
from rmqlite.kernel.words.errors import InvalidValue, RmqliteError
from rmqlite.kernel.words.names import is_retry, retry_topic
from rmqlite.protocols.remoting.bytes.command import Command, ResponseCode
from rmqlite.protocols.remoting.bytes.fields import Nothing
from rmqlite.protocols.remoting.bytes.requests import clients as codes
from rmqlite.protocols.remoting.bytes.requests.clients import (
    ClientConfigCheck,
    ConsumerData,
    ConsumerIds,
    Heartbeat,
    MessageModel,
    UnregisterClient,
)
from rmqlite.protocols.remoting.bytes.requests.groups import OfGroup
from rmqlite.protocols.remoting.bytes.shapes import check_size
from rmqlite.protocols.remoting.calls import Call, CodeRefusal, answers, read_large
from rmqlite.protocols.remoting.connection import ClientConnection

TAG: Final = "TAG"
SQL92: Final = "SQL92"
PRODUCERS_MAX: Final = 20_000
"""How many pairs of client and producer group are remembered."""
LANGUAGE_CHARS_MAX: Final = 32
"""What is remembered of the name of a client's language."""
BEATS_BYTES_MAX: Final = 64 << 20
"""The length of all heartbeats that are remembered; another one is read each time that it comes."""

_AT_ONCE_MAX: Final = 50
"""Groups of a heartbeat that are joined in one turn of the loop: 5 ms for new ones."""
_VERSION: Final = re.compile(rb'"subVersion"\s*+:\s*+"?[0-9]++"?')

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Consumer:
    """A member of a group, as its last heartbeat said."""

    connection: ClientConnection
    client_id: str
    data: ConsumerData
    language: str
    version: int
    pops: bool = False
    """Has it popped messages?  A member of a group that pops may pull all the same."""


@dataclass(slots=True)
class ProducerClient:
    connection: ClientConnection
    client_id: str
    language: str
    version: int
    seen_ms: int
    account: str
    """For which it is counted."""


class _Beat(NamedTuple):
    """A heartbeat that was read.  digest: of its body without the versions of subscriptions.

    size: of its body.  account: for which it is counted.
    """

    digest: bytes
    size: int
    client_id: str
    producers: tuple[str, ...]
    consumers: tuple[tuple[ConsumerData, HeartbeatRequest], ...]
    account: str = ""


class RemotingClients:
    """The producers and consumers that have sent a heartbeat on an open connection."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._consumers: dict[str, dict[str, Consumer]] = {}
        self._producers: dict[str, dict[str, ProducerClient]] = {}
        self._consumers_of: dict[ClientConnection, set[tuple[str, str]]] = {}
        self._producers_of: dict[ClientConnection, set[tuple[str, str]]] = {}
        """The pairs of group and client id that a connection has registered."""
        self._producer_shares = AccountShares("PRODUCERS_MAX", PRODUCERS_MAX)
        self._beats: dict[ClientConnection, _Beat] = {}
        """The last heartbeat of each connection."""
        self._beat_bytes = AccountShares("BEATS_BYTES_MAX", BEATS_BYTES_MAX)
        service.groups.listen(self._changed)

    # ---- who there is

    def consumers(self, group: str) -> dict[str, Consumer]:
        """The group's members on this protocol, by client id."""
        return self._consumers.get(group, {})

    def producers(self, group: str) -> dict[str, ProducerClient]:
        return self._producers.get(group, {})

    def producer_groups(self) -> dict[str, dict[str, ProducerClient]]:
        return self._producers

    def producer_of(self, client_id: str) -> ProducerClient | None:
        """The producer with this client id, of whichever group."""
        found = (known.get(client_id) for known in self._producers.values())
        return next((each for each in found if each is not None), None)

    def subscription(
        self, connection: ClientConnection, group: str, topic: str
    ) -> Subscription | None:
        """What a group's member on this connection, or else any member, wants of a topic."""
        members = self.consumers(group)
        # Not by a walk over the members: each pull asks.
        registered = self._consumers_of.get(connection, ())
        mine = [members.get(client_id) for name, client_id in registered if name == group]
        own = [each for each in mine if each is not None and each.connection is connection]
        for each in own or members.values():
            for wanted in each.data.subscription_data_set:
                if wanted.topic == topic:
                    return filter_of(topic, wanted.sub_string, wanted.expression_type)
        if members and topic == retry_topic(group):
            return Subscription(topic)
        return None

    def client_id(self, connection: ClientConnection, group: str) -> str:
        """The id of a group's member on this connection; its address if there is none."""
        registered = self._consumers_of.get(connection, ())
        mine = (client_id for name, client_id in registered if name == group)
        return next(mine, connection.address)

    def popped(self, group: str, client_id: str) -> None:
        """A member has asked for popped messages."""
        member = self.consumers(group).get(client_id)
        if member is not None:
            member.pops = True

    # ---- requests

    @answers(codes.HEART_BEAT)
    async def heartbeat(self, call: Call[Nothing]) -> Command:
        """Register every group of a client; one that is refused does not keep out the others."""
        beat = await self._read(call)
        refused: RmqliteError | None = None
        connection, client_id = call.connection, beat.client_id
        if not connection.is_open:
            # It ended before its heartbeat was read: nobody would remove what it registers.
            return call.done()
        if _may_send(CALLER.get()):
            for producer in beat.producers:
                self._add_producer(connection, call.command, client_id, producer)
        # Some at once: their new groups are on disk after one write.
        for begin in range(0, len(beat.consumers), _AT_ONCE_MAX):
            some = beat.consumers[begin : begin + _AT_ONCE_MAX]
            ended = await asyncio.gather(*[self._join(call, *each) for each in some])
            refused = next((error for error in ended if error is not None), refused)
        self._remember(connection, beat)
        if refused is not None:
            raise refused
        return call.done()

    @answers(codes.UNREGISTER_CLIENT)
    async def unregister(self, call: Call[UnregisterClient]) -> Command:
        asked, connection = call.asked(), call.connection
        self._drop_producer(connection, asked.producer_group, asked.client_id)
        if self._drop_consumer(connection, asked.consumer_group, asked.client_id):
            # What it has popped and not acknowledged, others get now.
            await self._service[LeaseCalls].release(asked.consumer_group, asked.client_id)
        return call.done()

    @answers(codes.GET_CONSUMER_LIST_BY_GROUP)
    async def members(self, call: Call[OfGroup]) -> Command:
        """The members of every protocol, because all of them share the group's queues."""
        group = call.asked().consumer_group
        ids = [member.client_id for member in await self._service.groups.members(group)]
        if not ids:
            remark = f"no consumer for this group, {group}"
            raise CodeRefusal(ResponseCode.SYSTEM_ERROR, remark)
        return call.done(body=ConsumerIds(tuple(ids)))

    @answers(codes.CHECK_CLIENT_CONFIG)
    async def check(self, call: Call[Nothing]) -> Command:
        """May a consumer use this filter?  Java asks before it starts with SQL92."""
        asked = await read_large(ClientConfigCheck, call.command.body)
        data = asked.subscription_data
        wanted = filter_of(data.topic, data.sub_string, data.expression_type)
        await self._service.groups.check(HeartbeatRequest(asked.group, asked.client_id, (wanted,)))
        return call.done()

    def gone(self, connection: ClientConnection) -> None:
        """A connection has ended: its members leave at once, and the others get their queues."""
        self._forget_beat(connection)
        for group, client_id in tuple(self._producers_of.get(connection, ())):
            self._drop_producer(connection, group, client_id)
        for group, client_id in tuple(self._consumers_of.get(connection, ())):
            self._drop_consumer(connection, group, client_id)

    # ---- inside

    async def _read(self, call: Call[Nothing]) -> _Beat:
        """A heartbeat, as it was read before if only its versions differ.

        Java sends one for each topic whose queues it has taken over, with all its topics in it:
        to read a thousand times a thousand subscriptions would take half a minute.
        """
        body = call.command.body
        check_size(body)
        digest = blake2b(_VERSION.sub(b"", body), digest_size=16).digest()
        known = self._beats.get(call.connection)
        if known is None or known.digest != digest:
            beat = await read_large(Heartbeat, body)
            client_id = beat.client_id
            return _Beat(
                digest,
                len(body),
                client_id,
                tuple([each.group_name for each in beat.producer_data_set]),
                tuple([(each, _request(client_id, each)) for each in beat.consumer_data_set]),
            )
        return known

    def _remember(self, connection: ClientConnection, beat: _Beat) -> None:
        """Keep a heartbeat that has registered something, for the next one with its body."""
        is_registered = connection in self._consumers_of or connection in self._producers_of
        if self._beats.get(connection) is beat or not (connection.is_open and is_registered):
            return
        self._forget_beat(connection)
        account = account_of_caller()
        if not self._beat_bytes.refusal(account, beat.size):
            self._beat_bytes.add(account, beat.size)
            self._beats[connection] = beat._replace(account=account)

    def _forget_beat(self, connection: ClientConnection) -> None:
        beat = self._beats.pop(connection, None)
        if beat is not None:
            self._beat_bytes.add(beat.account, -beat.size)

    async def _join(
        self, call: Call[Nothing], data: ConsumerData, request: HeartbeatRequest
    ) -> RmqliteError | None:
        """Register a consumer of one group; why it is refused, if it is."""
        connection, group, client_id = call.connection, data.group_name, request.client_id
        before = self.consumers(group).get(client_id)
        try:
            # Who has no right enters no table, and takes nobody's place for a moment.
            await self._service.groups.check(request)
        except RmqliteError as error:
            return error
        # First, so that it is notified of its own arrival, as RocketMQ does it.
        language, version = _language(call.command), call.command.version
        pops = before is not None and before.pops
        if before is not None and before.connection is not connection and before.connection.is_open:
            self._service.groups.second_connection(group, client_id)
        self._add_consumer(Consumer(connection, client_id, data, language, version, pops))
        refused = None
        try:
            await self._service.groups.heartbeat(request, MemberKind.SHARES)
        except RmqliteError as error:
            refused = error
            self._forget(connection, group, client_id)
            if before is not None and before.connection.is_open:
                self._add_consumer(before)
        if not connection.is_open:
            self._drop_consumer(connection, group, client_id)
        return refused

    def _changed(self, group: str) -> None:
        """The members of a group, or its queues, have changed: notify its members here."""
        for consumer in self.consumers(group).values():
            consumer.connection.notify(codes.NOTIFY_CONSUMER_IDS_CHANGED, OfGroup(group))

    def _add_producer(
        self, connection: ClientConnection, command: Command, client_id: str, group: str
    ) -> None:
        account, known = account_of_caller(), self.producers(group).get(client_id)
        if known is not None:
            account = known.account
        elif self._producer_shares.refusal(account):
            log.warning("a producer is not remembered, there are too many group=%s", group)
            return
        else:
            self._producer_shares.add(account)
        self._producers.setdefault(group, {})[client_id] = ProducerClient(
            connection,
            client_id,
            _language(command),
            command.version,
            self._service.clock.now_ms(),
            account,
        )
        self._producers_of.setdefault(connection, set()).add((group, client_id))

    def _drop_producer(self, connection: ClientConnection, group: str, client_id: str) -> None:
        _discard(self._producers_of, connection, (group, client_id))
        known = self._producers.get(group, {})
        producer = known.get(client_id)
        if producer is not None and producer.connection is connection:
            del known[client_id]
            self._producer_shares.add(producer.account, -1)
            if not known:
                del self._producers[group]

    def _add_consumer(self, consumer: Consumer) -> None:
        group, client_id = consumer.data.group_name, consumer.client_id
        self._consumers_of.setdefault(consumer.connection, set()).add((group, client_id))
        self._consumers.setdefault(group, {})[client_id] = consumer

    def _drop_consumer(self, connection: ClientConnection, group: str, client_id: str) -> bool:
        """The member leaves, unless it has come back on another connection.  Has it left?"""
        _discard(self._consumers_of, connection, (group, client_id))
        consumer = self.consumers(group).get(client_id)
        if consumer is None or consumer.connection is not connection:
            return False
        self._forget(connection, group, client_id)
        self._service.groups.left(LeaveRequest(group, client_id))
        return True

    def _forget(self, connection: ClientConnection, group: str, client_id: str) -> None:
        _discard(self._consumers_of, connection, (group, client_id))
        members = self._consumers.get(group, {})
        members.pop(client_id, None)
        if not members:
            self._consumers.pop(group, None)


def _discard(
    pairs_of: dict[ClientConnection, set[tuple[str, str]]],
    connection: ClientConnection,
    pair: tuple[str, str],
) -> None:
    pairs = pairs_of.get(connection)
    if pairs is not None:
        pairs.discard(pair)
        if not pairs:
            del pairs_of[connection]


def _language(command: Command) -> str:
    return command.language[:LANGUAGE_CHARS_MAX]


def _request(client_id: str, data: ConsumerData) -> HeartbeatRequest:
    return HeartbeatRequest(
        data.group_name,
        client_id,
        tuple(_subscriptions(data)),
        is_broadcasting=data.message_model is MessageModel.BROADCASTING,
    )


def _subscriptions(data: ConsumerData) -> Iterator[Subscription]:
    """What a member reads, without its retry topic, which every member of a group reads."""
    seen = {retry_topic(data.group_name)}
    for each in data.subscription_data_set:
        if each.topic not in seen:
            seen.add(each.topic)
            yield filter_of(each.topic, each.sub_string, each.expression_type)


def filter_of(topic: str, text: str, kind: str) -> Subscription:
    """What a consumer wants of a topic.  Retries come unfiltered.  Raises InvalidValue."""
    if kind == SQL92:
        return Subscription(topic) if is_retry(topic) else Subscription(topic, sql=text)
    if kind not in ("", TAG):
        raise InvalidValue("expressionType", kind, f"{TAG} or {SQL92}")
    return Subscription(topic, text)


def _may_send(caller: Caller | None) -> bool:
    """Is there any topic that this caller may send to?

    A producer is remembered only then: it names its group, which belongs to no account.
    """
    return caller is None or caller.account is None or caller.account.sends_somewhere()
