"""A broker registers at its name servers, and none of them can hurt it or the others."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from rmqlite.features.accounts.accounts import Account, Accounts
from rmqlite.features.cluster import registration
from rmqlite.features.cluster.addresses import check_reachable, other_name_servers, with_own_address
from rmqlite.features.cluster.link import Connecting
from rmqlite.features.cluster.registration import Registering
from rmqlite.kernel.requests.topics import TopicExtras, TopicInfo
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.words.errors import ConfigInvalid, InvalidValue
from rmqlite.protocols.remoting.bytes.command import is_signed
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests import name_server as codes
from rmqlite.protocols.remoting.bytes.requests.name_server import QueueData, RouteBody
from rmqlite.protocols.remoting.bytes.shapes import write_body
from tests.support.brokers import BrokerUnderTest
from tests.support.certificates import made
from tests.support.fake_name_server import FakeNameServer, fake_name_server

OURS = "127.0.0.1:10911"
SECRET = "12345678"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for real seconds."""
    monkeypatch.setattr(registration, "PAUSE_S_MAX", 0.05)
    monkeypatch.setattr(registration, "PAUSE_S", 0.01)
    monkeypatch.setattr(registration, "GATHER_S", 0.05)
    monkeypatch.setattr(registration, "LEAVE_S", 0.2)
    monkeypatch.setattr(registration, "ROUTE_S", 0.2)


Scenario = Callable[[Registering, BrokerUnderTest, FakeNameServer, FakeNameServer], Awaitable[None]]


@asynccontextmanager
async def registering(
    under_test: BrokerUnderTest,
    *servers: FakeNameServer,
    access: Access | None = None,
    **settings: Any,
) -> AsyncIterator[Registering]:
    """The broker of a test, registered at these name servers until the context ends."""
    settings["name_servers"] = ";".join([each.address for each in servers])
    config = under_test.config.model_copy(update=settings)
    connecting = Connecting(config, access or Access())
    kept = Registering(connecting)
    kept.meet(config, under_test.broker, under_test.clock)
    async with asyncio.TaskGroup() as tasks:
        kept.begin(tasks)
        yield kept
        await kept.close()


def run(under_test: BrokerUnderTest, scenario: Scenario, **settings: Any) -> None:
    """Run a scenario with two name servers."""

    async def main() -> None:
        async with (
            fake_name_server() as first,
            fake_name_server() as second,
            registering(under_test, first, second, **settings) as kept,
        ):
            await scenario(kept, under_test, first, second)

    asyncio.run(main())


@pytest.mark.parametrize("is_compressed", [False, True])
def test_the_whole_table_goes_to_each_name_server(
    under_test: BrokerUnderTest, is_compressed: bool
) -> None:
    """A name server knows nothing of the others, and keeps no table that came before."""
    under_test.broker.topics.create(TopicInfo("orders", 3, 5))

    async def scenario(
        kept: Registering, broker: BrokerUnderTest, first: FakeNameServer, second: FakeNameServer
    ) -> None:
        for each in (first, second):
            await each.until(each.registrations)
            (found,) = each.registrations()
            assert found.topics["orders"][:3] == (3, 5, 6)
            names = {info.topic for info in broker.broker.topics.all()}
            assert found.topics.keys() == names | {"broker-a", "DefaultCluster"}
            version = broker.broker.topics.version
            assert found.version.counter == version.counter
            assert found.version.timestamp == version.changed_at_ms
        await first.until(lambda: all(each.is_registered for each in kept.statuses()))
        assert [each.topics for each in kept.statuses()] == [len(found.topics)] * 2

    run(under_test, scenario, compressed_register=is_compressed)


def test_a_registration_names_the_broker(under_test: BrokerUnderTest) -> None:
    """Clients connect to brokerIP1 and listenPort."""

    async def scenario(
        _kept: Registering, _broker: BrokerUnderTest, first: FakeNameServer, _: FakeNameServer
    ) -> None:
        await first.until(first.codes)
        sent = next(each for each in first.requests if each.code == 103)
        fields = codes.REGISTER_BROKER.fields.read(sent.ext)
        assert fields[:5] == ("broker-a", OURS, "DefaultCluster", OURS, 0)

    run(under_test, scenario)


