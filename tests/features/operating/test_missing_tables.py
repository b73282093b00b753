"""A table that is gone is said at the start: what it held is gone in silence otherwise."""

from __future__ import annotations

import pytest

from rmqlite.features.operating.missing import missing_tables
from rmqlite.kernel.requests.broker import LevelsChange
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.tables.logged_tables import LoggedTables
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
    broker.open()
    return list(missing_tables(broker.broker.parts))


def both(name: str) -> tuple[str, str]:
    return name, f"{name}.bak"


def test_a_whole_store_has_nothing_to_say(broker: BrokerUnderTest) -> None:
    """A warning at each start would soon be read by nobody."""
    assert told(broker) == []


@pytest.mark.parametrize("table", ["topics.json", "subscriptionGroup.json", "delayLevels.json"])
def test_a_missing_table_comes_back_from_the_log(broker: BrokerUnderTest, table: str) -> None:
    """Its file is only a snapshot."""
    change = LevelsChange("1s 2h")
    broker.broker.levels.change(change)
    before = (*broker.broker.topics.all(), *broker.broker.groups.all())
    assert told(broker, *both(table)) == []
    assert (*broker.broker.topics.all(), *broker.broker.groups.all()) == before
    assert broker.store.levels.current.text == change.message_delay_level


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ("topics.json", f"each with the queues that have messages: {TOPIC} (4)"),
        ("subscriptionGroup.json", f"lost their retry limits, policies and order: {GROUP}"),
        ("delayLevels.json", "in force, also if others were set since"),
    ],
)
def test_a_missing_table_of_an_older_store_is_said_with_what_follows(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch, table: str, what: str
) -> None:
    """Its log has no record of it, and somebody may still have the file."""
    monkeypatch.setattr(LoggedTables, "replay", lambda *_: None)
    (found,) = told(broker, *both(table))
    assert found.startswith(f"config/{table} is missing")
    assert found.endswith(what)


def test_missing_offsets_are_said_with_what_follows(broker: BrokerUnderTest) -> None:
    """They are no promise, and stand in no record."""
    (found,) = told(broker, *both("consumerOffset.json"))
    assert found.startswith("config/consumerOffset.json is missing")
    assert found.endswith(f"may get messages again or miss some: readers, {GROUP}")


def test_the_table_of_before_is_used_and_what_followed_comes_from_the_log(
    broker: BrokerUnderTest,
) -> None:
    """It may be older than some topics."""
    create_topic(broker, "later")
    broker.send(plain("c", "later"))
    (older,) = told(broker, "topics.json")
    assert older.endswith("is missing, the one before it is used: config/topics.json.bak")
    assert broker.broker.topics.get("later")


def test_a_store_of_rocketmq_without_its_progress_delivers_again(broker: BrokerUnderTest) -> None:
    """The log shows what rmqlite has delivered, and nothing of RocketMQ."""
    found = told(broker, *both("delayOffset.json"), *both("storeProgress.json"))
    assert [each[:52] for each in found] == ["config/delayOffset.json and storeProgress.json are m"]
