"""Where a broker follows the one to which it has handed over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmqlite.features.standby.role import own_url, to_follow
from rmqlite.kernel.config.config import BrokerConfig
from tests.support.brokers import small_config

OTHER = "tls://127.0.0.1:8081"


def config_of(folder: Path, **keys: object) -> BrokerConfig:
    return small_config(folder, broker_ip="127.0.0.9", grpc_port=8081, **keys)


@pytest.mark.parametrize(
    ("known", "said", "followed"),
    [
        # A certificate may be for the name alone.
        ("tls://localhost:8081", OTHER, "tls://localhost:8081"),
        ("127.0.0.1:8081", "127.0.0.1:8081", "127.0.0.1:8081"),
        # What is configured is another one, which is gone: a third broker follows.
        ("tls://localhost:8082", OTHER, OTHER),
        ("tls://127.0.0.2:8081", OTHER, OTHER),
        ("tls://nobody.invalid:8081", OTHER, OTHER),
        ("", OTHER, OTHER),
    ],
)
def test_a_former_master_follows_as_it_is_configured(
    known: str, said: str, followed: str, tmp_path: Path
) -> None:
    """Without tls:// it would never reach a broker that takes TLS only."""
    config = config_of(tmp_path, master_address=known)
    assert asyncio.run(to_follow(config, said)) == followed


@pytest.mark.parametrize(
    ("mode", "tls_port", "master", "url"),
    [
        ("disabled", 0, "127.0.0.1:8081", "127.0.0.9:8081"),
        ("enforcing", 0, OTHER, "tls://127.0.0.9:8081"),
        ("permissive", 8091, OTHER, "tls://127.0.0.9:8091"),
        ("permissive", 8091, "127.0.0.1:8081", "127.0.0.9:8081"),
    ],
)
def test_a_standby_says_by_which_port_it_can_be_followed(
    mode: str, tls_port: int, master: str, url: str, tmp_path: Path
) -> None:
    """Two brokers are set up alike: by TLS, if that is how this one follows."""
    keys = {"tls_mode": mode, "grpc_tls_port": tls_port, "master_address": master}
    assert own_url(config_of(tmp_path, **keys)) == url
