"""RocketMQ's own clients with their own ACL hooks, against a broker with accounts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.client import AdminClient, Credentials
from rmqlite.testing import BrokerProcess
from tests.conformance.conftest import CLIENTS, live_broker
from tests.support.accounts import SECRET, signing
from tests.support.programs import Program

pytestmark = pytest.mark.xdist_group("accounts")

DENIED = "access denied|payments|orders"
"""Go says why, Java and C++ which message failed."""
UPDATE = "updateTopic -c DefaultCluster -t by-mqadmin"
ACCOUNTS = f"""\
accounts:
- accessKey: the-admin
  secretKey: {SECRET}
  admin: true
- accessKey: the-client
  secretKey: {SECRET}
  topicPerms:
  - orders=PUB|SUB
  groupPerms:
  - readers=SUB
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with the topic orders."""
    folder = tmp_path_factory.mktemp("guarded")
    accounts = folder / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    broker = live_broker(folder / "broker", aclEnable="true", aclFile=accounts)
    with broker as started:
        credentials = Credentials("the-admin", SECRET)
        with AdminClient(started.endpoint, timeout_ms=60_000, credentials=credentials) as admin:
            admin.create_topic("orders", 4)
        yield started


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.long] * (each != "java")) for each in CLIENTS]
)
def test_a_client_with_an_account_sends_and_consumes(
    name: str, guarded: BrokerProcess, tmp_path_factory: pytest.TempPathFactory, is_long: bool
) -> None:
    """What its account allows, and no more; mqadmin of that account nothing.

    With --long also a wrong key.
    """
    log = tmp_path_factory.mktemp("programs") / f"{name}.log"
    command = CLIENTS[name]()
    with Program(command, guarded.name_server, log, **signing("the-client")) as client:
        sent = client.send("orders", f"{name}-1", f"{name}-2")
        assert [each["status"] for each in sent] == ["SEND_OK"] * 2
        client.push("readers", "orders")
        client.until(lambda: {f"{name}-1", f"{name}-2"} <= set(client.keys()), "both arrive")
        with pytest.raises(AssertionError, match=DENIED):
            client.send("payments", "not allowed")
        client.do("stop", name="readers")
        if name == "java":
            printed = client.mqadmin(*UPDATE.split(), "-n", guarded.name_server)
            assert "access denied" in printed, printed
    if not is_long:
        return
    with (
        Program(command, guarded.name_server, log, **signing("the-client", "wrong")) as client,
        pytest.raises(AssertionError, match=DENIED),
    ):
        client.send("orders", "not signed")


def test_mqadmin_with_an_account_administrates(guarded: BrokerProcess, tmp_path: Path) -> None:
    """An admin's, from its file tools.yml."""
    java, signs = CLIENTS["java"](), signing("the-admin")
    with Program(java, guarded.name_server, tmp_path / "log", **signs) as program:
        printed = program.mqadmin(*UPDATE.split(), "-n", guarded.name_server)
        assert "success" in printed, printed
