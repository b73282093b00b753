"""Which address a client gets for those that it has named."""

from __future__ import annotations

import pytest

from rmqlite.protocols.rocketmq_v2.addresses import (
    ENDPOINTS_BYTES_MAX,
    answered_endpoints,
    check_endpoints,
)
from rmqlite.protocols.rocketmq_v2.bytes.codes import RocketmqRefusal
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import definition

OWN, STANDBY = ("10.0.0.1", 8081), ("10.0.0.2", 8081)


def named(*addresses: tuple[str, int], scheme: int = definition.IPv4) -> definition.Endpoints:
    return definition.Endpoints(
        scheme=scheme,  # type: ignore[arg-type]  # the stub's enum
        addresses=[definition.Address(host=host, port=port) for host, port in addresses],
    )


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (named(OWN), named(OWN)),
        (named(), named(OWN)),
        (named(STANDBY, OWN), named(OWN)),
        (named(STANDBY), named(OWN)),
        (named(("tunnel", 1), scheme=3), named(("tunnel", 1), scheme=3)),
        (named(("10.9.9.9", 1), scheme=0), named(("10.9.9.9", 1))),
    ],
    ids=["own", "none", "both", "the standby's", "a tunnel's", "no scheme"],
)
def test_a_client_that_knows_both_gets_the_masters_alone(
    asked: definition.Endpoints, answered: definition.Endpoints
) -> None:
    """Java's connects to any of several; whoever comes by a tunnel knows no other address."""
    found = answered_endpoints(asked, *OWN, "10.0.0.2:8081")
    assert found.addresses == answered.addresses
    assert found.scheme == {3: definition.DOMAIN_NAME}.get(asked.scheme, definition.IPv4)


def test_long_addresses_are_refused() -> None:
    """The answer repeats them for each queue."""
    with pytest.raises(RocketmqRefusal, match=f"{ENDPOINTS_BYTES_MAX} bytes"):
        check_endpoints(named(("h" * ENDPOINTS_BYTES_MAX, 1)))
