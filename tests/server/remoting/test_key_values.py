"""The name server's values, its settings, and the permission to write in its routes."""

from __future__ import annotations

from pathlib import Path

from rmqlite.protocols.remoting.bytes.requests.broker import KvTable, read_settings, write_settings
from rmqlite.protocols.remoting.bytes.requests.name_server import (
    ADD_WRITE_PERM_OF_BROKER,
    DELETE_KV_CONFIG,
    DELETE_TOPIC_IN_NAMESRV,
    GET_KV_CONFIG,
    GET_KVLIST_BY_NAMESPACE,
    GET_NAMESRV_CONFIG,
    GET_ROUTEINFO_BY_TOPIC,
    PUT_KV_CONFIG,
    UPDATE_NAMESRV_CONFIG,
    WIPE_WRITE_PERM_OF_BROKER,
    KvKey,
    KvNamespace,
    KvPair,
    OfBroker,
    RouteBody,
    RouteQuery,
    TopicDelete,
)
from rmqlite.protocols.remoting.bytes.shapes import read_body
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import TOPIC, create_topic
from tests.support.remoting import LoopClient, ProtocolUnderTest, served_protocol


async def route(client: LoopClient, topic: str = TOPIC) -> RouteBody:
    answer = await client.ask(GET_ROUTEINFO_BY_TOPIC, RouteQuery(topic))
    assert answer.code == 0
    return read_body(RouteBody, answer.body)


def test_values_are_put_read_listed_and_deleted(under_test: BrokerUnderTest) -> None:
    """One that does not exist is 22, also when it is listed; deleting it again is no error."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(port=protocol.protocol.name_server_port) as client:
            for key in ("k1", "k2"):
                pair = KvPair("space", key, f"value of {key}")
                assert (await client.ask(PUT_KV_CONFIG, pair)).code == 0
            answer = await client.ask(GET_KV_CONFIG, KvKey("space", "k1"))
            assert (answer.code, answer.ext["value"]) == (0, "value of k1")
            answer = await client.ask(GET_KVLIST_BY_NAMESPACE, KvNamespace("space"))
            table = read_body(KvTable, answer.body).table
            assert table == {"k1": "value of k1", "k2": "value of k2"}
            for _ in range(2):
                gone = await client.ask(DELETE_KV_CONFIG, KvKey("space", "k1"))
                assert gone.code == 0
            assert (await client.ask(GET_KV_CONFIG, KvKey("space", "k1"))).code == 22
            answer = await client.ask(GET_KVLIST_BY_NAMESPACE, KvNamespace("other"))
            assert answer.code == 22

    served_protocol(under_test, scenario)


def test_a_route_tells_the_order_of_a_topic_while_that_is_on(under_test: BrokerUnderTest) -> None:
    """updateTopic -o and updateOrderConf; the switch is the one setting that changes at once."""
    create_topic(under_test, TOPIC, 4)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(port=protocol.protocol.name_server_port) as client:
            pair = KvPair("ORDER_TOPIC_CONFIG", TOPIC, "broker-a:4")
            assert (await client.ask(PUT_KV_CONFIG, pair)).code == 0
            for value, told in (("true", "broker-a:4"), ("false", None)):
                wanted = write_settings({"orderMessageEnable": value})
                assert (await client.ask(UPDATE_NAMESRV_CONFIG, None, wanted)).code == 0
                body = (await client.ask(GET_NAMESRV_CONFIG)).body
                assert read_settings(body)["orderMessageEnable"] == value
                assert (await route(client)).order_topic_conf == told
            for setting, code in (
                ({"listenPort": "1"}, 16),
                ({"nonsense": "1"}, 1),
                ({"orderMessageEnable": "maybe"}, 1),
            ):
                refused = await client.ask(UPDATE_NAMESRV_CONFIG, None, write_settings(setting))
                assert refused.code == code
                assert next(iter(setting)) in refused.remark

    served_protocol(under_test, scenario)


def test_producers_are_kept_away_and_let_in_again(under_test: BrokerUnderTest) -> None:
    """wipeWritePerm and addWritePerm: only routes change, so consumers go on."""
    create_topic(under_test, TOPIC, 4)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(port=protocol.protocol.name_server_port) as client:
            topics = str(len(under_test.broker.topics.all()))
            answer = await client.ask(WIPE_WRITE_PERM_OF_BROKER, OfBroker("other"))
            assert answer.ext["wipeTopicCount"] == "0"
            assert (await route(client)).queue_datas[0].perm == 6
            answer = await client.ask(WIPE_WRITE_PERM_OF_BROKER, OfBroker("broker-a"))
            assert answer.ext["wipeTopicCount"] == topics
            assert (await route(client)).queue_datas[0].perm == 4
            assert under_test.broker.topics.existing(TOPIC).perm == 6
            answer = await client.ask(ADD_WRITE_PERM_OF_BROKER, OfBroker("broker-a"))
            assert answer.ext["addTopicCount"] == topics
            assert (await route(client)).queue_datas[0].perm == 6

    served_protocol(under_test, scenario)


def test_a_deletion_at_the_name_server_leaves_the_topic(under_test: BrokerUnderTest) -> None:
    """Routes are made of the broker's topics; mqadmin deletes at the broker first."""
    create_topic(under_test, TOPIC, 4)

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(port=protocol.protocol.name_server_port) as client:
            asked = TopicDelete(TOPIC, "DefaultCluster")
            assert (await client.ask(DELETE_TOPIC_IN_NAMESRV, asked)).code == 0
            assert (await route(client)).queue_datas[0].write_queue_nums == 4

    served_protocol(under_test, scenario)


def test_tools_find_the_topics_with_which_they_measure(tmp_path: Path) -> None:
    """sendMsgStatus and clusterRT ask for a route first, also without topics on demand."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(port=protocol.protocol.name_server_port) as client:
            assert (await route(client, "broker-a")).queue_datas[0].write_queue_nums == 1
            assert (await route(client, "DefaultCluster")).queue_datas[0].write_queue_nums == 16
            answer = await client.ask(GET_ROUTEINFO_BY_TOPIC, RouteQuery("other"))
            assert answer.code == 17

    served_protocol(BrokerUnderTest(tmp_path, auto_create_topic=False), scenario)
