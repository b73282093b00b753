"""Who is connected: members come, go and are told of each other; nothing of them stays behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmqlite.features.operating.service import ProgressCalls
from rmqlite.kernel.requests.groups import HeartbeatRequest, Subscription
from rmqlite.kernel.requests.topics import TopicInfo
from rmqlite.protocols.remoting.bytes.frame import encode
from rmqlite.protocols.remoting.bytes.requests.clients import (
    GET_CONSUMER_LIST_BY_GROUP,
    HEART_BEAT,
    UNREGISTER_CLIENT,
    ConsumerIds,
    MessageModel,
    UnregisterClient,
)
from rmqlite.protocols.remoting.bytes.requests.groups import OfGroup
from rmqlite.protocols.remoting.bytes.shapes import read_body, write_body
from rmqlite.protocols.remoting.requests import clients as limits
from rmqlite.protocols.remoting.requests.clients import RemotingClients
from tests.server.remoting.asking import GROUP, TOPIC, beat, heartbeat
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.messages import plain
from tests.support.remoting import LoopClient, ProtocolUnderTest, served_protocol


@pytest.fixture(autouse=True)
def _topic(under_test: BrokerUnderTest) -> None:
    under_test.broker.topics.create(TopicInfo(TOPIC, 4, 4))


def registered(protocol: ProtocolUnderTest) -> RemotingClients:
    """What the protocol remembers of clients."""
    calls: Any = protocol.calls
    clients: RemotingClients = calls._gone[0].__self__
    return clients


def remembers_nobody(protocol: ProtocolUnderTest) -> bool:
    clients = registered(protocol)
    return not any(
        (
            clients._consumers,
            clients._producers,
            clients._consumers_of,
            clients._producers_of,
            clients._producer_shares.total,
            clients._beats,
            clients._beat_bytes.total,
        )
    )


async def members(client: LoopClient, group: str = GROUP) -> list[str]:
    answer = await client.ask(GET_CONSUMER_LIST_BY_GROUP, OfGroup(group))
    return list(read_body(ConsumerIds, answer.body).consumer_id_list) if answer.code == 0 else []


async def leave(client: LoopClient, who: str, consumer: str = "", producer: str = "") -> None:
    asked = UnregisterClient(who, producer, consumer)
    assert (await client.ask(UNREGISTER_CLIENT, asked)).code == 0


def test_members_are_told_of_who_comes_and_goes(under_test: BrokerUnderTest) -> None:
    """Else they would share the queues anew only at their next look, up to 20 s later."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as one, protocol.client() as two:
            assert (await beat(one, "one")).code == 0
            assert (await one.told(40)).ext == {"consumerGroup": GROUP}
            assert await members(one) == ["one"]
            assert (await beat(two, "two")).code == 0
            assert (await one.told(40)).is_one_way
            assert (await two.told(40)).ext == {"consumerGroup": GROUP}
            assert await members(one) == ["one", "two"]
            await leave(two, "two", GROUP)
            await one.told(40)
            assert await members(one) == ["one"]
            assert not one.asked

    served_protocol(under_test, scenario)


def test_the_same_heartbeat_again_tells_nobody(under_test: BrokerUnderTest) -> None:
    """Each of them would cost every member a rebalance, and every 30 s."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            for _ in range(3):
                assert (await beat(client, "one")).code == 0
            await client.told(40)
            assert await members(client) == ["one"]
            assert not client.asked

    served_protocol(under_test, scenario)


def test_members_that_broadcast_are_known_as_such(under_test: BrokerUnderTest) -> None:
    """They commit nothing here, so their group has no LAG; the last heartbeat counts."""
    under_test.send(plain("a"))
    found = []

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            for model in (MessageModel.BROADCASTING, MessageModel.CLUSTERING):
                assert (await beat(client, "one", model=model)).code == 0
                status = await protocol.server.service[ProgressCalls].status(GROUP)
                found.append((status.is_broadcasting, sum([each.lag for each in status.progress])))

    served_protocol(under_test, scenario)
    assert found == [(True, 0), (False, 1)]


def test_a_connection_that_ends_takes_its_members_with_it(under_test: BrokerUnderTest) -> None:
    """Go never says that it leaves: the others get its queues at once."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as stays:
            assert (await beat(stays, "stays", groups=[GROUP, "other"])).code == 0
            async with protocol.client() as goes:
                assert (await beat(goes, "goes", producers=[GROUP, "p"])).code == 0
                await turns_until(lambda: len(registered(protocol).producers(GROUP)) == 1)
                assert await members(stays) == ["goes", "stays"]
                stays.asked.clear()
            assert (await stays.told(40)).ext == {"consumerGroup": GROUP}
            assert await members(stays) == ["stays"]
        await turns_until(lambda: remembers_nobody(protocol))

    served_protocol(under_test, scenario)


