"""The official gRPC clients over TLS, with accounts: right and wrong keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.client import AdminClient, Credentials
from tests.conformance.conftest import live_broker
from tests.support.accounts import ADMIN, SECRET, signing
from tests.support.certificates import keys_of, made
from tests.support.grpc_clients import GrpcClient, on_each, running

ACCOUNTS = f"""\
accounts:
- accessKey: {ADMIN}
  secretKey: {SECRET}
  admin: true
- accessKey: the-client
  secretKey: {SECRET}
  topicPerms:
  - orders=PUB|SUB
  groupPerms:
  - readers=SUB
"""
UNAUTHORIZED, FORBIDDEN = "40100", "40300"
REFUSED = f"{UNAUTHORIZED}|{FORBIDDEN}|[Uu]nauthor|[Ff]orbidden|fetch topic"
"""The client for Python hides why it has no route."""


@pytest.fixture(scope="module", params=["1", pytest.param("0", marks=pytest.mark.long)])
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """The endpoint of a broker with accounts that speaks TLS only, and its CA.

    The parameters are how many gRPC workers it has.
    """
    folder = tmp_path_factory.mktemp("guarded-v2")
    keys, accounts = made(folder / "keys"), folder / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    settings = keys_of(keys, grpcWorkers=request.param) | {
        "aclEnable": "true",
        "aclFile": str(accounts),
    }
    with live_broker(folder / "broker", **settings) as broker:
        credentials = Credentials(ADMIN, SECRET, ca=(keys / "ca.pem").read_text())
        with AdminClient(
            f"tls://{broker.endpoint}", timeout_ms=60_000, credentials=credentials
        ) as admin:
            for topic in ("orders", "payments"):
                admin.create_topic(topic, 4)
        yield broker.endpoint, keys / "ca.pem"


def test_a_client_with_an_account_does_what_it_may(
    guarded: tuple[str, Path], tmp_path: Path
) -> None:
    """One after the other in their topic, and in no other one."""
    endpoint, ca = guarded
    tls = {"WITH_TLS": "1", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(ca)}

    def scenario(client: GrpcClient) -> None:
        key = f"from {client.name}"
        client.send("orders", key, tags=client.name)
        client.simple("readers", "orders", expression=client.name)
        client.receive_all("readers", key)
        client.ack("readers", key)
        client.stop("readers")
        with pytest.raises(AssertionError, match=REFUSED):
            client.send("payments", "not allowed")

    with running(endpoint, tmp_path, **tls, **signing("the-client")) as clients:
        # They are members of one group, which has one subscription.
        for client in clients:
            on_each([client], scenario)


@pytest.mark.long
def test_a_wrong_key_and_a_client_without_one_are_refused(
    guarded: tuple[str, Path], tmp_path: Path
) -> None:
    """Whoever they say they are."""
    endpoint, ca = guarded
    tls = {"WITH_TLS": "1", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(ca)}

    def scenario(client: GrpcClient) -> None:
        with pytest.raises(AssertionError, match=REFUSED):
            client.send("orders", "not signed")

    for account in (signing("the-client", "wrong"), {}):
        with running(endpoint, tmp_path, **tls, **account) as clients:
            on_each(clients, scenario)