def test_changes_that_come_together_are_one_registration(under_test: BrokerUnderTest) -> None:
    """A producer that makes a hundred topics does not make a hundred tables."""

    async def scenario(
        _kept: Registering, broker: BrokerUnderTest, first: FakeNameServer, _: FakeNameServer
    ) -> None:
        await first.until(first.registrations)
        for number in range(100):
            broker.broker.topics.create(TopicInfo(f"orders-{number}", 1, 1))
        await first.until(lambda: "orders-99" in first.registrations()[-1].topics)
        before, after = first.registrations()
        assert before.version != after.version

    run(under_test, scenario)


def test_a_deleted_topic_is_gone_everywhere(under_test: BrokerUnderTest) -> None:
    """RocketMQ's name servers put topics and never remove one, but for a broker that leaves."""
    under_test.broker.topics.change(TopicInfo("orders", 1, 1), TopicExtras())

    async def scenario(
        _kept: Registering, broker: BrokerUnderTest, first: FakeNameServer, _: FakeNameServer
    ) -> None:
        await first.until(first.registrations)
        broker.broker.topics.delete("orders")
        await first.until(lambda: len(first.codes()) == 3)
        assert first.codes() == [103, 104, 103]
        assert "orders" not in first.registrations()[-1].topics

    run(under_test, scenario)


def test_a_full_disk_takes_the_right_to_write(under_test: BrokerUnderTest) -> None:
    """Producers go to the other brokers; a name server looks only at another version."""

    async def scenario(
        kept: Registering, broker: BrokerUnderTest, first: FakeNameServer, _: FakeNameServer
    ) -> None:
        await first.until(first.registrations)
        for is_full in (True, False):
            broker.broker.retention.is_disk_full = is_full
            before = len(first.registrations())
            kept.changed()
            await first.until(lambda: len(first.registrations()) > before)  # noqa: B023
        normal, full, again = first.registrations()
        assert {topic.perm & 2 for topic in normal.topics.values()} == {2}
        assert {topic.perm & 2 for topic in full.topics.values()} == {0}
        assert full.version != normal.version
        assert again == normal

    run(under_test, scenario)


def test_it_registers_at_each_interval(under_test: BrokerUnderTest) -> None:
    """A name server forgets a broker that it does not hear of for two minutes."""

    async def scenario(
        _kept: Registering, _broker: BrokerUnderTest, first: FakeNameServer, _: FakeNameServer
    ) -> None:
        await first.until(lambda: len(first.registrations()) >= 3)
        assert first.connections == 1
        assert len({each.version for each in first.registrations()}) == 1

    run(under_test, scenario, register_period_ms=20)


def test_it_registers_again_after_a_lost_connection(under_test: BrokerUnderTest) -> None:
    """The name server has forgotten the broker when the connection ended."""

    async def scenario(
        kept: Registering, _broker: BrokerUnderTest, first: FakeNameServer, _: FakeNameServer
    ) -> None:
        await first.until(first.registrations)
        first.drop_all()
        await first.until(lambda: len(first.registrations()) == 2)
        assert first.connections == 2
        await first.until(lambda: kept.statuses()[0].is_registered)

    run(under_test, scenario)


