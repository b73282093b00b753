"""Two brokers of one name at a name server: which id each has, and who takes whose place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rmqlite.features.cluster import registration
from rmqlite.features.cluster.link import Connecting
from rmqlite.features.cluster.registration import Peer, Registering
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.protocols.remoting.bytes.requests import name_server as codes
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from tests.support.brokers import BrokerUnderTest
from tests.support.fake_name_server import FakeNameServer, fake_name_server

LOST = "127.0.0.1:10999"
PEER = Peer("127.0.0.1", was_master=True)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for real seconds."""
    monkeypatch.setattr(registration, "PAUSE_S_MAX", 0.05)
    monkeypatch.setattr(registration, "PAUSE_S", 0.01)


@asynccontextmanager
async def registering(
    under_test: BrokerUnderTest, server: FakeNameServer, peer: Peer, **settings: Any
) -> AsyncIterator[Registering]:
    config = under_test.config.model_copy(update={"name_servers": server.address, **settings})
    kept = Registering(Connecting(config, Access()), peer)
    kept.meet(config, under_test.broker, under_test.clock)
    async with asyncio.TaskGroup() as tasks:
        kept.begin(tasks)
        yield kept
        await kept.close()


def test_a_standby_has_another_id_and_no_topics(under_test: BrokerUnderTest) -> None:
    """Clients learn its address; the topics of the name are its master's, whose id is taken."""

    async def main() -> None:
        async with fake_name_server() as server:
            server.brokers["broker-a"] = LOST
            async with registering(under_test, server, Peer("127.0.0.1"), broker_role="SLAVE"):
                await server.until(server.registrations)
        sent = next(each for each in server.requests if each.code == 103)
        assert codes.REGISTER_BROKER.fields.read(sent.ext).broker_id == 1
        assert not server.registrations()[0].topics
        assert server.registrations()[0].version == TableVersionBody()
        # To unregister would remove whoever has this id by now.
        assert 104 not in server.codes()

    asyncio.run(main())


def test_a_promoted_broker_removes_the_master_whose_place_it_has(
    under_test: BrokerUnderTest,
) -> None:
    """A machine without power closes no connection: a name server believes in it for 120 s."""

    async def main() -> None:
        async with fake_name_server() as server:
            server.brokers["broker-a"] = LOST
            async with registering(under_test, server, PEER):
                await server.until(lambda: 104 in server.codes())
                removed = next(each for each in server.requests if each.code == 104)
                fields = codes.UNREGISTER_BROKER.fields.read(removed.ext)
                assert (fields.broker_addr, fields.broker_id) == (LOST, 0)
                server.brokers.clear()
                await server.until(server.registrations)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("peer", "other"),
    [(Peer("127.0.0.1"), LOST), (PEER, "10.9.9.9:10911")],
    ids=["never promoted", "a stranger"],
)
def test_nobody_else_is_removed(under_test: BrokerUnderTest, peer: Peer, other: str) -> None:
    """A former master that comes back finds the new one, and follows it."""

    async def main() -> None:
        async with fake_name_server() as server:
            server.brokers["broker-a"] = other
            async with registering(under_test, server, peer) as kept:
                await server.until(lambda: kept.statuses()[0].reason)
                assert other in kept.statuses()[0].reason
                assert server.codes() == []

    asyncio.run(main())


def test_a_former_master_starts_beside_the_new_one(under_test: BrokerUnderTest) -> None:
    """Only when it runs it finds out that it is not the master any more."""

    async def main() -> None:
        async with fake_name_server() as server:
            config = under_test.config.model_copy(update={"name_servers": server.address})
            kept = Registering(Connecting(config, Access()), Peer("localhost"))
            server.brokers["broker-a"] = LOST
            await kept.check(config)
            server.brokers["broker-a"] = "10.9.9.9:10911"
            with pytest.raises(InvalidValue, match=r"10\.9\.9\.9"):
                await kept.check(config)

    asyncio.run(main())
