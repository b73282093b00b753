"""A broker listens where only this machine reaches it, or says at each start who else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqlite.features.accounts.gate.exposure import check_exposure, is_loopback, open_ports
from rmqlite.kernel.words.errors import ConfigInvalid
from tests.support.brokers import small_config

NOBODY_ASKS = "it asks for no account"
ALL = {"metrics_port": 9870, "web_port": 8080, "web_access": "write"}


def test_a_broker_on_loopback_says_nothing(tmp_path: Path) -> None:
    """The default addresses, with all ports open."""
    config = small_config(tmp_path, **ALL)
    check_exposure(config)
    assert open_ports(config) == ()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "no-such-host.invalid"])
@pytest.mark.parametrize("key", ["bind_address", "web_address"])
def test_another_address_needs_the_operators_word(key: str, address: str, tmp_path: Path) -> None:
    """The error names the key that allows it; the ports that stay closed do not count."""
    config = small_config(tmp_path, **ALL, **{key: address})
    with pytest.raises(ConfigInvalid, match=r"Address='.*': a loopback .* allowUnauthenticated"):
        check_exposure(config)
    check_exposure(config.model_copy(update={"allow_unauthenticated": True}))
    check_exposure(small_config(tmp_path, web_port=0, web_address=address))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_broker_that_others_can_reach_says_what_they_can_do(address: str, tmp_path: Path) -> None:
    """One sentence for what they can do."""
    config = small_config(tmp_path, bind_address=address, metrics_port=9870)
    assert open_ports(config) == (
        f"anyone who reaches bindAddress={address} (listenPort=10911, nameServerPort=9876,"
        f" grpcPort=8081) can send, read, purge and reconfigure everything: {NOBODY_ASKS}",
        f"anyone who reaches bindAddress={address} (metricsPort=9870) can read the metrics:"
        f" {NOBODY_ASKS}",
    )


@pytest.mark.parametrize(
    ("access", "can"),
    [("read", "see every message"), ("write", "see every message, cancel, redrive and purge")],
)
def test_a_web_page_that_others_can_reach_says_what_they_can_do(
    access: Any, can: str, tmp_path: Path
) -> None:
    """The page has an address key of its own."""
    config = small_config(tmp_path, web_address="0.0.0.0", web_port=8080, web_access=access)
    (told,) = open_ports(config)
    assert told == (
        f"anyone who reaches webAddress=0.0.0.0 (webPort=8080) can {can}: {NOBODY_ASKS}"
    )


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_known_in_all_its_spellings(address: str) -> None:
    """After a warning without cause, operators ignore the next one."""
    assert is_loopback(address)


def test_a_name_that_nobody_knows_is_no_loopback() -> None:
    """Binding it fails with an error of its own."""
    assert not is_loopback("no-such-host.invalid")


@pytest.mark.parametrize(
    "changes",
    [
        {"metrics_token_file": "token"},
        {"tls_mode": "enforcing", "tls_client_auth": "require"},
        {"bind_address": "127.0.0.1"},
    ],
)
def test_metrics_that_ask_for_a_token_or_a_certificate_may_be_reached(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """Beside accounts nothing else is open then."""
    given = {"bind_address": "0.0.0.0", "acl_enabled": True, "metrics_port": 9870}
    check_exposure(small_config(tmp_path, **(given | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tls_mode": "enforcing"},
        {"tls_mode": "permissive", "tls_client_auth": "require"},
    ],
)
def test_metrics_that_ask_for_nothing_need_the_operators_word(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """With permissive there is a way around the certificate."""
    given = {"bind_address": "0.0.0.0", "acl_enabled": True, "metrics_port": 9870}
    with pytest.raises(ConfigInvalid, match="allowUnauthenticated"):
        check_exposure(small_config(tmp_path, **(given | changes)))


@pytest.mark.parametrize(
    ("changes", "is_told"),
    [
        ({}, True),
        ({"tls_mode": "permissive"}, True),
        ({"tls_mode": "enforcing"}, False),
        ({"web_address": "127.0.0.1"}, False),
    ],
)
def test_log_ins_in_plain_text_are_told(
    changes: dict[str, Any], is_told: bool, tmp_path: Path
) -> None:
    """A page behind a proxy with TLS listens on loopback."""
    given = {"acl_enabled": True, "web_port": 8080, "web_address": "0.0.0.0"}
    told = open_ports(small_config(tmp_path, **(given | changes)))
    assert ["send their secrets as plain text" in each for each in told] == [True] * is_told
