"""All parts of the face that answer tools."""

from __future__ import annotations

from rmqlite.config import BrokerConfig
from rmqlite.message import host_text
from rmqlite.server.faces.remoting.administration.connections import ConnectionLists
from rmqlite.server.faces.remoting.administration.figures import Figures
from rmqlite.server.faces.remoting.administration.groups import Groups
from rmqlite.server.faces.remoting.administration.offsets import Offsets
from rmqlite.server.faces.remoting.administration.relays import Relays
from rmqlite.server.faces.remoting.administration.settings import Settings
from rmqlite.server.faces.remoting.administration.topics import Topics
from rmqlite.server.faces.remoting.calls import Answering
from rmqlite.server.faces.remoting.clients import Clients
from rmqlite.server.front.front import Front


def administration_parts(
    config: BrokerConfig, front: Front, clients: Clients
) -> tuple[Answering, ...]:
    name = config.broker_name
    return (
        Topics(name, front, clients),
        Groups(front),
        ConnectionLists(front, clients),
        Offsets(name, host_text(config.broker_ip, config.listen_port), front),
        Figures(config, front),
        Settings(front),
        Relays(name, front, clients),
    )
