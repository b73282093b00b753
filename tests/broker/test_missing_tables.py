"""A table that is gone is said at the start: what it held is gone in silence otherwise."""

from __future__ import annotations

import pytest

from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.tables.missing import missing_tables
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, create_topic, delayed, plain, received, send_back


@pytest.fixture
def broker(make: Make) -> BrokerUnderTest:
    """With messages of a topic in two queues, one at a level, and a group that has failed once."""
    made = make()
    create_topic(made, TOPIC)
    made.send(plain("a"), queue_id=3)
    made.send(delayed("b", 1))
    send_back(made, received(made))
    made.broker.offsets.commit(GROUP, {Queue(TOPIC, 0): 1})
    made.restart()
    return made


def told(broker: BrokerUnderTest, *gone: str) -> list[str]:
    """What a start says after the loss of some tables."""
    broker.close()
    files = SystemFiles()
    folder = broker.config.store_path / "config"
    for name in gone:
        files.remove(folder / name)
    names = files.names(folder)
    broker.open()
    return list(missing_tables(broker.store, broker.config, names))


def both(name: str) -> tuple[str, str]:
    return name, f"{name}.bak"


def test_a_whole_store_has_nothing_to_say(broker: BrokerUnderTest) -> None:
    """A warning at each start would soon be read by nobody."""
    assert told(broker) == []


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ("topics.json", f"each with the queues that have messages: {TOPIC} (4)"),
        ("subscriptionGroup.json", f"lost their retry limits, policies and order: {GROUP}"),
        ("consumerOffset.json", f"may get messages again or miss some: readers, {GROUP}"),
        ("delayLevels.json", "in force, also if others were set since"),
    ],
)
def test_a_missing_table_is_said_with_what_follows(
    broker: BrokerUnderTest, table: str, what: str
) -> None:
    """Somebody may still have the file."""
    (found,) = told(broker, *both(table))
    assert found.startswith(f"config/{table} is missing")
    assert found.endswith(what)


def test_topics_that_the_table_lacks_are_said(broker: BrokerUnderTest) -> None:
    """The table of before is used, which may be older than they are."""
    create_topic(broker, "later")
    broker.send(plain("c", "later"))
    older, newer = told(broker, "topics.json")
    assert older.endswith("is missing, the one before it is used: config/topics.json.bak")
    assert newer.startswith("config/topics.json lacks topics of the log, ")
    assert newer.endswith(": later (1)")


def test_a_store_of_rocketmq_without_its_progress_delivers_again(broker: BrokerUnderTest) -> None:
    """The log shows what rmqlite has delivered, and nothing of RocketMQ."""
    found = told(broker, *both("delayOffset.json"), *both("storeProgress.json"))
    assert [each[:52] for each in found] == ["config/delayOffset.json and storeProgress.json are m"]
