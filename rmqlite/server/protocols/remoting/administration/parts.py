"""All parts of the protocol that answer tools."""

from __future__ import annotations

from rmqlite.config import BrokerConfig
from rmqlite.message import host_text
from rmqlite.server.protocols.remoting.administration.connections import ConnectionLists
from rmqlite.server.protocols.remoting.administration.figures import Figures
from rmqlite.server.protocols.remoting.administration.groups import Groups
from rmqlite.server.protocols.remoting.administration.offsets import Offsets
from rmqlite.server.protocols.remoting.administration.relays import Relays
from rmqlite.server.protocols.remoting.administration.settings import Settings
from rmqlite.server.protocols.remoting.administration.topics import Topics
from rmqlite.server.protocols.remoting.calls import Answering
from rmqlite.server.protocols.remoting.clients import Clients
from rmqlite.server.service.service import Service


def administration_parts(
    config: BrokerConfig, service: Service, clients: Clients
) -> tuple[Answering, ...]:
    name = config.broker_name
    return (
        Topics(name, service, clients),
        Groups(service),
        ConnectionLists(service, clients),
        Offsets(name, host_text(config.broker_ip, config.listen_port), service),
        Figures(config, service),
        Settings(service),
        Relays(name, service, clients),
    )
