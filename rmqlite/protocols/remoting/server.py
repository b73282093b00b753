"""The ports of RocketMQ 4.x: the broker's, its VIP port, and the name server's.

All three answer the same requests: one process is the whole cluster.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.protocol_server import Running, bound_socket, taking
from rmqlite.kernel.words.message import host_text
from rmqlite.protocols.remoting.calls import Calls, RemotingGuard, handlers_of
from rmqlite.protocols.remoting.connection import Connections
from rmqlite.protocols.remoting.registry import MASTER, STANDBY, Registrant, Registry
from rmqlite.protocols.remoting.requests.broker import Figures, SettingRequests
from rmqlite.protocols.remoting.requests.clients import RemotingClients
from rmqlite.protocols.remoting.requests.groups import Groups, OffsetRequests, Queues
from rmqlite.protocols.remoting.requests.messages import Messages, TransactionRequests
from rmqlite.protocols.remoting.requests.name_server import (
    KeyValueRequests,
    NameServer,
    RegistrationRequests,
)
from rmqlite.protocols.remoting.requests.pop import Modes, Pops
from rmqlite.protocols.remoting.requests.relays import ConnectionLists, Relays
from rmqlite.protocols.remoting.requests.sends import SENDS, Recalls, Replies, SendRequests
from rmqlite.protocols.remoting.requests.topics import Topics
from rmqlite.protocols.shared.tls import Listening, TlsKeys, listen

IDLE_S: Final = 120.0
"""A connection without any frame for so long is closed."""
LOOK_S: Final = 10.0
VIP_BELOW: Final = 2
"""Java's vipChannelEnabled takes the broker's port less two."""

log = logging.getLogger(__name__)


class RemotingServer:
    """The ports for RocketMQ's own clients."""

    def __init__(self, config: BrokerConfig, keys: TlsKeys | None = None) -> None:
        self._config = config
        self._keys = keys
        self._sockets: list[socket.socket] = []
        self._servers: list[Listening] = []
        self._connections: Connections | None = None
        self._calls: Calls | None = None
        self._sends: SendRequests | None = None
        self._registry: Registry | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.port = 0
        """The broker's port that bind() took; the system chooses it if listenPort is 0."""
        self.name_server_port = 0

    async def bind(self) -> None:
        config, address = self._config, self._config.bind_address

        def take(port: int) -> int:
            self._sockets.append(bound_socket(address, port))
            taken: int = self._sockets[-1].getsockname()[1]
            return taken

        port, vip_port = config.listen_port, config.listen_port - VIP_BELOW
        with taking("listenPort", port, address):
            self.port = take(port)
        if vip_port > 0:
            rule = f"a port whose VIP port, {vip_port}, is free, too,"
            with taking("listenPort", port, address, rule):
                take(vip_port)
        with taking("nameServerPort", config.name_server_port, address):
            self.name_server_port = take(config.name_server_port)

    async def open(self, running: Running) -> None:
        config = self._config.model_copy(update={"listen_port": self.port})
        service, name = running.service, config.broker_name
        clients = RemotingClients(service)
        address = host_text(config.broker_ip, config.listen_port)
        ha = host_text(config.broker_ip, config.ha_listen_port) if config.ha_listen_port else ""
        broker_id = STANDBY if config.broker_role == "SLAVE" else MASTER
        own = Registrant(name, config.cluster_name, broker_id, address, ha)
        registry = self._registry = Registry(own, service.clock.now_ms)
        service.registered = registry.rows
        self._sends = SendRequests(config, service)
        messages = Messages(config, service, clients)
        handlers = handlers_of(
            clients,
            messages,
            Modes(name, service, registry),
            Pops(config, service, clients),
            Queues(service),
            Recalls(service),
            TransactionRequests(service, clients),
            Replies(config, service, clients, self._sends),
            NameServer(config, service, own, registry),
            KeyValueRequests(service),
            RegistrationRequests(config, service, registry),
            Topics(name, service, clients),
            Groups(service),
            ConnectionLists(service, clients),
            OffsetRequests(name, address, service),
            Figures(config, service),
            SettingRequests(service),
            Relays(name, service, clients),
        )
        sends, guard = dict.fromkeys(SENDS, self._sends), RemotingGuard(service.access)
        gone = clients.gone, registry.ended
        self._calls = Calls(handlers, sends, messages.at_once(), guard, service.limits, gone)
        here = "this is a port of RocketMQ's remoting protocol"
        self._connections = Connections(
            self._calls,
            config.connections_max,
            config.in_flight_bytes_max,
            f"{here}, rmqlite.v1 is on grpcPort={running.config.grpc_port}",
        )
        self._tasks.append(running.tasks.create_task(self._close_idle(), name="idle connections"))
        for bound in self._sockets:
            self._servers.append(await listen(bound, self._connections.made, self._keys))

    @property
    def ports(self) -> dict[str, int]:
        return {"listen_port": self.port, "name_server_port": self.name_server_port}

    @property
    def is_listening(self) -> bool:
        return all(each.is_open for each in self._servers)

    async def drain(self) -> None:
        """Take no new connections, answer what has come, then close."""
        assert self._calls is not None
        assert self._sends is not None
        assert self._connections is not None
        for server in self._servers:
            server.close()
        # A pull that is answered now would be followed by the next one at once.
        self._connections.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.drain_ms_max / 1000):
                while running := self._calls.running:
                    await asyncio.wait(running)
                await self._sends.all_answered.wait()
        for connection in tuple(self._connections.open):
            connection.close()
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for bound in self._sockets:
            bound.close()
        if self._connections is not None:
            for connection in tuple(self._connections.open):
                connection.abort()

    async def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            assert self._connections is not None
            assert self._registry is not None
            self._registry.expire()
            for connection in tuple(self._connections.open):
                if loop.time() - connection.last_seen_s > IDLE_S:
                    log.info("an idle connection is closed client=%s", connection.address)
                    # A client that does not read would keep it open until it does.
                    connection.abort()
