"""Under which address other machines reach this broker, and whether they can."""

from __future__ import annotations

import ipaddress
import socket

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import host_text


def broker_address(config: BrokerConfig) -> str:
    """Where clients reach this broker."""
    return host_text(config.broker_ip, config.listen_port)


def ha_address(config: BrokerConfig) -> str:
    """Where RocketMQ's slaves reach its log; that of broker_address() means: nowhere."""
    has_log = config.ha_listen_port and config.broker_role != "SLAVE"
    return host_text(config.broker_ip, config.ha_listen_port if has_log else config.listen_port)


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of host:port, or of [IPv6 address]:port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def other_name_servers(config: BrokerConfig) -> list[str]:
    """Those of namesrvAddr without this broker's own, which needs no registration."""
    own = {config.broker_ip, "localhost", "127.0.0.1", "::1"}
    return [
        address
        for address in config.name_server_addresses
        if host_and_port(address)[1] != config.name_server_port
        or host_and_port(address)[0] not in own
    ]


def with_own_address(config: BrokerConfig) -> BrokerConfig:
    """If brokerIP1 is not set, it is the address from which this machine reaches a name server.

    Raises ConfigInvalid if no name server's address can be found out.
    """
    if not config.name_servers or "broker_ip" in config.model_fields_set:
        return config
    for address in config.name_server_addresses:
        ip = _source_address(*host_and_port(address))
        if ip:
            return config.model_copy(update={"broker_ip": ip})
    raise config.refusal("name_servers", "host:port with a host that is found, or set brokerIP1")


def check_reachable(config: BrokerConfig, name_server_host: str) -> None:
    """Raises InvalidValue if a name server on another machine would send clients to loopback."""
    if _is_loopback(name_server_host):
        return
    rule = f"an address that other machines reach, as the name server {name_server_host} is on one"
    for key, address in (("brokerIP1", config.broker_ip), ("bindAddress", config.bind_address)):
        if _is_loopback(address):
            raise InvalidValue(key, address, rule)


def _source_address(host: str, port: int) -> str:
    """The address that packets to this host come from; empty if the host is not found."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, peer = found[0]
        with socket.socket(family, kind, protocol) as probe:
            # Without a connection: this sends nothing.
            probe.connect(peer)
            return str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
