"""The official gRPC clients with a thousand topics each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.testing import BrokerProcess
from tests.support.eventually import eventually
from tests.support.grpc_clients import COMMANDS, GrpcClient

TOPICS, TOPICS_IN_A_LONG_RUN = 100, 1_000
ALWAYS = "node"
"""Its start is the most fragile: it waits for ever for what it has missed."""
PRODUCED = 20
"""By the client itself; more would take it long, because it asks for each route alone."""


@pytest.fixture(scope="module")
def topics(v2_broker: BrokerProcess, pytestconfig: pytest.Config) -> list[str]:
    """Each with a message, which makes it."""
    count = TOPICS_IN_A_LONG_RUN if pytestconfig.getoption("--long") else TOPICS
    names = [f"v2-many-{number}" for number in range(count)]
    with Producer(v2_broker.endpoint, "senders", send_timeout_ms=60_000) as producer:
        for each in [producer.send_async(Message(name, b"hello", keys="first")) for name in names]:
            each.result()
    return names


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_consumer_of_a_thousand_topics_gets_a_message_of_each(
    name: str,
    topics: list[str],
    v2_broker: BrokerProcess,
    admin: AdminClient,
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    """It parks a receive for each of them on one connection, and is still heard on it.

    One client after the other: each asks for an assignment of each every five seconds.  Without
    --long, it is a hundred topics.
    """
    if name != ALWAYS and not pytestconfig.getoption("--every-client"):
        pytest.skip("only with --every-client")
    group, own = f"{name}-many", f"of-{name}"
    with GrpcClient(name, COMMANDS[name](), v2_broker.endpoint, tmp_path / "log") as client:
        client.push(group, *topics)
        for topic in topics[:PRODUCED]:
            client.send(topic, own)
        client.until(lambda: is_complete(client, "first", topics), "all of them arrive")
        client.until(lambda: is_complete(client, own, topics[:PRODUCED]), "its own, too")
        eventually(lambda: admin.broker_status().parked_polls >= len(topics), "all of them wait")


def is_complete(client: GrpcClient, key: str, topics: list[str]) -> bool:
    """Whether there is one message with this key of each of these topics, and no other one."""
    return Counter(event["topic"] for event in client.got(got=key)) == Counter(topics)
