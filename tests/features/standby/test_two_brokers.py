"""Two processes: what one has acknowledged, the other has, and takes over."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pytest

from rmqlite.client.admin_client import AdminClient
from rmqlite.client.consuming.pull_consumer import PullConsumer
from rmqlite.client.producer import Producer
from rmqlite.kernel.words.errors import NotMaster
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.check import check
from tests.support.eventually import eventually
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


def test_a_standby_serves_nobody_and_names_the_master(pair: Pair) -> None:
    """Who asks it for messages, or sends some, would believe in an answer that nobody keeps."""
    with (
        Producer(pair.second.endpoint, "shop", retries=0) as producer,
        PullConsumer(pair.second.endpoint, "billing") as consumer,
        AdminClient(pair.second.endpoint) as admin,
    ):
        for ask in (
            lambda: producer.send(Message(TOPIC, b"x")),
            lambda: consumer.queues(TOPIC),
            admin.list_topics,
        ):
            with pytest.raises(NotMaster, match=f"it is {pair.first.endpoint}"):
                ask()


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
