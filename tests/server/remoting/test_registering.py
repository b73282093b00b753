"""Other brokers register here, and clients find them: over real connections."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from rmqlite.features.accounts.accounts import Role
from rmqlite.kernel.config.addresses import parse_addresses
from rmqlite.protocols.remoting.bytes.command import ONE_WAY_FLAG, Command
from rmqlite.protocols.remoting.bytes.registration import (
    BODY_BYTES_MAX,
    RegisteredTopic,
    Registration,
    compressed,
    crc_of,
    encode_packed,
    encode_plain,
)
from rmqlite.protocols.remoting.bytes.requests import name_server as codes
from rmqlite.protocols.remoting.bytes.requests.groups import TableVersionBody
from rmqlite.protocols.remoting.bytes.requests.name_server import (
    BrokerAtName,
    ClusterInfo,
    KvKey,
    KvPair,
    OfBroker,
    OfCluster,
    RegistrationFields,
    RouteBody,
    RouteQuery,
    TopicDelete,
)
from rmqlite.protocols.remoting.bytes.requests.request import RemotingRequest
from rmqlite.protocols.remoting.bytes.requests.topics import TopicList
from rmqlite.protocols.remoting.bytes.shapes import read_body
from rmqlite.protocols.remoting.registry import EXPIRY_MS
from tests.support.accounts import SECRET, account, accounts
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.exchanges import CLUSTER, command_of, scenarios
from tests.support.messages import create_topic
from tests.support.remoting import LoopClient, ProtocolUnderTest, Talk, served_protocol
from tests.support.steps import done

A: Final = RegistrationFields("a", "10.0.0.2:10911", "C1", "10.0.0.2:10912", 0)
ROW: Final = RegisteredTopic(4, 8, 6)
TOPICS: Final = dict.fromkeys(("a", "T"), ROW)
KEY: Final = "the-brokers"
Scenario = Callable[[ProtocolUnderTest, LoopClient], Awaitable[None]]


def named(under_test: BrokerUnderTest, scenario: Scenario, **settings: Any) -> None:
    """Run a scenario with a client at a name server at which loopback may register."""

    async def inside(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(port=protocol.protocol.name_server_port) as client:
            await scenario(protocol, client)

    about = {"brokers_allowed": "127.0.0.1", "broker_name": "ours", "cluster_name": "C"}
    served_protocol(under_test, inside, **about | settings)


def registering(
    talk: Talk,
    broker: RegistrationFields = A,
    topics: dict[str, RegisteredTopic] = TOPICS,
    version: int = 1,
    flag: int = 0,
) -> Command:
    table = Registration(TableVersionBody(version, version), topics)
    body = done(encode_plain(table))
    if broker.compressed:
        body = compressed(done(encode_packed(table)))
    asked = broker._replace(body_crc32=crc_of(body))
    return talk.request(codes.REGISTER_BROKER, asked, body, flag)


async def registered(client: LoopClient, *about: Any, **more: Any) -> Command:
    """Register; the answer."""
    command = registering(client, *about, **more)
    client.send(command)
    return await client.answer(command.opaque)


async def ask_route(client: LoopClient, topic: str) -> Command:
    return await client.ask(codes.GET_ROUTEINFO_BY_TOPIC, RouteQuery(topic))


async def route(client: LoopClient, topic: str) -> RouteBody:
    answer = await ask_route(client, topic)
    assert answer.code == 0, answer.remark
    return read_body(RouteBody, answer.body)


async def names_of(client: LoopClient, topic: str) -> list[str]:
    """The brokers in a topic's route."""
    answer = await ask_route(client, topic)
    if answer.code == 17:
        return []
    return [each.broker_name for each in read_body(RouteBody, answer.body).queue_datas]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_route_has_the_queues_of_all_brokers(
    under_test: BrokerUnderTest, is_compressed: bool
) -> None:
    """Of ours, of theirs, of both; with the settings with which each was registered."""
    create_topic(under_test, "both", 3)
    create_topic(under_test, "own", 2)

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        before = (await ask_route(client, "own")).body
        topics = {
            "a": ROW,
            "both": RegisteredTopic(5, 6, 4),
            "theirs": ROW,
            "TBW102": RegisteredTopic(8, 8, 7),
        }
        answer = await registered(client, A._replace(compressed=is_compressed), topics)
        assert (answer.code, answer.ext, answer.body) == (0, {}, b"")
        assert (await ask_route(client, "own")).body == before
        both = await ask_route(client, "both")
        assert b'"brokerAddrs":{"0":"10.0.0.2:10911"}' in both.body, "strict JSON"
        found = read_body(RouteBody, both.body)
        assert [each.broker_name for each in found.broker_datas] == ["ours", "a"]
        assert [each.cluster for each in found.broker_datas] == ["C", "C1"]
        queues = [
            (q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm)
            for q in found.queue_datas
        ]
        assert queues == [("ours", 3, 3, 6), ("a", 5, 6, 4)]
        assert await names_of(client, "theirs") == ["a"]
        assert await names_of(client, "TBW102") == ["ours", "a"]
        assert await names_of(client, "nobodys") == []

    named(under_test, scenario)


