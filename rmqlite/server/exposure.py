"""Warns at each start of ports that other machines can reach: no port authenticates its callers."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Iterator
from typing import Final

from rmqlite.config import BrokerConfig

_WEB: Final = {
    "read": "see every message",
    "write": "see every message, cancel, redrive and purge",
}

log = logging.getLogger(__name__)


def warn_of_open_ports(config: BrokerConfig) -> None:
    """One warning for each port that listens on more than loopback."""
    for address_key, address, port_key, port, can in _ports(config):
        if port and not is_loopback(address):
            log.warning(
                "anyone who reaches %s=%s %s=%d can %s: there is no authentication and no TLS",
                address_key,
                address,
                port_key,
                port,
                can,
            )


def is_loopback(address: str) -> bool:
    """Can only this machine reach this address?  A name must resolve to loopback addresses only."""
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(address, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)


def _ports(config: BrokerConfig) -> Iterator[tuple[str, str, str, int, str]]:
    bind, web = ("bindAddress", config.bind_address), ("webAddress", config.web_address)
    every = "send, read, purge and reconfigure everything"
    yield *bind, "listenPort", config.listen_port, every
    yield *bind, "nameServerPort", config.name_server_port, every
    yield *bind, "grpcPort", config.grpc_port, every
    yield *bind, "metricsPort", config.metrics_port, "read the metrics"
    yield *web, "webPort", config.web_port, _WEB[config.web_access]