FAULTS: dict[str, Callable[[Any], bytes | None]] = {
    "silence": lambda _: None,
    "an error": lambda command: encode(command.answer(1, remark="no")),
    "no answer at all": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a frame of 16 MiB": lambda _: (16 << 20).to_bytes(4, "big") + b"\0" * 100,
    "another answer": lambda command: encode(command.answer(0)._replace(opaque=99_999)),
    "a body that is no JSON": lambda command: encode(command.answer(0, body=b"{" * 5_000)),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("code", [103, 106])
def test_a_bad_name_server_hurts_nobody(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch, fault: str, code: int
) -> None:
    """The others are served, the status names it, and it is tried again until it is well."""
    monkeypatch.setattr("rmqlite.features.cluster.link.ANSWER_S", 0.1)

    async def main() -> None:
        async with fake_name_server() as bad, fake_name_server() as good:
            bad.answers[code] = FAULTS[fault]
            async with registering(under_test, bad, good) as kept:
                await good.until(good.registrations)
                if (code, fault) == (103, "a body that is no JSON"):
                    # Nobody reads that body.
                    await bad.until(lambda: kept.statuses()[0].is_registered)
                    return
                await bad.until(lambda: kept.statuses()[0].reason)
                assert not kept.statuses()[0].is_registered
                await good.until(lambda: kept.statuses()[1].is_registered)
                del bad.answers[code]
                await bad.until(lambda: kept.statuses()[0].is_registered)
                assert not kept.statuses()[0].reason

    asyncio.run(main())


def test_a_name_that_another_broker_has_ends_the_start(under_test: BrokerUnderTest) -> None:
    """RocketMQ's name servers would send clients to both in turn; the error names both."""

    async def main() -> None:
        async with fake_name_server() as server:
            server.brokers["broker-a"] = "10.1.2.3:10911"
            config = under_test.config.model_copy(update={"name_servers": server.address})
            with pytest.raises(InvalidValue) as caught:
                await Registering(Connecting(config, Access())).check(config)
            assert "10.1.2.3:10911" in str(caught.value)
            assert OURS in str(caught.value)
            server.brokers["broker-a"] = OURS
            await Registering(Connecting(config, Access())).check(config)

    asyncio.run(main())


def test_no_name_server_has_to_be_there_at_the_start(under_test: BrokerUnderTest) -> None:
    """A cluster is started in any order."""

    async def main() -> None:
        config = under_test.config.model_copy(update={"name_servers": "127.0.0.1:1"})
        await Registering(Connecting(config, Access())).check(config)

    asyncio.run(main())


def test_a_name_that_is_taken_later_is_reported(under_test: BrokerUnderTest) -> None:
    """Two brokers that register in turn would send each client to the wrong one half the time."""

    async def scenario(
        kept: Registering, _broker: BrokerUnderTest, first: FakeNameServer, _: FakeNameServer
    ) -> None:
        await first.until(lambda: kept.statuses()[0].is_registered)
        first.brokers["broker-a"] = "10.1.2.3:10911"
        await first.until(lambda: kept.statuses()[0].reason)
        assert "10.1.2.3:10911" in kept.statuses()[0].reason
        sent = len(first.codes())
        asked = len(first.requests)
        await first.until(lambda: len(first.requests) > asked + 3)
        assert len(first.codes()) == sent
        assert kept.statuses()[1].is_registered
        first.brokers.clear()
        await first.until(lambda: kept.statuses()[0].is_registered)

    run(under_test, scenario, register_period_ms=20)


def test_a_broker_that_ends_leaves(under_test: BrokerUnderTest) -> None:
    """Clients learn it before its port is closed; a name server that hangs does not hold it up."""

    async def main() -> None:
        async with fake_name_server() as good, fake_name_server() as hanging:
            hanging.answers[104] = lambda _: None
            async with registering(under_test, good, hanging) as kept:
                await good.until(lambda: all(each.is_registered for each in kept.statuses()))
            assert good.codes()[-1] == 104
            assert hanging.codes()[-1] == 104

    asyncio.run(main())


def test_requests_are_signed(under_test: BrokerUnderTest, tmp_path: Path) -> None:
    """A name server with accounts refuses what nobody has signed."""
    account = Account(access_key="broker-account", secret=SecretStr(SECRET))
    access = Access(Accounts(accounts={account.access_key: account}))
    settings = {"acl_enabled": True, "acl_file": tmp_path, "name_server_account": "broker-account"}

    async def main() -> None:
        async with (
            fake_name_server() as server,
            registering(under_test, server, access=access, **settings),
        ):
            await server.until(server.registrations)
            assert all(is_signed(each, SECRET) for each in server.requests)
            assert {each.ext["AccessKey"] for each in server.requests} == {"broker-account"}

    asyncio.run(main())


def test_a_broker_registers_by_tls(under_test: BrokerUnderTest, tmp_path: Path) -> None:
    """It checks the name server's certificate, and shows its own to one that asks for it."""
    folder = made(tmp_path / "tls")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
    context.load_cert_chain(folder / "broker.pem", folder / "broker.key")
    context.verify_mode = ssl.CERT_REQUIRED
    paths = {
        f"tls_{name}_path": folder / f"broker.{end}"
        for name, end in (("cert", "pem"), ("key", "key"))
    }
    settings: dict[str, Any] = {"name_server_tls": True, "tls_mode": "enforcing", **paths}

    async def main() -> None:
        async with fake_name_server(context) as server:
            ca: dict[str, Any] = {"tls_trust_cert_path": folder / "ca.pem"}
            async with registering(under_test, server, **settings, **ca):
                await server.until(server.registrations)
            other: dict[str, Any] = {"tls_trust_cert_path": made(tmp_path / "other") / "ca.pem"}
            async with registering(under_test, server, **settings, **other) as kept:
                await server.until(lambda: kept.statuses()[0].reason)
                assert "certificate" in kept.statuses()[0].reason
            assert len(server.registrations()) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"name_server_account": "nobody"}, "namesrvAccount"),
        ({"name_server_account": "nobody", "acl_enabled": True}, "namesrvAccount"),
        ({"name_server_tls": True, "tls_trust_cert_path": Path("no/such.pem")}, "tlsTrustCertPath"),
    ],
)
def test_what_the_broker_cannot_sign_or_check_ends_the_start(
    under_test: BrokerUnderTest, settings: dict[str, Any], key: str
) -> None:
    """An operator sees it at once, not in the log of a broker that is in no route."""
    config = under_test.config.model_copy(update=settings)
    with pytest.raises(ConfigInvalid, match=key):
        Connecting(config, Access(Accounts()))