def test_topics_on_demand_may_be_off_here_and_on_elsewhere(tmp_path: Any) -> None:
    """Then producers make their topics there."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        assert await names_of(client, "TBW102") == []
        await registered(client, A, {"a": ROW, "TBW102": ROW})
        assert await names_of(client, "TBW102") == ["a"]

    named(BrokerUnderTest(tmp_path, auto_create_topic=False), scenario)


def test_tools_see_all_clusters_brokers_and_topics(under_test: BrokerUnderTest) -> None:
    """clusterList, topicList, and the topics of one cluster."""
    create_topic(under_test, "own", 2)

    async def topics(client: LoopClient, row: Any, asked: Any = None) -> set[str]:
        answer = await client.ask(row, asked)
        assert answer.code == 0, answer.remark
        found = read_body(TopicList, answer.body).topic_list
        assert len(found) == len(set(found))
        return set(found)

    async def scenario(protocol: ProtocolUnderTest, client: LoopClient) -> None:
        both = dict.fromkeys(("a", "own", "T"), ROW)
        await registered(client, A, both)
        slave = A._replace(broker_id=1, broker_addr="10.0.0.3:1")
        answer = await registered(client, slave, both)
        assert answer.ext == {"haServerAddr": "10.0.0.2:10912", "masterAddr": "10.0.0.2:10911"}
        await registered(client, A._replace(broker_name="b", broker_addr="b:1", cluster_name="C"))
        status = await protocol.server.service.status()
        assert [(row.broker_name, row.broker_id, row.address) for row in status.registered] == [
            ("a", 0, A.broker_addr),
            ("a", 1, "10.0.0.3:1"),
            ("b", 0, "b:1"),
        ]
        info = read_body(ClusterInfo, (await client.ask(codes.GET_BROKER_CLUSTER_INFO)).body)
        assert info.cluster_addr_table == {"C": ("ours", "b"), "C1": ("a",)}
        assert info.broker_addr_table["a"].broker_addrs == {0: A.broker_addr, 1: "10.0.0.3:1"}
        every = await topics(client, codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert every >= {"own", "T", "a", "TBW102"}
        asked = OfCluster("C1")
        assert await topics(client, codes.GET_TOPICS_BY_CLUSTER, asked) == set(both)
        here = await topics(client, codes.GET_TOPICS_BY_CLUSTER, OfCluster("C"))
        assert here >= {"own", "T", "TBW102"}
        system = await topics(client, codes.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        assert system >= {"TBW102", "C1", "a", "b"}
        assert (await client.ask(codes.GET_TOPICS_BY_CLUSTER, OfCluster("D"))).code == 1

    named(under_test, scenario)


def test_tools_change_the_permission_and_the_topics_of_a_registered_broker(
    under_test: BrokerUnderTest,
) -> None:
    """wipeWritePerm, addWritePerm and the second half of deleteTopic; ours stays as it is."""
    create_topic(under_test, "T", 2)

    async def perms(client: LoopClient) -> list[int]:
        return [each.perm for each in (await route(client, "T")).queue_datas]

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        await registered(client)
        answer = await client.ask(codes.WIPE_WRITE_PERM_OF_BROKER, OfBroker("a"))
        assert answer.ext == {"wipeTopicCount": "2"}
        assert await perms(client) == [6, 4]
        await registered(client)
        assert await perms(client) == [6, 4]
        answer = await client.ask(codes.ADD_WRITE_PERM_OF_BROKER, OfBroker("a"))
        assert answer.ext == {"addTopicCount": "2"}
        assert await perms(client) == [6, 6]
        for cluster, left in (("C", ["ours", "a"]), ("C1", ["ours"])):
            gone = await client.ask(codes.DELETE_TOPIC_IN_NAMESRV, TopicDelete("T", cluster))
            assert gone.code == 0
            assert await names_of(client, "T") == left
        await registered(client, version=2)
        assert await names_of(client, "T") == ["ours", "a"]

    named(under_test, scenario)


def test_a_broker_is_gone_when_its_connection_is(under_test: BrokerUnderTest) -> None:
    """At once, as RocketMQ's name server does; and when it says so."""

    async def scenario(protocol: ProtocolUnderTest, client: LoopClient) -> None:
        async with protocol.client() as broker:
            assert (await registered(broker)).code == 0
            assert await names_of(client, "T") == ["a"]
        await turns_until(lambda: len(protocol.connections.open) == 1)
        assert await names_of(client, "T") == []
        async with protocol.client() as broker:
            await registered(broker)
            other = BrokerAtName("a", "10.0.0.9:1", "C1", 0)
            assert (await broker.ask(codes.UNREGISTER_BROKER, other)).code == 0
            assert await names_of(client, "T") == ["a"]
            own = BrokerAtName("a", A.broker_addr, "C1", 0)
            assert (await broker.ask(codes.UNREGISTER_BROKER, own)).code == 0
            assert await names_of(client, "T") == []

    named(under_test, scenario)


