"""Which address a client gets for those that it has named.

A client may name both brokers that have one log.  It connects to any of them, also to the standby:
Java's and Python's keep no order.  So of several addresses only the master's is answered; when that
is lost, a client asks one of those that it has named for a route again, within 30 seconds.  Node's
takes one address, and names it also to the master when it is the standby's.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from rmqlite.kernel.words.message import host_text
from rmqlite.protocols.rocketmq_v2.bytes.codes import Code, broken
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition

ENDPOINTS_BYTES_MAX: Final = 1_024
"""The addresses of a request, which the answer repeats for each of up to a thousand queues."""


def answered_endpoints(
    asked: definition.Endpoints, host: str, port: int, standby: str
) -> definition.Endpoints:
    """Those of a request, with a scheme; the broker's own if one is its own, or its standby's.

    host, port: the broker's own.  standby: HOST:PORT, or empty.  Raises Refusal.
    """
    check_endpoints(asked)
    ours = {host_text(host, port), standby}
    if not asked.addresses or ours & {host_text(each.host, each.port) for each in asked.addresses}:
        return one_endpoint(host, port)
    if asked.scheme in (definition.IPv4, definition.IPv6, definition.DOMAIN_NAME):
        return asked
    scheme = _scheme_of(asked.addresses[0].host)
    return definition.Endpoints(scheme=scheme, addresses=asked.addresses)


def check_endpoints(asked: definition.Endpoints) -> None:
    """Raises Refusal for more than an answer has room for."""
    if asked.ByteSize() > ENDPOINTS_BYTES_MAX:
        rule = f"at most {ENDPOINTS_BYTES_MAX} bytes"
        raise broken(Code.ILLEGAL_ACCESS_POINT, "endpoints", f"{asked.ByteSize()} bytes", rule)


def one_endpoint(host: str, port: int) -> definition.Endpoints:
    address = definition.Address(host=host, port=port)
    return definition.Endpoints(scheme=_scheme_of(host), addresses=[address])


def _scheme_of(host: str) -> definition.AddressScheme:
    try:
        version = ip_address(host).version
    except ValueError:
        return definition.DOMAIN_NAME
    return definition.IPv4 if version == 4 else definition.IPv6
