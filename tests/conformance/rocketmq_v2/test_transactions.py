"""Transactions of the official gRPC clients: what they decide, and what they are asked."""

from __future__ import annotations

from collections import Counter

from rmqlite.client import AdminClient
from tests.support.grpc_clients import GrpcClient, on_each


def test_a_transaction_is_committed_rolled_back_or_asked_about(
    clients: list[GrpcClient], admin: AdminClient
) -> None:
    """Consumers see what is committed, at once or by a later check, once; never the rest."""
    for client in clients:
        admin.create_topic(f"{client.name}-transacted", 4)

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-transacted", f"{client.name}-readers"
        decides = {"now": "commit", "gone": "rollback", "later": "unknown", "never": "unknown"}
        checks = {"later": "commit", "never": "rollback"}
        client.push(group, topic)
        client.do("transact", topic=topic, decides=decides, checks=checks, size=100)
        client.until(lambda: {"later", "never"} <= set(client.said("checked")), "both are asked")
        client.until(lambda: {"now", "later"} <= set(client.keys(group)), "two arrive")
        assert Counter(client.keys(group)) == {"now": 1, "later": 1}
        assert {event["size"] for event in client.events if "checked" in event} == {100}

    on_each(clients, scenario)
    for client in clients:
        stored = sum(each.max_offset for each in admin.ranges(f"{client.name}-transacted"))
        assert stored == 2
