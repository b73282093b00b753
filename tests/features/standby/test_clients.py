"""RocketMQ's clients find the master by either broker, and read why a call is refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.message import Message as Protobuf

from rmqlite.client.admin_client import AdminClient
from rmqlite.client.producer import Producer
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import Unavailable
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.remoting.bytes.requests import name_server as codes
from rmqlite.protocols.remoting.bytes.requests.groups import QUERY_CONSUMER_OFFSET, GroupQueue
from rmqlite.protocols.remoting.bytes.requests.name_server import ClusterInfo, RouteBody, RouteQuery
from rmqlite.protocols.remoting.bytes.requests.sends import SEND_MESSAGE_V2, SendMessage
from rmqlite.protocols.remoting.bytes.shapes import read_body
from rmqlite.protocols.rocketmq_v2.bytes import rpcs
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import RocketmqRpc, definition, service
from rmqlite.protocols.rocketmq_v2.calls import CLIENT_ID, CLIENT_VERSION
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK, free_port
from tests.support.eventually import eventually
from tests.support.remoting import ConnectionClosed, RawClient
from tests.support.rocketmq_v2_client import VERSION, delayed
from tests.support.rocketmq_v2_client import message as v2_message
from tests.support.standbys import Pair, is_master, wait_for_copy

TOPIC = "orders"
A = TypeVar("A", bound=Protobuf)


def route_at(name_server: str, topic: str) -> dict[int, str]:
    """The addresses of a topic's brokers by id, at this name server; empty without a route."""
    try:
        with RawClient(name_server) as client:
            answer = client.ask(codes.GET_ROUTEINFO_BY_TOPIC, RouteQuery(topic, is_strict=True))
    except (OSError, ConnectionClosed):
        # The broker changes its role.
        return {}
    if answer.code:
        # There is no route, or the broker drains before it has its other role.
        return {}
    route = read_body(RouteBody, answer.body)
    assert [each.read_queue_nums for each in route.queue_datas] == [4]
    (broker,) = route.broker_datas
    return dict(broker.broker_addrs)


def all_say(wanted: dict[int, str], *name_servers: str) -> None:
    for server in name_servers:
        eventually(lambda: route_at(server, TOPIC) == wanted, f"{server}: {wanted}")  # noqa: B023


def asked(broker: BrokerProcess, rpc: RocketmqRpc[Any, A], request: Any) -> A:
    """The answer of RocketMQ 5's gRPC protocol."""
    own = ((CLIENT_ID, "me"), (CLIENT_VERSION, VERSION))
    with grpc.insecure_channel(broker.endpoint) as channel:
        call: Any = channel.unary_unary(rpc.path)
        answer: A = rpc.answer.FromString(
            call(request.SerializeToString(), metadata=own, timeout=30)
        )
        return answer


def masters_at(broker: BrokerProcess, pair: Pair) -> set[str]:
    """Where a 5.x client that has asked this broker sends; it knows both."""
    request = service.QueryRouteRequest(topic=definition.Resource(name=TOPIC))
    request.endpoints.scheme = definition.IPv4
    for address in pair.endpoints.split(","):
        host, _, port = address.rpartition(":")
        request.endpoints.addresses.add(host=host, port=int(port))
    answer = asked(broker, rpcs.QUERY_ROUTE, request)
    found = [queue.broker.endpoints.addresses for queue in answer.message_queues]
    return {",".join(f"{each.host}:{each.port}" for each in addresses) for addresses in found}


def test_every_name_server_knows_which_of_the_two_is_the_master(tmp_path: Path) -> None:
    """That of each of them, and a third one; before and after one takes the other's place."""
    third = f"127.0.0.1:{free_port()}"
    keys = {"nameServerPort": third.rpartition(":")[2], "brokersAllowed": "127.0.0.1"}
    names = BrokerProcess(tmp_path / "names", OF_ANY_DISK | keys | {"brokerName": "names"})
    with names, Pair(tmp_path, more_name_servers=f";{third}") as pair:
        first, second = pair.first, pair.second
        with AdminClient(pair.endpoints) as admin:
            admin.create_topic(TOPIC, queues=4)

        all_three = (first.name_server, second.name_server, third)
        all_say({0: first.remoting, 1: second.remoting}, *all_three)
        with RawClient(second.name_server) as client:
            info = read_body(ClusterInfo, client.ask(codes.GET_BROKER_CLUSTER_INFO).body)
        assert info.broker_addr_table["broker-a"].broker_addrs[0] == first.remoting
        assert route_at(second.name_server, "of-nobody") == {}
        first.kill()
        # Without a master a producer asks for a route with each send: it goes on at once.
        all_say({1: second.remoting}, second.name_server, third)
        with AdminClient(second.endpoint) as admin:
            admin.promote(force=True)
        all_say({0: second.remoting}, second.name_server, third)
        first.start()
        all_say({0: second.remoting, 1: first.remoting}, *all_three)
        # And once more: what was promoted before follows, too, when it comes back.
        wait_for_copy(second)
        second.kill()
        with AdminClient(first.endpoint) as admin:
            admin.promote(force=True)
        second.start()
        all_say({0: first.remoting, 1: second.remoting}, *all_three)
        wait_for_copy(first)