def test_a_producer_that_leaves_does_not_take_the_consumer_of_the_same_name_along(
    under_test: BrokerUnderTest,
) -> None:
    """One program often gives both the same group name; it still has to leave at its end."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client, protocol.client() as other:
            assert (await beat(client, "one", producers=[GROUP])).code == 0
            await leave(client, "one", producer=GROUP)
            assert await members(other) == ["one"]
            assert registered(protocol).producer_groups() == {}
            client.close()
            await turns_until(lambda: remembers_nobody(protocol))
            assert await members(other) == []

    served_protocol(under_test, scenario)


def test_a_client_that_came_back_survives_the_end_of_its_old_connection(
    under_test: BrokerUnderTest,
) -> None:
    """The end of a broken connection is often noticed after the client is there again."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as new:
            async with protocol.client() as old:
                assert (await beat(old, "one", producers=["p"])).code == 0
                assert (await beat(new, "one", producers=["p"])).code == 0
            await turns_until(lambda: len(protocol.connections.open) == 1)
            assert await members(new) == ["one"]
            assert registered(protocol).producer_of("one") is not None
        await turns_until(lambda: remembers_nobody(protocol))

    served_protocol(under_test, scenario)


def test_leaving_twice_or_for_others_changes_nothing(under_test: BrokerUnderTest) -> None:
    """Only a client's own connection takes it out, and members of other protocols stay."""
    request = HeartbeatRequest(GROUP, "python", (Subscription(TOPIC),))

    async def scenario(protocol: ProtocolUnderTest) -> None:
        under_test.broker.heartbeat(request)
        async with protocol.client() as one, protocol.client() as two:
            assert (await beat(one, "one")).code == 0
            await leave(two, "one", GROUP)
            await leave(two, "python", GROUP)
            assert await members(two) == ["one", "python"]
            await leave(one, "one", GROUP)
            await leave(one, "one", GROUP)
            assert await members(two) == ["python"]
        await turns_until(lambda: remembers_nobody(protocol))

    served_protocol(under_test, scenario)


def test_a_heartbeat_of_a_connection_that_is_gone_registers_nobody(
    under_test: BrokerUnderTest,
) -> None:
    """Nothing would ever remove what it registers."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            connection = protocol.connection(client)
            body = heartbeat("late", producers=["p"])
            connection.data_received(encode(client.request(HEART_BEAT, None, body)))
            connection.abort()
            connection.connection_lost(None)
            await asyncio.sleep(0)
        await turns_until(lambda: not protocol.calls.running)
        assert remembers_nobody(protocol)
        assert under_test.broker.membership.members(GROUP) == ()

    served_protocol(under_test, scenario)


def test_a_group_that_is_refused_keeps_out_no_other(under_test: BrokerUnderTest) -> None:
    """The client is told of it, and is a member of its other groups; nothing else is kept."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await beat(client, "one", groups=["bad group?", GROUP])
            assert answer.code == 1
            assert "bad group?" in answer.remark
            assert await members(client) == ["one"]
            assert registered(protocol).consumers("bad group?") == {}
        await turns_until(lambda: remembers_nobody(protocol))

    served_protocol(under_test, scenario)


def test_too_many_producers_are_not_remembered(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the names of their groups; they may send all the same."""
    monkeypatch.setattr(limits, "PRODUCERS_MAX", 3)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            names = [f"p{number}" for number in range(5)]
            assert (await beat(client, "one", groups=[], producers=names)).code == 0
            assert list(registered(protocol).producer_groups()) == names[:3]
        await turns_until(lambda: remembers_nobody(protocol))

    served_protocol(under_test, scenario)


def test_a_heartbeat_of_nobody_is_welcome(under_test: BrokerUnderTest) -> None:
    """RocketMQ answers {} with 0."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            answer = await client.ask(34, None, b"{}")
            # Java reads from it whether the broker knows SQL92.
            assert (answer.code, answer.version) == (0, 409)
            assert (await client.ask(34)).code == 1
            assert (await client.ask(34, None, b"{oops")).code == 1
            assert await members(client) == []

    served_protocol(under_test, scenario)


def test_a_heartbeat_with_other_versions_only_is_not_read_again(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Java consumer of a thousand topics sends a thousand of them when it starts."""
    read: list[bytes] = []

    async def counted(cls: type[Any], body: bytes) -> Any:
        read.append(body)
        return read_body(cls, body)

    monkeypatch.setattr(limits, "read_large", counted)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client() as client:
            body = write_body(heartbeat("one"))
            for version in (b"1", b"22", b'"333"'):
                changed = body.replace(b'"subVersion":0', b'"subVersion":' + version)
                assert changed != body
                assert (await client.ask(34, None, changed)).code == 0
            assert len(read) == 1
            assert (
                await client.ask(34, None, write_body(heartbeat("one", topic="more")))
            ).code == 0
            assert len(read) == 2
            assert (
                registered(protocol).subscription(protocol.connection(client), GROUP, TOPIC) is None
            )

    served_protocol(under_test, scenario)
