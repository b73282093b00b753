"""What the official gRPC clients send, and take with a simple consumer, one message at a time."""

from __future__ import annotations

import pytest

from rmqlite.client import AdminClient
from rmqlite.features.changes.requests import PendingFilter
from rmqlite.kernel.words.clock import wall_ms
from tests.conformance.rocketmq_v2.conftest import OURS, THEIRS, Place
from tests.support.grpc_clients import INVALID_HANDLE, INVISIBLE_S, GrpcClient, on_each, refusals

FOUR_MIB = 4 << 20
INTERNAL_ERROR = 50_001
OVERHEAD = 64 << 10
"""The client for Node takes at most 4 MiB of a whole answer."""
HOUR_MS = 3_600_000


def test_every_type_of_message_is_sent_and_received(place: Place) -> None:
    """Normal, ordered, delayed, of a transaction, asynchronous: with all that was set."""
    place.make_for_each("types")

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-types", f"{client.name}-takers"
        about = {"tags": "TagA", "size": 100, "properties": {"colour": "red", "weight": "7"}}
        (sent,) = client.send(topic, "normal", **about)
        client.send(topic, "ordered", ordered="a group")
        client.send(topic, "asynchronous", how="async")
        client.do("transact", topic=topic, decides={"committed": "commit"})
        due_ms = wall_ms() + 1_200
        (delayed,) = client.send(topic, "delayed", at_ms=due_ms)
        assert delayed["handle"]
        client.simple(group, topic)
        keys = ("normal", "ordered", "asynchronous", "committed", "delayed")
        came = {event["got"]: event for event in client.receive_all(group, *keys)}
        assert {(e["topic"], e["attempt"], e["corrupted"]) for e in came.values()} == {
            (topic, 1, False)
        }
        normal = came["normal"]
        assert (normal["tags"], normal["size"], normal["id"]) == ("TagA", 100, sent["id"])
        assert normal["properties"] == {"colour": "red", "weight": "7"}
        assert came["ordered"]["ordered"] == "a group"
        assert came["ordered"]["tags"] is None
        assert came["delayed"]["at_ms"] >= due_ms
        client.ack(group, *keys)
        client.stop(group)

    on_each(place.clients, scenario)


def test_what_is_acknowledged_is_gone_and_what_is_refused_comes_again(place: Place) -> None:
    """One is done, one comes again at once, one is held for longer; an old handle is refused."""
    place.make_for_each("acks")

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-acks", f"{client.name}-ackers"
        client.send(topic, "done", "again", "held")
        client.simple(group, topic)
        client.receive_all(group, "done", "again", "held")
        client.ack(group, "done")
        for key, seconds in (("held", INVISIBLE_S), ("again", 1)):
            said = client.do("hold", name=group, key=key, seconds=seconds)
            assert not refusals(said), said
        (again,) = client.receive_all(group, "again")
        assert again["attempt"] == 2
        client.ack(group, "again")
        client.ack(group, "held")
        if place.name == THEIRS:
            # It says nothing of a handle whose message is done.
            return
        for asked in (
            {"do": "ack", "keys": ["done"]},
            {"do": "ack", "keys": ["again"]},
            {"do": "hold", "key": "done", "seconds": 1},
        ):
            (refused,) = refusals(client.do(str(asked.pop("do")), name=group, **asked))
            # The proxy has one code for every reason of a broker.
            expected = INVALID_HANDLE if place.name == OURS else INTERNAL_ERROR
            assert refused["code"] == expected, refused
        client.stop(group)

    on_each(place.clients, scenario)


def test_a_delayed_message_is_recalled_once(place: Place, admin: AdminClient) -> None:
    """Who is late is told so."""
    if place.name == THEIRS:
        pytest.skip("RocketMQ says each time, and of a delivered one, too, that it is recalled")
    place.make_for_each("recalls")

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-recalls", f"{client.name}-recallers"
        (far,) = client.send(topic, "far", at_ms=wall_ms() + HOUR_MS)
        (near,) = client.send(topic, "near", at_ms=wall_ms() + 500)
        asked = {"topic": topic, "handle": far["handle"]}
        said = client.do("recall", **asked)
        assert [event["recalled"] for event in said if "recalled" in event] == [far["id"]]
        assert refusals(client.do("recall", **asked))
        client.simple(group, topic)
        client.receive_all(group, "near")
        assert refusals(client.do("recall", topic=topic, handle=near["handle"]))
        assert refusals(client.do("recall", topic=topic, handle="no handle"))
        client.ack(group, "near")
        client.stop(group)

    on_each(place.clients, scenario)
    for client in place.clients:
        assert not list(admin.schedule.pending(PendingFilter(topic=f"{client.name}-recalls")))


def test_a_body_of_4_mib_arrives(place: Place) -> None:
    """Node can send it, too, and the others receive it: its client takes a little less."""
    place.make_for_each("large")
    by_name = {client.name: client for client in place.clients}

    def scenario(client: GrpcClient) -> None:
        topic, group = f"{client.name}-large", f"{client.name}-carriers"
        is_node = client.name == "node"
        size = FOUR_MIB - OVERHEAD if is_node else FOUR_MIB
        client.send(topic, "large", size=size)
        client.simple(group, topic)
        (large,) = client.receive_all(group, "large")
        assert (large["size"], large["corrupted"]) == (size, False)
        client.ack(group, "large")
        client.stop(group)

    on_each(place.clients, scenario)
    if {"node", "python"} <= by_name.keys():
        python = by_name["python"]
        by_name["node"].send("node-large", "whole", size=FOUR_MIB)
        python.simple("node-carriers", "node-large")
        (whole,) = python.receive_all("node-carriers", "whole")
        assert whole["size"] == FOUR_MIB
        python.ack("node-carriers", "whole")
        python.stop("node-carriers")


def test_a_consumer_gets_the_tags_and_what_the_sql_expression_wants(place: Place) -> None:
    """And none of the others; each group has its own view of the topic."""
    place.make_for_each("filters")

    def scenario(client: GrpcClient) -> None:
        topic = f"{client.name}-filters"
        for key, tags, amount in (("a", "TagA", "9"), ("b", "TagB", "10"), ("c", "TagC", "11")):
            client.send(topic, key, tags=tags, properties={"amount": amount})
        for group, wanted, keys in (
            (f"{client.name}-tags", {"expression": "TagA || TagC"}, ("a", "c")),
            (f"{client.name}-sql", {"sql": "amount > 9 AND TAGS <> 'TagC'"}, ("b",)),
        ):
            client.simple(group, topic, **wanted)
            client.receive_all(group, *keys)
            client.ack(group, *keys)
            client.stop(group)

    on_each(place.clients, scenario)