def test_a_table_of_a_connection_that_is_closed_counts_for_nothing(
    under_test: BrokerUnderTest,
) -> None:
    """It was read while the broker died: nobody would remove it; and who unregisters right behind
    a long table is gone behind it."""
    many = {f"topic-{number}": ROW for number in range(2_000)}

    async def scenario(protocol: ProtocolUnderTest, client: LoopClient) -> None:
        async with protocol.client() as broker:
            broker.send(registering(broker, A, many))
            await turns_until(lambda: bool(protocol.calls.running))
        await turns_until(lambda: len(protocol.connections.open) == 1)
        await turns_until(lambda: not protocol.calls.running)
        assert await names_of(client, "topic-0") == []
        gone = client.request(codes.UNREGISTER_BROKER, BrokerAtName("a", A.broker_addr, "C1", 0))
        client.send(registering(client, A, many, flag=ONE_WAY_FLAG), gone)
        assert (await client.answer(gone.opaque)).code == 0
        assert await names_of(client, "topic-0") == []

    named(under_test, scenario)


def test_a_broker_that_only_asks_for_its_version_stays(under_test: BrokerUnderTest) -> None:
    """forceRegister=false: 322 each 30 s, and 103 only if that says that the table is another."""
    asked = BrokerAtName("a", A.broker_addr, "C1", 0)

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        async def changed(version: TableVersionBody) -> tuple[str, bytes]:
            answer = await client.ask(codes.QUERY_DATA_VERSION, asked, version)
            assert answer.code == 0, answer.remark
            return answer.ext["changed"], answer.body

        assert await changed(TableVersionBody(1, 1)) == ("true", b"")
        await registered(client)
        for _time in range(3):
            under_test.clock.forward(EXPIRY_MS - 1)
            kept = b'{"counter":1,"timestamp":1}'
            assert await changed(TableVersionBody(1, 1)) == ("false", kept)
        assert await changed(TableVersionBody(1, 2)) == ("true", kept)
        under_test.clock.forward(EXPIRY_MS)
        assert await names_of(client, "T") == []
        assert await changed(TableVersionBody(1, 1)) == ("true", b"")

    named(under_test, scenario)


def test_a_second_broker_of_a_name_reads_who_has_it(under_test: BrokerUnderTest) -> None:
    """Ours, or a registered one: broker-a is Java's default name, too."""

    async def scenario(protocol: ProtocolUnderTest, client: LoopClient) -> None:
        await registered(client)
        for name, address in (
            ("a", A.broker_addr),
            ("ours", f"127.0.0.1:{protocol.protocol.port}"),
        ):
            asked = A._replace(broker_name=name, broker_addr="10.0.0.9:1", cluster_name="C1")
            answer = await registered(client, asked)
            assert answer.code == 1
            assert "10.0.0.9:1" in answer.remark
            assert address in answer.remark
        own = A._replace(
            broker_name="ours",
            broker_addr=f"127.0.0.1:{protocol.protocol.port}",
            cluster_name="C",
        )
        assert (await registered(client, own)).code == 0
        assert await names_of(client, "TBW102") == ["ours"]

    named(under_test, scenario)


