"""The broker as it is shipped: the kernel with every feature and every protocol."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from rmqlite.extras import check_extra
from rmqlite.features.accounts.file import AccountsFile
from rmqlite.features.accounts.gate.exposure import check_exposure, open_ports
from rmqlite.features.accounts.gate.limits import connections_max, limits_of
from rmqlite.features.cluster.addresses import with_own_address
from rmqlite.features.cluster.link import Connecting
from rmqlite.features.cluster.registration import Registering
from rmqlite.features.every import features
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.protocol_server import ProtocolServer
from rmqlite.kernel.process.serve import Assembly, Ready
from rmqlite.kernel.process.serve import serve as serve_assembly
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.words.clock import SystemClock
from rmqlite.protocols.grpc_server import GrpcServer, in_short_lines
from rmqlite.protocols.metrics import MetricsServer
from rmqlite.protocols.remoting.server import RemotingServer
from rmqlite.protocols.shared.tls import load_keys
from rmqlite.protocols.shared.watched import WatchedFiles
from rmqlite.web import web_server


def serve(
    config: BrokerConfig,
    on_ready: Ready | None = None,
    reload: Callable[[], BrokerConfig] | None = None,
    clock: SystemClock | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit code, as the kernel's serve() does."""
    logging.getLogger("rmqlite").setLevel(logging.INFO)
    with in_short_lines():
        return serve_assembly(assembled(config, clock or SystemClock()), on_ready, reload)


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
    ports: list[ProtocolServer] = [GrpcServer(bounded, keys), RemotingServer(bounded, keys)]
    if config.metrics_port:
        ports.append(MetricsServer(config, keys))
    if config.web_port:
        ports.append(web_server(config, keys))
    return Assembly(
        config=config,
        ports=ports,
        features=features(),
        access=access,
        limits=limits_of(config),
        watched=watched,
        neighbours=Registering(Connecting(config, access)),
        open_ports=open_ports(config),
        clock=clock,
    )
