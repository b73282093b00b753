"""Messages that one protocol sends and another consumes, retries and buries."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

import pytest

from rmqlite.client import (
    CONSUME_SUCCESS,
    AdminClient,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    StoredMessage,
)
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.testing import BrokerProcess
from tests.support import toolchains
from tests.support.eventually import eventually
from tests.support.grpc_clients import GrpcClient, on_each
from tests.support.programs import Program


@pytest.fixture(scope="module")
def java(v2_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A client of 4.9 at the same broker."""
    log = tmp_path_factory.mktemp("client-of-4.9") / "java.log"
    with Program(toolchains.java(), v2_broker.name_server, log) as program:
        yield program


def test_what_the_other_protocols_send_is_consumed(
    clients: list[GrpcClient], admin: AdminClient, v2_broker: BrokerProcess, java: Program
) -> None:
    """With tags, properties and delays, of a client of 4.9 and of rmqlite's own."""
    topics = [f"{client.name}-from-others" for client in clients]
    for topic in topics:
        admin.create_topic(topic, 4)
    with Producer(v2_broker.endpoint, "own", send_timeout_ms=60_000) as own:
        for topic in topics:
            java.send(topic, "java", tags="T", properties={"who": "java"})
            java.send(topic, "java-later", tags="T", level=1)
            java.send(topic, "java-large", tags="T", size=6_000)
            own.send(Message(topic, b"hello", keys="own", tags="T", properties={"who": "own"}))
            own.send(Message(topic, b"hello", keys="own-later", tags="T", delay_level=1))

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-from-others", f"{client.name}-of-others"
        client.push(group, topic, expression="T", fails={"java": 1, "own": 1})
        expected = {"java", "java-later", "java-large", "own", "own-later"}
        client.until(lambda: set(client.keys(group)) == expected, "all of them arrive")
        for who in ("java", "own"):
            client.until(lambda who=who: client.keys(group).count(who) == 2, "it comes again")  # type: ignore[misc]
            first, second = client.got(group, got=who)
            assert (first["attempt"], second["attempt"]) == (1, 2)
            assert second["properties"]["who"] == who
        # A client of 4.9 compresses what is large.
        assert client.got(group, got="java-large")[0]["size"] == 6_000

    for topic in topics:
        admin.set_group(topic.replace("from", "of"), retry_policy="1s 1s")
    on_each(clients, scenario)


def test_what_these_clients_send_the_others_consume(
    clients: list[GrpcClient], admin: AdminClient, v2_broker: BrokerProcess, java: Program
) -> None:
    """A client of 4.9 and rmqlite's own, each in a group of its own, with retries."""
    admin.create_topic("to-others", 4)
    admin.set_group("java-readers", max_reconsume_times=1)
    got: list[StoredMessage] = []
    lock = Lock()

    def listen(message: StoredMessage) -> ConsumeResult:
        with lock:
            got.append(message)
        return CONSUME_SUCCESS

    def scenario(client: GrpcClient) -> None:
        about = {"tags": "T", "properties": {"who": client.name}}
        client.send("to-others", f"{client.name}-now", **about)
        client.send("to-others", f"{client.name}-soon", at_ms=wall_ms() + 500, **about)
        client.do("transact", topic="to-others", decides={f"{client.name}-half": "commit"})

    expected = {f"{client.name}-{what}" for client in clients for what in ("now", "soon", "half")}
    with PushConsumer(v2_broker.endpoint, "own-readers", listen) as own:
        own.subscribe("to-others")
        own.start()
        fails = {f"{client.name}-now": 99 for client in clients}
        java.push("java-readers", "to-others", fails=fails, max=1, level=1)
        on_each(clients, scenario)
        java.until(lambda: expected == set(java.keys("java-readers")), "Java gets all of them")
        eventually(lambda: {" ".join(m.keys) for m in got} == expected, "so does our client")
        eventually(lambda: len(list(admin.letters.dead("java-readers"))) == len(fails), "dead")
    java.do("stop", name="java-readers")
    who = {m.properties["who"] for m in got if " ".join(m.keys).endswith("now")}
    assert who == {client.name for client in clients}
