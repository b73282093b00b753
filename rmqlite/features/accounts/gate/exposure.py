"""Ports that other machines can reach and that do not authenticate their callers.

A broker refuses to listen on such an address until an operator has allowed it by name; then it
says so at each start, in rmqlite status and on the web page.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from typing import Final, NamedTuple

from rmqlite.kernel.config.config import KEYS, BrokerConfig

_RULE: Final = (
    f"a loopback address, such as 127.0.0.1, unless {KEYS['allow_unauthenticated']}=true:"
    " without accounts, anyone who reaches a port can use it"
)
_ENFORCING: Final = f"{KEYS['tls_mode']}=enforcing"
_WEB: Final = {
    "read": "see every message",
    "write": "see every message, cancel, redrive and purge",
}


class _Listener(NamedTuple):
    """address, ports: names of attributes of the configuration; can: what its callers can do."""

    address: str
    ports: tuple[str, ...]
    can: str


def check_exposure(config: BrokerConfig) -> None:
    """Raises ConfigInvalid for an address that others can reach and nobody has allowed."""
    if config.allow_unauthenticated:
        return
    for listener in _listeners(config):
        if not is_loopback(getattr(config, listener.address)):
            raise config.refusal(listener.address, _RULE)


def open_ports(config: BrokerConfig) -> tuple[str, ...]:
    """A sentence for each address that others can reach: what they can do or see there."""
    sentences = []
    for name, ports, can in _listeners(config):
        address = getattr(config, name)
        if not is_loopback(address):
            keys = ", ".join([f"{KEYS[port]}={getattr(config, port)}" for port in ports])
            who = f"anyone who reaches {KEYS[name]}={address} ({keys})"
            sentences.append(f"{who} can {can}: it asks for no account")
    address = config.web_address
    logs_in = config.acl_enabled and config.web_port and config.tls_mode != "enforcing"
    if logs_in and not is_loopback(address):
        page = f"{KEYS['web_address']}={address} ({KEYS['web_port']}={config.web_port})"
        sentences.append(f"log-ins at {page} send their secrets as plain text: set {_ENFORCING}")
    return tuple(sentences)


def is_loopback(address: str) -> bool:
    """Can only this machine reach this address?  A name must resolve to loopback addresses only."""
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(address, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)


def _listeners(config: BrokerConfig) -> Iterator[_Listener]:
    if not config.acl_enabled:
        broker = ("listen_port", "name_server_port", "grpc_port")
        yield _Listener("bind_address", broker, "send, read, purge and reconfigure everything")
    if config.ha_listen_port:
        yield _Listener("bind_address", ("ha_listen_port",), "read every message as a slave")
    # A client certificate is as good as a token, if there is no way around it.
    shows = config.tls_mode == "enforcing" and config.tls_client_auth == "require"
    if config.metrics_port and config.metrics_token_file is None and not shows:
        yield _Listener("bind_address", ("metrics_port",), "read the metrics")
    if config.web_port and not config.acl_enabled:
        yield _Listener("web_address", ("web_port",), _WEB[config.web_access])
