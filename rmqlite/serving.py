"""The broker as it is shipped: the kernel with every feature and every protocol."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rmqlite.extras import check_extra
from rmqlite.features.accounts.file import AccountsFile
from rmqlite.features.accounts.gate.exposure import check_exposure, open_ports
from rmqlite.features.accounts.gate.limits import connections_max, limits_of
from rmqlite.features.authority.feature import FEATURE as AUTHORITY
from rmqlite.features.authority.settings import check_authority
from rmqlite.features.authority.starting import starts_as_standby
from rmqlite.features.cluster.addresses import host_and_port, with_own_address
from rmqlite.features.cluster.link import Connecting
from rmqlite.features.cluster.registration import Peer, Registering
from rmqlite.features.every import features
from rmqlite.features.ha.rocketmq_copy import copied_store
from rmqlite.features.standby.feature import FEATURE as STANDBY
from rmqlite.features.standby.role import SLAVE, in_role, role_of
from rmqlite.features.standby.tails import cut_tail
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.protocol_server import ProtocolServer
from rmqlite.kernel.process.serve import EXIT_AGAIN, Assembly, Ready
from rmqlite.kernel.process.serve import serve as serve_assembly
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Loops, Service
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.clock import SystemClock
from rmqlite.protocols.grpc.library_log import in_short_lines
from rmqlite.protocols.grpc_server import GrpcServer
from rmqlite.protocols.metrics import MetricsServer
from rmqlite.protocols.remoting.server import RemotingServer
from rmqlite.protocols.shared.tls import load_keys
from rmqlite.protocols.shared.watched import WatchedFiles
from rmqlite.protocols.workers.port import GrpcWorkers
from rmqlite.web import web_server


def serve(
    config: BrokerConfig,
    on_ready: Ready | None = None,
    reload: Callable[[], BrokerConfig] | None = None,
    clock: SystemClock | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit code, as the kernel's serve() does."""
    logging.getLogger("rmqlite").setLevel(logging.INFO)
    code, clock = EXIT_AGAIN, clock or SystemClock()
    with in_short_lines():
        while code == EXIT_AGAIN:
            role = in_role(config)
            check_authority(role)
            assembly = assembled(role, clock)
            if starts_as_standby(role, assembly.access):
                role = in_role(config)
                assembly = assembled(role, clock)
            cut_tail(role)
            code = serve_assembly(assembly, on_ready, reload)
    return code


def _peer_of(config: BrokerConfig) -> Peer:
    address = config.master_address.removeprefix("tls://")
    host = host_and_port(address)[0] if address else ""
    return Peer(host, was_master=bool(role_of(config).alone_since_ms))


def _no_loops(_parts: ServiceParts, _service: Service) -> Loops:
    return {}


def assembled(config: BrokerConfig, clock: SystemClock) -> Assembly:
    """Raises ConfigInvalid, InvalidValue, ExtraMissing."""
    check_exposure(config)
    if config.archive_url:
        check_extra("archive")
    config = with_own_address(config)
    bounded = config.model_copy(update={"connections_max": connections_max(config)})
    access = Access()
    keys = load_keys(config)
    watched: list[WatchedFiles[Any]] = [keys] if keys else []
    if config.acl_enabled:
        watched.append(AccountsFile(config.acl_file, access))
        watched[-1].load()
    grpc_port = GrpcWorkers if config.grpc_workers else GrpcServer
    ports: list[ProtocolServer] = [grpc_port(bounded, keys), RemotingServer(bounded, keys)]
    if config.metrics_port:
        ports.append(MetricsServer(config, keys))
    if config.web_port:
        ports.append(web_server(config, keys))
    is_standby, made = config.broker_role == SLAVE, features()
    if is_standby:
        # The others know the store, and do nothing by themselves.
        own = STANDBY, AUTHORITY
        made = tuple(each if each in own else replace(each, loops=_no_loops) for each in made)
    return Assembly(
        config=config,
        ports=ports,
        features=made,
        access=access,
        limits=limits_of(config),
        watched=watched,
        neighbours=Registering(Connecting(config, access), _peer_of(config)),
        open_ports=open_ports(config),
        clock=clock,
        store=copied_store(config) if is_standby else MessageStore,
    )