def test_a_broker_learns_the_order_configuration(under_test: BrokerUnderTest) -> None:
    """No body before the first one is put, and an empty table after it is deleted; also when the
    broker is started again."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        assert (await registered(client)).body == b""
        pair = KvPair("ORDER_TOPIC_CONFIG", "T", "a:4")
        assert (await client.ask(codes.PUT_KV_CONFIG, pair)).code == 0
        assert (await registered(client)).body == b'{"table":{"T":"a:4"}}'
        await client.ask(codes.DELETE_KV_CONFIG, KvKey("ORDER_TOPIC_CONFIG", "T"))
        assert (await registered(client)).body == b'{"table":{}}'

    async def again(_: ProtocolUnderTest, client: LoopClient) -> None:
        assert (await registered(client)).body == b'{"table":{}}'

    named(under_test, scenario)
    under_test.restart()
    named(under_test, again)


def wrong_requests(talk: Talk) -> dict[str, tuple[Command, str]]:
    """Requests that are refused, each with a word of the remark."""
    right = registering(talk)

    def ext(**fields: Any) -> Command:
        return right._replace(ext=right.ext | fields)

    def body(data: bytes, **fields: str) -> Command:
        return right._replace(body=data, ext=right.ext | {"bodyCrc32": "0"} | fields)

    bomb = zlib.compress(bytes(BODY_BYTES_MAX + 1))
    return {
        "sum": (ext(bodyCrc32="1"), "crc32 not match"),
        "old": (right._replace(version=36), "version=36"),
        "no name": (ext(brokerName=""), "brokerName"),
        "control": (ext(brokerName="a\nb"), "brokerName"),
        "long name": (ext(clusterName="c" * 256), "clusterName"),
        "no port": (ext(brokerAddr="10.0.0.2"), "brokerAddr"),
        "quotes": (ext(brokerAddr='10.0.0.2","1":"x:1'), "brokerAddr"),
        "id": (ext(brokerId="-1"), "brokerId"),
        "no id": (ext(brokerId="x"), "brokerId"),
        "text": (body(b"nonsense"), "body"),
        "cut off": (body(right.body[:-3]), "body"),
        "no zlib": (body(right.body, compressed="true"), "zlib"),
        "bomb": (body(bomb, compressed="true"), "zlib"),
        "long": (body(bytes(BODY_BYTES_MAX + 1)), "at most"),
        "version body": (
            right._replace(code=codes.QUERY_DATA_VERSION.code, body=b"[" * 100_000),
            "body",
        ),
        "no version": (right._replace(code=codes.QUERY_DATA_VERSION.code, body=b""), "body"),
        "nothing": (right._replace(code=codes.UNREGISTER_BROKER.code, ext={}), "is missing"),
    }


@pytest.mark.parametrize("what", sorted(wrong_requests(Talk())))
def test_a_hostile_registration_is_refused_with_a_reason(
    under_test: BrokerUnderTest, what: str
) -> None:
    """And who was there stays."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        await registered(client)
        command, word = wrong_requests(client)[what]
        command = command._replace(opaque=999)
        client.send(command)
        answer = await client.answer(999)
        assert answer.code == 1
        assert word in answer.remark
        assert await names_of(client, "T") == ["a"]

    named(under_test, scenario)


def test_without_the_key_nobody_registers(under_test: BrokerUnderTest) -> None:
    """An unasked registration would take other brokers' messages; RocketMQ accepts each one."""

    async def scenario(_: ProtocolUnderTest, client: LoopClient) -> None:
        for code in (103, 104, 322):
            client.send(registering(client)._replace(code=code, opaque=code))
            answer = await client.answer(code)
            assert answer.code == 3
            assert "brokersAllowed" in answer.remark
        assert await names_of(client, "T") == []

    named(under_test, scenario, brokers_allowed="")


def test_only_the_addresses_that_are_named_register(under_test: BrokerUnderTest) -> None:
    """Counted and logged as each refusal is; an access key counts only with accounts."""

    async def scenario(protocol: ProtocolUnderTest, client: LoopClient) -> None:
        before = protocol.server.access.refused
        answer = await registered(client)
        assert answer.code == 1
        assert answer.remark == "access denied: brokersAllowed does not name 127.0.0.1"
        assert protocol.server.access.refused == before + 1

    named(under_test, scenario, brokers_allowed=f"10.0.0.*;{KEY}")


