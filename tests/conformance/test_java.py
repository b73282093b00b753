"""What only the Java client does here: pulls, SQL, transactions, requests, a broker that dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rmqlite.cli.main import app
from rmqlite.client import CONSUME_SUCCESS, AdminClient, ConsumeResult, PushConsumer, StoredMessage
from rmqlite.testing import BrokerProcess
from tests.conformance.conftest import live_broker
from tests.support import toolchains
from tests.support.eventually import eventually
from tests.support.programs import Program

KeysIn = Callable[[str], Counter[str]]
FOUR_MIB = 4 << 20
COMPRESSION_BYTES = 4_096
"""Random bytes do not shrink: they grow a little."""
TOPICS, TOPICS_IN_A_LONG_RUN = 50, 300
"""Each has two queues, so more pulls wait than a connection may have other requests (1,024)."""
STREAMED, STREAMED_IN_THE_GATE = 1_000, 250
KILLS_IN_A_LONG_RUN = 2


def shell(broker: BrokerProcess, words: str) -> Result:
    done = CliRunner().invoke(app, words.split(), env={"RMQLITE_ENDPOINT": broker.endpoint})
    assert done.exit_code == 0, done.output
    return done


def make(broker: BrokerProcess, topic: str, queues: int = 4) -> None:
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        admin.create_topic(topic, queues)


def test_a_pull_consumer_and_a_lite_pull_consumer_read_everything(
    any_java: Program, java_name: str, broker: BrokerProcess
) -> None:
    """Both kinds of Java's pulls; RocketMQ 5's lite pull has a request code of its own."""
    topic, group = f"{java_name}-pulled", f"{java_name}-lites"
    make(broker, topic)
    keys = [f"p{number}" for number in range(100)]
    any_java.send(topic, *keys)
    any_java.do("pull", group="pullers", name="pull", topic=topic, expression="*")
    assert Counter(any_java.keys("pull")) == Counter(keys)
    lite = {"group": group, "name": "lite", "expression": "*", "count": 100}
    any_java.do("lite", topic=topic, **lite)
    assert Counter(any_java.keys("lite")) == Counter(keys)
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        assert sum(each.committed_offset or 0 for each in admin.group(group).progress) == 100


@pytest.mark.long
def test_the_go_client_pulls(programs: Callable[[str], Program], broker: BrokerProcess) -> None:
    """It asks for 0 messages, and means one."""
    make(broker, "go-pulled", queues=1)
    go = programs("go")
    go.send("go-pulled", *[f"p{number}" for number in range(12)])
    pull = {"group": "go-pullers", "name": "go-pull", "expression": "*", "count": 12}
    go.do("pull", topic="go-pulled", **pull)
    assert Counter(go.keys("go-pull")) == Counter([f"p{number}" for number in range(12)])


def test_bodies_of_4_mib_and_properties_of_30_kb_arrive(
    java: Program, broker: BrokerProcess
) -> None:
    """The largest bodies that RocketMQ takes, and the longest properties that we do."""
    make(broker, "java-large")
    size = FOUR_MIB - COMPRESSION_BYTES
    for number in range(3):
        java.send("java-large", f"large{number}", size=size, random=True)
    java.send("java-large", "properties", properties={"p": "v" * 29_800})
    java.push("large-readers", "java-large")
    java.until(lambda: len(java.got("large-readers")) >= 4, "all of them arrive")
    sizes = {event["got"]: event["size"] for event in java.got("large-readers")}
    assert [sizes[f"large{number}"] for number in range(3)] == [size] * 3
    (event,) = java.got("large-readers", got="properties")
    assert event["properties"] > 29_800
    java.do("stop", name="large-readers")


def test_a_consumer_gets_what_its_sql_expression_wants(
    any_java: Program, java_name: str, broker: BrokerProcess
) -> None:
    """Numbers, texts, and a property that a message does not have."""
    java, topic, group = any_java, f"{java_name}-sql", f"{java_name}-sql-readers"
    make(broker, topic)
    expression = "amount BETWEEN 10 AND 20 AND (region IN ('eu', 'uk') OR vip IS NOT NULL)"
    java.push(group, topic, sql=expression)
    for key, properties in (
        ("small", {"amount": "9", "region": "eu"}),
        ("wanted", {"amount": "10", "region": "eu"}),
        ("abroad", {"amount": "15", "region": "us"}),
        ("important", {"amount": "20", "region": "us", "vip": "yes"}),
        ("no-number", {"amount": "many", "region": "eu"}),
        ("last", {"amount": "11", "region": "uk"}),
    ):
        java.send(topic, key, properties=properties)
    java.until(lambda: "last" in java.keys(group), "the last one arrives")
    java.until(lambda: len(java.keys(group)) >= 3, "the others arrive")
    assert sorted(java.keys(group)) == ["important", "last", "wanted"]
    java.do("stop", name=group)


@pytest.mark.long
def test_a_transaction_is_committed_rolled_back_or_asked_about_over_a_kill(
    tmp_path: Path,
) -> None:
    """Consumers see what is committed, at once or by a later check, once; never the rest."""
    with live_broker(tmp_path, transactionTimeOut=500, transactionCheckInterval=500) as broker:
        make(broker, "transacted")
        with Program(toolchains.java(), broker.name_server, tmp_path / "java.log") as java:
            java.push("transaction-readers", "transacted")
            decides = {
                "committed": "COMMIT_MESSAGE",
                "rolled-back": "ROLLBACK_MESSAGE",
                "later": "UNKNOW",
                "never": "UNKNOW",
            }
            checks = {"later": "COMMIT_MESSAGE", "never": "ROLLBACK_MESSAGE"}
            asked = {"group": "transactors", "topic": "transacted"}
            java.do("transact", decides=decides, checks=checks, **asked)
            broker.kill()
            broker.start()
            java.until(lambda: len(checked(java)) >= 2, "both are asked about")
            java.until(lambda: len(java.keys("transaction-readers")) >= 2, "two arrive")
        with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
            stored = sum(each.max_offset for each in admin.ranges("transacted"))
    assert sorted(java.keys("transaction-readers")) == ["committed", "later"]
    assert stored == 2


def checked(java: Program) -> set[str]:
    return {event["checked"] for event in tuple(java.events) if "checked" in event}


def test_a_request_gets_the_reply_of_a_consumer(
    any_java: Program, java_name: str, broker: BrokerProcess
) -> None:
    """The reply goes to the client that asked, on its own connection."""
    java, topic, answerers = any_java, f"{java_name}-requests", f"{java_name}-answerers"
    make(broker, topic)
    java.do("answer", group=answerers, topic=topic)
    for key in ("one", "two"):
        said = java.do("request", group="askers", topic=topic, key=key)
        assert [event["reply"] for event in said if "reply" in event] == [f"{key}!"]
    java.do("stop", name=answerers)


def test_what_java_sends_python_consumes_lists_and_cancels(
    java: Program, broker: BrokerProcess
) -> None:
    """With all that the command line shows of a message."""
    make(broker, "java-to-python")
    got: list[str] = []

    def listen(message: StoredMessage) -> ConsumeResult:
        got.append(" ".join(message.keys))
        return CONSUME_SUCCESS

    with PushConsumer(broker.endpoint, "pythons", listen) as consumer:
        consumer.subscribe("java-to-python")
        consumer.start()
        java.send("java-to-python", "now", tags="T")
        java.send("java-to-python", "much-later", level=6)
        eventually(lambda: got == ["now"], "Python gets it")
    listed = shell(broker, "schedule list --topic java-to-python")
    assert "much-later" in listed.output or "2h" in listed.output
    cancelled = shell(broker, "schedule cancel --key much-later --topic java-to-python --yes")
    assert "done" in cancelled.output


def test_a_killed_broker_loses_nothing_and_repeats_nothing(tmp_path: Path, is_long: bool) -> None:
    """Sends, delayed sends and a consumer go on over SIGKILLs.

    Each message is sent once: the broker may not store it twice, nor lose one that it has
    acknowledged, nor forget the offsets that it has taken.
    """
    kills = KILLS_IN_A_LONG_RUN if is_long else 1
    streamed = STREAMED if is_long else STREAMED_IN_THE_GATE
    with live_broker(tmp_path) as broker:
        make(broker, "streamed")
        command = toolchains.java()
        with Program(command, broker.name_server, tmp_path / "java.log") as java:
            java.push("stream-readers", "streamed")
            for prefix, level in (("s", 0), ("d", 1)):
                asked = {"topic": "streamed", "group": f"senders-{prefix}", "level": level}
                java.do("stream", prefix=prefix, count=streamed, pause=3, **asked)
            for kill in range(1, kills + 1):
                enough = streamed * 2 * kill // (kills + 2)
                java.until(
                    lambda enough=enough: len(sent(java)) >= enough,  # type: ignore[misc]
                    "enough is sent",
                )
                broker.kill()
                broker.start()
            java.until(lambda: len(ended(java)) == 2, "both streams end")
            acknowledged = sent(java)
            java.until(lambda: acknowledged <= set(java.keys()), "all of it is consumed")
            stored = {(event["queue"], event["offset"]): event["got"] for event in java.got()}
        copies = Counter(stored.values())
        assert not [key for key, count in copies.items() if count > 1]
        assert len(acknowledged) > streamed


def sent(java: Program) -> set[str]:
    return {event["sent"] for event in tuple(java.events) if "sent" in event}


def ended(java: Program) -> list[str]:
    return [event["streamed"] for event in tuple(java.events) if "streamed" in event]


def test_a_consumer_of_hundreds_of_topics_gets_a_message_of_each(
    java: Program, broker: BrokerProcess, is_long: bool
) -> None:
    """With --long, it keeps 1,200 pulls suspended on one connection, and is still heard on it."""
    count = TOPICS_IN_A_LONG_RUN if is_long else TOPICS
    topics = [f"many-{number}" for number in range(count)]
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        for topic in topics:
            admin.create_topic(topic, 4)
            java.send(topic, topic)
    java.push("many-readers", *topics)
    java.until(lambda: len(java.got("many-readers")) >= count, "all of them arrive")
    assert Counter(java.keys("many-readers")) == Counter(topics)
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        assert admin.broker_status().parked_polls > 3 * count
    java.do("stop", name="many-readers")


def test_an_orderly_dead_letter_names_its_origin_and_counts_its_last_attempt(
    java: Program, broker: BrokerProcess
) -> None:
    """The consumer sends it itself, with the failures before the last one, and a compressed body
    once more compressed; the broker finds the record that it is a copy of."""
    topic, group = "java-orderly-fails", "orderly-failing"
    make(broker, topic, queues=1)
    java.send(topic, "small", tags="TagA", properties={"colour": "red"})
    java.send(topic, "large", size=20_000)
    java.push(group, topic, orderly=True, fails={"small": 99, "large": 99}, max=2)
    with AdminClient(broker.endpoint, timeout_ms=60_000) as admin:
        eventually(lambda: len(list(admin.dead_letters.dead(group))) == 2, "both are dead")
        letters = list(admin.dead_letters.dead(group))
        for letter in letters:
            assert (letter.origin_topic, letter.delivery_attempts) == (topic, 3)
            assert letter.origin_queue_id == 0
        assert {letter.origin_queue_offset for letter in letters} == {0, 1}
    assert java.keys(group).count("small") == 3
    java.do("stop", name=group)
