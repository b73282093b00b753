"""The role of a broker: as broker.conf says, until somebody promotes, or hands over.

That is noted in config/replication.json, which counts while brokerRole and masterAddress of
broker.conf stay as they were then.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rmqlite.features.standby.table_shapes import ROLE_TABLE, RoleTable
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.store.disk.files import Files, SystemFiles
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.message import host_text

SLAVE: Final = "SLAVE"
TLS: Final = "tls://"
OPEN: Final = frozenset(
    {
        *("Service.status", "StandbyCalls.follow"),
        *("StandbyCalls.promote", "StandbyCalls.switch"),
        # Its name server goes on; order configurations are those of its start.
        *("KeyValueCalls.orders", "KeyValueCalls.order_of"),
    }
)
"""What a broker answers that is not the master."""
NAME_S: Final = 0.5
"""How long a switch waits for the address of a name."""
Name = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]


@dataclass(frozen=True, slots=True)
class BrokerRole:
    """master_address: of the broker that a standby follows.

    log_id: the id of the first term of the log that it copies; empty: it has nothing yet.
    alone_since_ms: since when a master has the only copy, 0: a standby has all.  cut_at: where the
    log ends at the next start, because the master's goes on otherwise; -1: where it does.
    """

    name: Name
    master_address: str = ""
    log_id: str = ""
    alone_since_ms: int = 0
    cut_at: int = -1


def role_of(config: BrokerConfig) -> BrokerRole:
    """The role in force.  Raises StoreDamaged."""
    own = config.broker_role, config.master_address
    known = tables.load_as(SystemFiles(), _path(config), RoleTable)
    if known is None or own not in (known.configured, (known.role, known.master_address)):
        return BrokerRole(*own)
    address, log_id = known.master_address, known.log_id
    return BrokerRole(known.role, address, log_id, known.alone_since_ms, known.cut_at)


def in_role(config: BrokerConfig) -> BrokerConfig:
    """The configuration with the role in force.  Raises StoreDamaged."""
    role = role_of(config)
    return config.model_copy(
        update={"broker_role": role.name, "master_address": role.master_address}
    )


def save_role(config: BrokerConfig, role: BrokerRole, files: Files | None = None) -> None:
    """Note the role from the next start on; it is on disk then.

    config: broker.conf's, or with the role in force.  Raises StoreUnavailable.
    """
    files = files or SystemFiles()
    own: tuple[str, str] = (config.broker_role, config.master_address)
    known = tables.load_as(files, _path(config), RoleTable)
    if known is not None and own == (known.role, known.master_address):
        own = known.configured
    tree = {
        "configured": own,
        "role": role.name,
        "masterAddress": role.master_address,
        "logId": role.log_id,
        "aloneSinceMs": role.alone_since_ms,
        "cutAt": role.cut_at,
    }
    files.replace(_path(config), tables.encode(tree))


async def save_role_aside(config: BrokerConfig, role: BrokerRole) -> None:
    """save_role() beside the loop: the disk may take long."""
    await asyncio.get_running_loop().run_in_executor(None, save_role, config, role)


def own_url(config: BrokerConfig) -> str:
    """Where another broker can follow this one, by TLS if this one follows by it."""
    port, is_tls = config.grpc_port, config.tls_mode == "enforcing"
    if config.grpc_tls_port and config.master_address.startswith(TLS):
        port, is_tls = config.grpc_tls_port, True
    return (TLS if is_tls else "") + host_text(config.broker_ip, port)


async def to_follow(config: BrokerConfig, url: str) -> str:
    """Where to follow the broker that says it is there: at masterAddress, if that is the same one.

    What is configured may be a name, and a certificate for the name alone.
    """
    host, _, port = config.master_address.removeprefix(TLS).rpartition(":")
    others_host, _, others_port = url.removeprefix(TLS).rpartition(":")
    with suppress(OSError, UnicodeError):
        async with asyncio.timeout(NAME_S):
            found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port)
        if (others_host.strip("[]"), others_port) in {(each[4][0], port) for each in found}:
            return config.master_address
    return url


def master_name(config: BrokerConfig) -> Name:
    """The role of this broker when it is the master."""
    return "SYNC_MASTER" if config.in_sync_replicas == 2 else "ASYNC_MASTER"


def _path(config: BrokerConfig) -> Path:
    return config.store_path / "config" / ROLE_TABLE
