"""Routes, clusters and topics, as clients ask for them before they do anything else."""

from __future__ import annotations

from rmqlite.protocols.remoting.bytes.requests.name_server import (
    GET_ROUTEINFO_BY_TOPIC,
    RouteBody,
    RouteQuery,
)
from rmqlite.protocols.remoting.bytes.shapes import read_body
from tests.support.brokers import BrokerUnderTest
from tests.support.remoting import ProtocolUnderTest, served_protocol


def test_the_route_of_a_topic_has_no_blank_and_names_the_port_that_was_taken(
    under_test: BrokerUnderTest,
) -> None:
    """Go cuts the address out of the text: a blank before it would belong to the address."""

    async def scenario(protocol: ProtocolUnderTest) -> None:
        async with protocol.client(port=protocol.protocol.name_server_port) as client:
            answer = await client.ask(GET_ROUTEINFO_BY_TOPIC, RouteQuery("TBW102"))
            assert answer.code == 0
            assert b" " not in answer.body
            # RocketMQ 5's client for Rust reads no broker without it.
            assert b'"enableActingMaster":false' in answer.body
            route = read_body(RouteBody, answer.body)
            assert route.broker_datas[0].broker_addrs == {0: f"127.0.0.1:{protocol.protocol.port}"}

    served_protocol(under_test, scenario)