@pytest.mark.parametrize(
    ("allowed", "signs_as", "is_trusted", "is_let_in"),
    [
        (KEY, KEY, False, True),
        (KEY, "the-admin", False, False),
        (f"the-admin;{KEY}", "the-admin", False, True),
        (KEY, "", False, False),
        ("127.0.0.1", "", False, False),
        ("127.0.0.1", "", True, True),
        (KEY, "", True, False),
        ("127.0.0.1", KEY, False, False),
    ],
)
def test_with_accounts_the_account_decides(
    under_test: BrokerUnderTest, allowed: str, signs_as: str, is_trusted: bool, is_let_in: bool
) -> None:
    """It needs no right but this one; and who signs nothing must be trusted and named."""
    here = (parse_addresses("127.0.0.1"),) if is_trusted else ()
    known = accounts(
        account(KEY),
        account("the-admin", role=Role.ADMIN),
        global_white_remote_addresses=here,
    )

    async def scenario(protocol: ProtocolUnderTest, client: LoopClient) -> None:
        protocol.server.access.accounts = known
        signed = (signs_as, SECRET) if signs_as else None
        async with protocol.client(signs_as=signed) as broker:
            answer = await registered(broker)
            assert answer.code == (0 if is_let_in else 1)
            assert answer.remark.startswith("access denied") is not is_let_in
            assert await names_of(client, "T") == (["a"] if is_let_in else [])

    named(under_test, scenario, brokers_allowed=allowed)


ORDERS: Final = "ORDER_TOPIC_CONFIG"
CHANGES: Final[dict[str, tuple[RemotingRequest[Any, Any], ...]]] = {
    "mqadmin updateOrderConf T1 (at name server 1 only)": (codes.PUT_KV_CONFIG,),
    "order configuration deleted": (codes.DELETE_KV_CONFIG,),
    "broker-a starts, compressedRegister=true forceRegister=false registerNameServerPeriod=10000": (
        codes.PUT_KV_CONFIG,
        codes.DELETE_KV_CONFIG,
    ),
}
"""What somebody did at the name server beside the captured connections, by event."""


async def change(client: LoopClient, event: str) -> None:
    for row in CHANGES.get(event, ()):
        fields = {"namespace": ORDERS, "key": "T1", "value": "broker-a:4"}
        assert (await client.ask(row, fields)).code == 0


def compare(here: Command, there: Command) -> None:
    """Codes, names of ext fields, and bodies."""
    assert (here.code, here.ext.keys()) == (there.code, there.ext.keys())
    if here.ext.get("changed") == "true":
        # After a topic by itself: RocketMQ would not notice what it lacks.
        assert (there.ext["changed"], here.body) == ("false", b"")
    else:
        assert (here.ext.get("changed"), here.body) == (there.ext.get("changed"), there.body)


@pytest.mark.parametrize("name", sorted(scenarios(CLUSTER)))
def test_brokers_of_rocketmq_get_the_answers_that_were_captured(
    under_test: BrokerUnderTest, name: str
) -> None:
    """Of the first name server, if there are two; a slave's master is there."""

    async def scenario(protocol: ProtocolUnderTest, client: LoopClient) -> None:
        if name == "slave-register":
            master = RegistrationFields("broker-a", "127.0.0.1:1", "C1", "127.0.0.1:2", 0)
            await registered(client, master)
        compared = 0
        async with AsyncExitStack() as stack:
            brokers: dict[str, LoopClient] = {}
            for row in scenarios(CLUSTER)[name]:
                await change(client, row.get("event", ""))
                conn = str(row.get("conn"))
                if "frame_hex" not in row or conn.startswith("namesrv-2"):
                    continue
                if conn not in brokers:
                    brokers[conn] = await stack.enter_async_context(protocol.client())
                if row["dir"] == "client->server":
                    brokers[conn].write(bytes.fromhex(row["frame_hex"]))
                    continue
                there = command_of(bytes.fromhex(row["frame_hex"]))
                compare(await brokers[conn].answer(there.opaque), there)
                compared += 1
        assert compared > 5

    named(under_test, scenario)