def test_a_standby_shows_clients_of_rocketmq_5_the_master(pair: Pair) -> None:
    """A client asks any of the addresses that it has; also to take a delayed message back."""
    assert masters_at(pair.first, pair) == {pair.first.endpoint}
    assert masters_at(pair.second, pair) == {pair.first.endpoint}
    sent = delayed("later", wall_ms() + 3_600_000, topic=TOPIC)
    request = service.SendMessageRequest(messages=[sent])
    (entry,) = asked(pair.first, rpcs.SEND_MESSAGE, request).entries
    recall = service.RecallMessageRequest(
        topic=definition.Resource(name=TOPIC), recall_handle=entry.recall_handle
    )
    assert asked(pair.second, rpcs.RECALL_MESSAGE, recall).status.code == 20000
    with Producer(pair.endpoints, "shop", send_timeout_ms=4_000) as producer:
        producer.send(Message(TOPIC, b"before"))
        os.kill(pair.first.pid, signal.SIGSTOP)
        with pytest.raises(Unavailable, match="did not answer in time"):
            producer.send(Message(TOPIC, b"at a master that hangs"))
        with AdminClient(pair.second.endpoint) as admin:
            admin.promote(force=True)
        eventually(lambda: is_master(pair.second.endpoint), "the standby is the master")
        # Our client asks the other one, though its connection is open.
        producer.send(Message(TOPIC, b"after"))
    pair.first.kill()
    assert masters_at(pair.second, pair) == {pair.second.endpoint}


def test_a_standby_without_its_master_says_so(pair: Pair) -> None:
    """Clients keep the route that they have, and ask again."""
    pair.first.kill()
    request = service.QueryRouteRequest(topic=definition.Resource(name=TOPIC))
    answer = asked(pair.second, rpcs.QUERY_ROUTE, request)
    sentence = f"not the master; it is {pair.first.endpoint}"
    assert (answer.status.code, sentence in answer.status.message) == (50002, True)


def test_a_standby_does_not_answer_for_offsets(shared: Pair) -> None:
    """Java's and C++'s clients take any error for "no offset yet", and skip or repeat messages."""
    with RawClient(shared.second.remoting) as client:
        asked = client.request(QUERY_CONSUMER_OFFSET, GroupQueue("billing", TOPIC, 0))
        client.send(asked)
        # The next one is answered, that one not.
        client.ask(codes.GET_BROKER_CLUSTER_INFO)
        assert asked.opaque not in client.answers


def test_each_client_reads_why_a_message_is_refused(pair: Pair) -> None:
    """With code and sentence: none of them calls it sent, each may try again."""
    with Producer(pair.first.endpoint, "shop") as producer:
        producer.send(Message(TOPIC, b"with two copies"))
    pair.second.kill()
    sentence = f"the standby is away, and inSyncReplicas=2: {pair.second.endpoint}"
    with (
        Producer(pair.first.endpoint, "shop", retries=0) as producer,
        pytest.raises(Unavailable, match=sentence) as caught,
    ):
        # The first one waits until the standby is given up.
        producer.send(Message(TOPIC, b"x"))
    assert caught.value.can_retry
    with Producer(pair.first.endpoint, "shop", retries=0) as producer:
        for _ in range(2):
            with pytest.raises(Unavailable, match=sentence):
                producer.send(Message(TOPIC, b"x"))
    send = SendMessage(TOPIC, "shop", queue_id=0, sys_flag=0, born_timestamp=1, flag=0)
    with RawClient(pair.first.remoting) as client:
        remoting = client.ask(SEND_MESSAGE_V2, send, b"x")
    # At this code Java's client tries its other queues, and shows the sentence in the end.
    assert (remoting.code, remoting.remark) == (14, sentence)
    request = service.SendMessageRequest(messages=[v2_message(topic=TOPIC)])
    status = asked(pair.first, rpcs.SEND_MESSAGE, request).status
    # At this code clients try again after a pause.
    assert (status.code, status.message) == (42900, sentence)
    pair.second.start()
    wait_for_copy(pair.first)
    with Producer(pair.first.endpoint, "shop") as producer:
        producer.send(Message(TOPIC, b"with two copies again"))
