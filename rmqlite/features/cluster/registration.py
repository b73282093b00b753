"""Keeps this broker registered at each name server of namesrvAddr.

Each name server has a task and a connection of its own, so one that is away, hangs or sends what is
no answer concerns no other.  The broker registers when it connects, at each interval of
registerNameServerPeriod, and soon after its topics change.

A name server forgets a broker when its connection closes, but RocketMQ's never forget a single
topic: so after a deletion the broker leaves and registers again at once (cluster reference §1.4).

Of two brokers with one log the master has id 0, and the standby has id 1, so that clients know its
address before it is the master.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Final, NamedTuple

from rmqlite.features.cluster.addresses import (
    broker_address,
    check_reachable,
    ha_address,
    host_and_port,
    other_name_servers,
)
from rmqlite.features.cluster.link import Connecting, Link, NameServerRefusal
from rmqlite.features.cluster.table import EncodedTopics, RegisteredTable
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.protocol_server import Neighbours
from rmqlite.kernel.requests.broker import NameServerStatus
from rmqlite.kernel.tables.topics import READ
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import ConfigInvalid, InvalidValue
from rmqlite.kernel.words.message import host_text
from rmqlite.protocols.remoting.bytes.fields import FieldError, Nothing
from rmqlite.protocols.remoting.bytes.requests import name_server as codes
from rmqlite.protocols.remoting.bytes.requests.name_server import (
    BrokerAtName,
    ClusterInfo,
    RegistrationFields,
    RouteBody,
    RouteQuery,
)
from rmqlite.protocols.remoting.calls import read_large
from rmqlite.protocols.remoting.connection import NotAnswered

PAUSE_S: Final = 0.2
"""The pause before the second attempt to connect; each further one is twice as long."""
PAUSE_S_MAX: Final = 5.0
GATHER_S: Final = 0.1
"""Changes of topics within this time are registered together."""
LEAVE_S: Final = 1.0
ROUTE_S: Final = 1.0
"""The client that waits for the route gives up after 3 seconds."""
_MASTER: Final = 0
_STANDBY: Final = 1
_FAILURES: Final = (
    OSError,
    NotAnswered,
    NameServerRefusal,
    FieldError,
    ConfigInvalid,
    InvalidValue,
)
"""Of a name server or its connection; the task tries again."""

log = logging.getLogger(__name__)


class Peer(NamedTuple):
    """The broker that has the same log, and the same name; host: empty if there is none.

    was_master: this one has taken its place, and it has not come back yet.
    """

    host: str = ""
    was_master: bool = False


class _NameServer:
    """One name server.  is_changed: the topics have changed since they were sent to it."""

    def __init__(self, address: str) -> None:
        self.host, self.port = host_and_port(address)
        self.is_changed = asyncio.Event()
        self.link: Link | None = None
        self.topics: frozenset[str] = frozenset()
        """The names that it has of this broker."""
        self.status = NameServerStatus(address)


class Registering(Neighbours):
    """All name servers of one broker."""

    def __init__(self, connecting: Connecting, peer: Peer | None = None) -> None:
        self._connecting = connecting
        self._peer = peer or Peer()
        self._servers: list[_NameServer] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def check(self, config: BrokerConfig) -> None:
        addresses = map(host_and_port, other_name_servers(config))
        checks = [self._check_at(config, host, port) for host, port in addresses]
        await asyncio.gather(*checks)

    def meet(self, config: BrokerConfig, broker: Broker, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._table = RegisteredTable(config, broker)
        self._servers = [_NameServer(each) for each in other_name_servers(config)]
        broker.topics.on_change.append(lambda _topic: self.changed())

    def statuses(self) -> tuple[NameServerStatus, ...]:
        return tuple([server.status for server in self._servers])

    async def queues_of(self, topic: str) -> dict[str, int] | None:
        for server in self._servers:
            if server.link is None or not server.status.is_registered:
                continue
            try:
                query = RouteQuery(topic, is_strict=True)
                answer = await server.link.ask(codes.GET_ROUTEINFO_BY_TOPIC, query, seconds=ROUTE_S)
                route = await read_large(RouteBody, answer.body)
            except NameServerRefusal:
                # No broker has registered the topic yet.
                return {}
            except (NotAnswered, FieldError):
                continue
            return {
                each.broker_name: each.read_queue_nums
                for each in route.queue_datas
                if each.perm & READ and each.broker_name != self._config.broker_name
            }
        return None if self._servers else {}

    def changed(self) -> None:
        for server in self._servers:
            server.is_changed.set()

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = [
            tasks.create_task(self._keep(server), name=f"name server {server.status.address}")
            for server in self._servers
        ]

    async def close(self) -> None:
        # With a peer the end of the connection must do: to unregister would remove whoever has the
        # id by now, at RocketMQ's name servers.
        if not self._peer.host:
            await asyncio.gather(*map(self._leave, self._servers), return_exceptions=True)
        for task in self._tasks:
            task.cancel()

    async def _keep(self, server: _NameServer) -> None:
        pause_s = PAUSE_S
        while True:
            try:
                server.link = await self._connecting.connect(server.host, server.port)
                try:
                    await self._stay(server, server.link)
                finally:
                    server.link.close()
            except _FAILURES as error:
                if server.status.is_registered:
                    pause_s = PAUSE_S
                self._failed(server, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _stay(self, server: _NameServer, link: Link) -> None:
        """Register on this connection until it ends, which raises one of _FAILURES."""
        server.topics = frozenset()
        await self._take_name(link)
        while True:
            server.is_changed.clear()
            await self._register(server, link, await self._table.encoded())
            await check_name(self._config, link)
            await self._changed_or_due(server, link)

    async def _register(self, server: _NameServer, link: Link, table: EncodedTopics) -> None:
        config = self._config
        if server.topics - table.topics:
            await link.ask(codes.UNREGISTER_BROKER, _own(config))
        fields = RegistrationFields(
            config.broker_name,
            broker_address(config),
            config.cluster_name,
            ha_address(config),
            _id_of(config),
            config.compressed_register,
            table.crc,
        )
        await link.ask(codes.REGISTER_BROKER, fields, table.body)
        server.topics = table.topics
        now_ms, before = self._clock.now_ms(), server.status
        if not before.is_registered:
            log.info(
                "registered at a name server address=%s topics=%d",
                before.address,
                len(table.topics),
            )
        server.status = NameServerStatus(
            before.address,
            is_registered=True,
            since_ms=before.since_ms if before.is_registered else now_ms,
            registered_at_ms=now_ms,
            topics=len(table.topics),
        )

    async def _changed_or_due(self, server: _NameServer, link: Link) -> None:
        """Return at a change or after the interval.  Raises NotAnswered if the link has ended."""
        waits = [asyncio.ensure_future(event.wait()) for event in (server.is_changed, link.ended)]
        try:
            await asyncio.wait(
                waits,
                timeout=self._config.register_period_ms / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for each in waits:
                each.cancel()
        if link.ended.is_set():
            raise NotAnswered(link.reason)
        if server.is_changed.is_set():
            await asyncio.sleep(GATHER_S)

    def _failed(self, server: _NameServer, error: Exception) -> None:
        before, reason = server.status, str(error) or "it does not answer"
        if before.is_registered or not before.reason:
            log.warning(
                "not registered at a name server, will be tried again address=%s reason=%s",
                before.address,
                reason,
            )
        since_ms = before.since_ms
        if before.is_registered or not since_ms:
            since_ms = self._clock.now_ms()
        server.status = replace(before, is_registered=False, since_ms=since_ms, reason=reason)

    async def _leave(self, server: _NameServer) -> None:
        if server.link is not None and server.status.is_registered:
            await server.link.ask(codes.UNREGISTER_BROKER, _own(self._config), seconds=LEAVE_S)

    async def _check_at(self, config: BrokerConfig, host: str, port: int) -> None:
        try:
            link = await self._connecting.connect(host, port)
            try:
                other = await _master_beside(config, link)
                # Which of the two is the master is found out when this one runs.
                if other and not await self._is_peer(other):
                    raise _doubled(config, link, other)
            finally:
                link.close()
        except InvalidValue:
            raise
        except _FAILURES as error:
            log.info(
                "a name server does not answer yet address=%s reason=%s",
                host_text(host, port),
                error,
            )

    async def _take_name(self, link: Link) -> None:
        """Remove a lost master whose place this broker has taken, or raise as check_name() does.

        A name server may take it for alive for 120 s if its machine is gone without a word.
        """
        config = self._config
        other = await _master_beside(config, link)
        if other and self._peer.was_master and await self._is_peer(other):
            lost = BrokerAtName(config.broker_name, other, config.cluster_name, _MASTER)
            await link.ask(codes.UNREGISTER_BROKER, lost)
        elif other:
            raise _doubled(config, link, other)

    async def _is_peer(self, address: str) -> bool:
        host, peer = host_and_port(address)[0], self._peer.host
        if not peer or host == peer:
            return host == peer
        loop = asyncio.get_running_loop()
        try:
            found = [await loop.getaddrinfo(each, None) for each in (host, peer)]
        except OSError:
            return False
        one, other = [{each[4][0] for each in addresses} for addresses in found]
        return bool(one & other)


async def check_name(config: BrokerConfig, link: Link) -> None:
    """Raises InvalidValue if another broker has this one's name, or clients could not reach it."""
    other = await _master_beside(config, link)
    if other:
        raise _doubled(config, link, other)


async def _master_beside(config: BrokerConfig, link: Link) -> str:
    """Who else is registered as the master of this one's name; a standby has one, so that is none.

    Raises InvalidValue if clients could not reach this broker.
    """
    check_reachable(config, link.peer_host)
    answer = await link.ask(codes.GET_BROKER_CLUSTER_INFO, Nothing())
    brokers = (await read_large(ClusterInfo, answer.body)).broker_addr_table
    known = brokers.get(config.broker_name)
    other = "" if known is None else known.broker_addrs.get(_MASTER, "")
    return "" if other == broker_address(config) or _id_of(config) != _MASTER else other


def _doubled(config: BrokerConfig, link: Link, other: str) -> InvalidValue:
    own = broker_address(config)
    rule = f"a name of its own: at {link.name} {other} has it, this broker is {own}"
    return InvalidValue("brokerName", config.broker_name, rule)


def _id_of(config: BrokerConfig) -> int:
    return _STANDBY if config.broker_role == "SLAVE" else _MASTER


def _own(config: BrokerConfig) -> BrokerAtName:
    address, broker_id = broker_address(config), _id_of(config)
    return BrokerAtName(config.broker_name, address, config.cluster_name, broker_id)
