"""Two processes: what one has acknowledged, the other has, and takes over."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import Any

import grpc
import pytest

from rmqlite.client.admin_client import AdminClient
from rmqlite.client.consuming.pull_consumer import PullConsumer
from rmqlite.client.producer import Producer
from rmqlite.kernel.words.errors import NotMaster
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.remoting.bytes.requests.messages import PULL_MESSAGE, PullMessage
from rmqlite.protocols.remoting.bytes.requests.sends import SEND_MESSAGE_V2, SendMessage
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import SEND_MESSAGE, service
from rmqlite.protocols.rocketmq_v2.calls import CLIENT_ID, CLIENT_VERSION
from rmqlite.store_tools.check import check
from tests.support.eventually import eventually
from tests.support.remoting import RawClient
from tests.support.rocketmq_v2_client import VERSION
from tests.support.rocketmq_v2_client import message as v2_message
from tests.support.standbys import Pair, bodies_of, is_master, log_bytes, replication, wait_for_copy

TOPIC = "orders"


def test_both_logs_are_the_same_byte_by_byte(pair: Pair) -> None:
    """Every kind of record goes through the walk of the standby, and fills several files."""
    address = pair.first.endpoint
    with Producer(address, "shop") as producer, AdminClient(address) as admin:
        for number in range(40):
            producer.send(Message(TOPIC, bytes(60_000), keys=(f"key-{number}",)))
        producer.send(Message(TOPIC, b"by level", delay_level=1))
        producer.send(Message(TOPIC, b"at an instant", deliver_after=timedelta(hours=1)))
        producer.send(Message("gone", b"its topic is deleted"))
        admin.delete_topic("gone")
        admin.change_levels("2s 7s 1h")
        producer.send(Message("gone", b"in a topic that is made again"))
        producer.send(Message(TOPIC, b"by another level", delay_level=3))
    wait_for_copy(pair.first)
    pair.second.kill()
    pair.first.stop()
    assert log_bytes(pair.first) == log_bytes(pair.second)
    assert not list(check(pair.second.store))


def test_a_standby_serves_nobody_and_names_the_master(shared: Pair) -> None:
    """Who asks it for messages, or sends some, would believe in an answer that nobody keeps."""
    with (
        Producer(shared.second.endpoint, "shop", retries=0) as producer,
        PullConsumer(shared.second.endpoint, "billing") as consumer,
        AdminClient(shared.second.endpoint) as admin,
    ):
        for ask in (
            lambda: producer.send(Message(TOPIC, b"x")),
            lambda: consumer.queues(TOPIC),
            admin.list_topics,
        ):
            with pytest.raises(NotMaster, match=f"it is {shared.first.endpoint}"):
                ask()


def test_a_standby_serves_no_client_of_rocketmq(shared: Pair) -> None:
    """4.x clients ask again elsewhere after code 14; 5.x clients show the sentence."""
    named = f"not the master; it is {shared.first.endpoint}"
    send = SendMessage(TOPIC, "shop", queue_id=0, sys_flag=0, born_timestamp=1, flag=0)
    pull = PullMessage("billing", TOPIC, 0, 0, 1, 4, 0, 0, 0, "*")
    with RawClient(shared.second.remoting) as client:
        for row, asked in ((SEND_MESSAGE_V2, send), (PULL_MESSAGE, pull)):
            answer = client.ask(row, asked, b"x")
            assert (answer.code, named in answer.remark) == (14, True), answer.remark
    request = service.SendMessageRequest(messages=[v2_message(topic=TOPIC)])
    own = ((CLIENT_ID, "me"), (CLIENT_VERSION, VERSION))
    with grpc.insecure_channel(shared.second.endpoint) as channel:
        call: Any = channel.unary_unary(SEND_MESSAGE.path)
        data = call(request.SerializeToString(), metadata=own, timeout=30)
    status = service.SendMessageResponse.FromString(data).status
    assert (int(status.code), named in status.message) == (50002, True), status


def test_a_lost_master_loses_nothing(pair: Pair) -> None:
    """Its process is killed and its disk is gone; an operator promotes the standby."""
    sent = []
    with Producer(pair.first.endpoint, "shop") as producer:
        for number in range(50):
            body = b"%d" % number
            producer.send(Message(TOPIC, body, delay_level=1 if number % 2 else 0))
            sent.append(body)
    pair.first.kill()
    shutil.rmtree(pair.first.store)
    with AdminClient(pair.second.endpoint) as admin:
        eventually(lambda: not replication(pair.second).is_connected, "the standby hears nothing")
        admin.promote()
        eventually(lambda: is_master(pair.second.endpoint), "the standby is the master")
    assert replication(pair.second).alone_since_ms
    with Producer(pair.second.endpoint, "shop") as producer:
        producer.send(Message(TOPIC, b"after"))
    sent.append(b"after")
    eventually(lambda: len(bodies_of(pair.second, TOPIC)) >= len(sent), "all are delivered")
    assert sorted(bodies_of(pair.second, TOPIC)) == sorted(sent)