def test_clients_are_not_sent_to_loopback(under_test: BrokerUnderTest) -> None:
    """A name server on another machine would give clients an address of their own machine."""
    config = under_test.config
    check_reachable(config, "127.0.0.1")
    check_reachable(config, "::1")
    with pytest.raises(InvalidValue, match="brokerIP1"):
        check_reachable(config, "10.1.2.3")
    reached = config.model_copy(update={"broker_ip": "10.1.2.4"})
    with pytest.raises(InvalidValue, match="bindAddress"):
        check_reachable(reached, "10.1.2.3")
    check_reachable(reached.model_copy(update={"bind_address": "0.0.0.0"}), "10.1.2.3")


def test_the_brokers_own_name_server_needs_no_registration(under_test: BrokerUnderTest) -> None:
    """RocketMQ's broker.conf often has namesrvAddr=localhost:9876, which is its port here."""
    names = "localhost:9876;127.0.0.1:9876;10.1.2.3:9876;localhost:9877"
    config = under_test.config.model_copy(update={"name_servers": names})
    assert other_name_servers(config) == ["10.1.2.3:9876", "localhost:9877"]


def test_the_own_address_is_that_to_the_name_server(under_test: BrokerUnderTest) -> None:
    """An operator need not look for the address; one that is set stays."""
    plain = type(under_test.config)(name_servers="127.0.0.1:9876")
    assert with_own_address(plain).broker_ip == "127.0.0.1"
    given = plain.with_values({"broker_ip": "10.9.8.7"})
    assert with_own_address(given).broker_ip == "10.9.8.7"
    nowhere = plain.with_values({"name_servers": "no-such-host.invalid:9876"})
    with pytest.raises(ConfigInvalid, match="namesrvAddr"):
        with_own_address(nowhere)


def test_the_queues_of_other_brokers_are_those_of_the_route(under_test: BrokerUnderTest) -> None:
    """Of the first name server that answers; without any, nobody knows."""
    rows = (
        QueueData("broker-a", 4, 4, 6),
        QueueData("broker-b", 8, 4, 6),
        QueueData("no-reading", 2, 2, 2),
    )

    async def scenario(
        kept: Registering, _broker: BrokerUnderTest, first: FakeNameServer, second: FakeNameServer
    ) -> None:
        route = codes.GET_ROUTEINFO_BY_TOPIC.code
        second.answers[route] = lambda asked: encode(
            asked.answer(0, body=write_body(RouteBody((), rows, {}), is_strict=True))
        )
        first.answers[route] = lambda _: None
        await first.until(lambda: all(each.is_registered for each in kept.statuses()))
        assert await kept.queues_of("orders") == {"broker-b": 8}
        second.answers[route] = lambda asked: encode(asked.answer(0, body=b"?"))
        assert await kept.queues_of("orders") is None
        second.answers[route] = lambda asked: encode(asked.answer(17))
        assert await kept.queues_of("orders") == {}

    run(under_test, scenario)
