"""RocketMQ's own Java, Go and C++ clients, unmodified, against a broker process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rmqlite.client import AdminClient, Message, Producer
from rmqlite.kernel.words.names import dlq_topic
from rmqlite.testing import BrokerProcess
from tests.support.eventually import eventually
from tests.support.programs import Program

KeysIn = Callable[[str], Counter[str]]


def make(broker: BrokerProcess, topic: str, queues: int = 4, group: str = "") -> None:
    """A topic, and a group whose messages are retried twice."""
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        admin.create_topic(topic, queues)
        if group:
            admin.set_group(group, max_reconsume_times=2)


def test_every_way_to_send_stores_each_message_once(
    client: Program, client_name: str, keys_in: KeysIn
) -> None:
    """One by one, one way, asynchronous, as a batch, delayed, compressed."""
    topic = f"{client_name}-sends"
    sent = client.send(topic, "first", tags="TagA")
    assert sent[0]["status"] == "SEND_OK"
    client.send(topic, "one-way", how="oneway")
    client.send(topic, "later", level=1)
    client.send(topic, "compressed", size=6_000)
    expected = ["first", "one-way", "later", "compressed"]
    if client_name != "cpp":
        # The wheel has neither of them.
        client.send(topic, "asynchronous", how="async")
        batch = client.send(topic, "b1", "b2", "b3", how="batch")
        assert batch[0]["status"] == "SEND_OK"
        expected += ["asynchronous", "b1", "b2", "b3"]
    eventually(lambda: keys_in(topic) == Counter(expected), "each of them is there once")
    client.push(f"{client_name}-readers", topic)
    client.until(lambda: len(client.got(topic=topic)) >= len(expected), "all are consumed")
    (compressed,) = client.got(got="compressed", topic=topic)
    assert compressed["size"] == 6_000
    assert sorted(client.keys(topic=topic)) == sorted(expected)
    client.do("stop", name=f"{client_name}-readers")


def test_a_failed_message_comes_again_and_at_last_is_a_dead_letter(
    client: Program, client_name: str, broker: BrokerProcess, keys_in: KeysIn
) -> None:
    """Two retries, as the group says; one is enough for the other message."""
    topic, group = f"{client_name}-fails", f"{client_name}-failing"
    make(broker, topic, group=group)
    client.push(group, topic, fails={"once": 1, "always": 99}, max=2, level=1)
    # One after the other: the C++ client sends back all messages that it has pulled with one
    # that fails.
    client.send(topic, "never")
    client.send(topic, "once")
    client.until(lambda: client.keys(group).count("once") == 2, "it comes again")
    client.send(topic, "always")
    client.until(lambda: client.keys(group).count("always") == 3, "1 + 2 deliveries")
    eventually(lambda: keys_in(dlq_topic(group)) == {"always": 1}, "it is a dead letter")
    times = {key: [e["times"] for e in client.got(group, got=key)] for key in ("once", "always")}
    assert times == {"once": [0, 1], "always": [0, 1, 2]}
    assert client.keys(group).count("never") == 1
    client.do("stop", name=group)


def test_a_consumer_gets_the_tags_that_it_wants(
    client: Program, client_name: str, broker: BrokerProcess
) -> None:
    """And none of the others, whose offsets it passes."""
    topic, group = f"{client_name}-tagged", f"{client_name}-choosy"
    make(broker, topic)
    for key, tags in (("a", "TagA"), ("b", "TagB"), ("c", "TagC"), ("a2", "TagA")):
        client.send(topic, key, tags=tags)
    client.push(group, topic, expression="TagA || TagC")
    client.send(topic, "last", tags="TagC")
    client.until(lambda: "last" in client.keys(group), "the last one arrives")
    client.until(lambda: len(client.keys(group)) >= 4, "all of them arrive")
    assert sorted(client.keys(group)) == ["a", "a2", "c", "last"]
    client.do("stop", name=group)


def test_an_orderly_consumer_gets_each_queue_in_order(
    client: Program, client_name: str, broker: BrokerProcess
) -> None:
    """A message that fails holds up those behind it."""
    topic, group = f"{client_name}-ordered", f"{client_name}-orderly"
    make(broker, topic, queues=2)
    keys = [f"o{number}" for number in range(20)]
    client.send(topic, *keys)
    client.push(group, topic, orderly=True, fails={} if client_name == "cpp" else {"o4": 1})
    client.until(lambda: set(client.keys(group)) == set(keys), "all of them arrive")
    for queue in (0, 1):
        offsets = [event["offset"] for event in client.got(group, queue=queue)]
        assert offsets == sorted(offsets)
    client.do("stop", name=group)


def test_every_broadcast_consumer_gets_every_message(
    client: Program, client_name: str, broker: BrokerProcess
) -> None:
    """They share nothing, and commit nothing here."""
    topic, group = f"{client_name}-news", f"{client_name}-listeners"
    make(broker, topic)
    names = [f"{client_name}-one", f"{client_name}-two"]
    for name in names:
        client.push(group, topic, name=name, broadcast=True)
    # Go and C++ begin a broadcast at the end: send until both are there.
    for number in range(60):
        client.send(topic, f"n{number}")
        if all(client.keys(name) for name in names):
            break
    client.send(topic, "last")
    for name in names:
        client.until(lambda name=name: "last" in client.keys(name), "both get the last one")  # type: ignore[misc]
        client.do("stop", name=name)
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        assert not [each for each in admin.group(group).progress if each.committed_offset]


def test_two_members_share_the_queues_and_one_takes_over(
    client: Program, client_name: str, broker: BrokerProcess
) -> None:
    """Each message goes to one of them; after one has left, the other gets all."""
    if client_name == "cpp":
        pytest.skip("the C++ client keeps one set of consumers for each process")
    topic, group = f"{client_name}-shared", f"{client_name}-team"
    make(broker, topic)
    names = [f"{client_name}-left", f"{client_name}-right"]
    for name in names:
        client.push(group, topic, name=name)
    for number in range(200):
        client.send(topic, f"s{number}")
        if all(client.keys(name) for name in names):
            break
    assert all(client.keys(name) for name in names)
    client.do("stop", name=names[0])
    client.send(topic, *[f"after{number}" for number in range(8)])
    alone = {f"after{number}" for number in range(8)}
    client.until(lambda: alone <= set(client.keys(names[1])), "the other one gets them")
    client.do("stop", name=names[1])


def test_what_python_sends_is_consumed(
    client: Program, client_name: str, broker: BrokerProcess
) -> None:
    """Two protocols, one broker."""
    topic, group = f"{client_name}-from-python", f"{client_name}-of-python"
    make(broker, topic)
    client.push(group, topic)
    with Producer(broker.endpoint, "pythons", send_timeout_ms=60_000) as producer:
        producer.send(Message(topic, b"hello", keys="now", tags="T", properties={"who": "me"}))
        producer.send(Message(topic, b"hello", keys="later", delay_level=1))
        client.until(lambda: len(client.keys(group)) >= 2, "both arrive")
    now, later = client.got(group)
    assert (now["got"], now["tags"], now["size"]) == ("now", "T", 5)
    assert later["got"] == "later"
    client.do("stop", name=group)
