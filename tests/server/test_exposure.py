"""The broker warns at each start of ports that other machines can reach."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from rmqlite.server.exposure import is_loopback, warn_of_open_ports
from tests.support.brokers import small_config

NOBODY_ASKS = "there is no authentication and no TLS"


def warnings(
    folder: Path, caplog: pytest.LogCaptureFixture, **changes: Any
) -> list[tuple[str, str]]:
    caplog.set_level(logging.INFO)
    warn_of_open_ports(small_config(folder, **changes))
    return [(each.levelname, each.getMessage()) for each in caplog.records]


def test_a_broker_on_loopback_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The default addresses, with all ports open."""
    assert warnings(tmp_path, caplog, metrics_port=9870, web_port=8080, web_access="write") == []


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_broker_that_others_can_reach_says_what_they_can_do(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One sentence for each port on the same address."""
    assert warnings(tmp_path, caplog, bind_address=address, metrics_port=9870) == [
        *(
            (
                "WARNING",
                f"anyone who reaches bindAddress={address} {port} can send, read, purge and"
                f" reconfigure everything: {NOBODY_ASKS}",
            )
            for port in ("listenPort=10911", "nameServerPort=9876", "grpcPort=8081")
        ),
        (
            "WARNING",
            f"anyone who reaches bindAddress={address} metricsPort=9870 can read the metrics:"
            f" {NOBODY_ASKS}",
        ),
    ]


@pytest.mark.parametrize(
    ("access", "can"),
    [("read", "see every message"), ("write", "see every message, cancel, redrive and purge")],
)
def test_a_web_page_that_others_can_reach_says_what_they_can_do(
    access: str, can: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The page has an address key of its own."""
    (told,) = warnings(
        tmp_path,
        caplog,
        web_address="0.0.0.0",
        web_port=8080,
        web_access=access,
    )
    sentence = f"anyone who reaches webAddress=0.0.0.0 webPort=8080 can {can}: {NOBODY_ASKS}"
    assert told == ("WARNING", sentence)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_known_in_all_its_spellings(address: str) -> None:
    """After a warning without cause, operators ignore the next one."""
    assert is_loopback(address)


def test_a_name_that_nobody_knows_is_no_loopback() -> None:
    """Binding it fails with an error of its own."""
    assert not is_loopback("no-such-host.invalid")
