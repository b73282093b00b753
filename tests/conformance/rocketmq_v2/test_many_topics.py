"""The official gRPC clients with a thousand topics each."""

from __future__ import annotations

from collections import Counter

from rmqlite.client import AdminClient
from tests.conformance.rocketmq_v2.clients import GrpcClient, on_each

TOPICS = 1_000


def test_a_consumer_of_a_thousand_topics_gets_a_message_of_each(
    clients: list[GrpcClient], admin: AdminClient
) -> None:
    """It parks a receive for each of them on one connection, and is still heard on it."""
    topics = [f"v2-many-{number}" for number in range(TOPICS)]
    for topic in topics:
        admin.create_topic(topic, 1)

    def scenario(client: GrpcClient) -> None:
        group = f"{client.name}-many"
        client.push(group, *topics)
        for topic in topics:
            client.send(topic, f"{client.name} {topic}")
        expected = Counter(f"{client.name} {topic}" for topic in topics)
        client.until(lambda: expected <= Counter(client.keys(group)), "all of them arrive")
        own = [key for key in client.keys(group) if key.startswith(client.name)]
        assert Counter(own) == expected

    on_each(clients, scenario)
