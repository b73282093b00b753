"""Topics: created, kept in RocketMQ's file, with what RocketMQ wrote there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.kernel.requests.topics import RouteRequest, TopicInfo
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.logged_tables import LOG_END, TABLES_QUEUE
from rmqlite.kernel.words.errors import (
    InvalidName,
    InvalidValue,
    MessageTooLarge,
    Overloaded,
    PermissionMissing,
    QueueUnknown,
    StoreUnavailable,
    TopicExists,
    TopicUnknown,
)
from rmqlite.kernel.words.limits import NEW_QUEUES_MAX
from tests.support.brokers import BODY_BYTES_MAX, BrokerUnderTest
from tests.support.bulk import request
from tests.support.files import FaultyFiles
from tests.support.made_brokers import Make
from tests.support.messages import TOPIC, create_topic, plain, received, send_back
from tests.support.sends import BORN_HOST, sending
from tests.support.steps import done

SYSTEM = [
    "DefaultCluster_REPLY_TOPIC",
    "RMQ_SYS_TRACE_TOPIC",
    "SCHEDULE_TOPIC_XXXX",
    "TBW102",
    "rmq_sys_TABLES",
    "rmq_sys_wheel_timer",
]
"""The topics that every broker has."""


def on_disk(broker: BrokerUnderTest) -> Any:
    broker.persist()
    return tables.decode((broker.config.store_path / "config" / "topics.json").read_bytes())


@pytest.mark.parametrize("how", ["clean", "crash"])
def test_a_topic_is_on_disk_before_it_is_answered(under_test: BrokerUnderTest, how: str) -> None:
    """Even if nothing is persisted afterwards."""
    create_topic(under_test, TOPIC, 7)
    if how == "clean":
        under_test.restart()
    else:
        under_test.crash()
        under_test.open()
    assert under_test.broker.topics.existing(TOPIC) == TopicInfo(TOPIC, 7, 7)


def test_the_file_has_rocketmqs_shape(under_test: BrokerUnderTest) -> None:
    """RocketMQ must be able to start on it."""
    create_topic(under_test, TOPIC, 2)
    tree = on_disk(under_test)
    assert set(tree) == {"dataVersion", "topicConfigTable", LOG_END}
    assert tree["dataVersion"]["counter"] == 1
    assert tree["topicConfigTable"][TOPIC] == {
        "order": False,
        "perm": 6,
        "readQueueNums": 2,
        "topicFilterType": "SINGLE_TAG",
        "topicName": TOPIC,
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    assert set(tree["topicConfigTable"]) == {TOPIC, *SYSTEM}


def test_what_rocketmq_wrote_is_kept(under_test: BrokerUnderTest) -> None:
    """Fields that mean nothing here go back as they came, also when another topic is made."""
    row = {
        "attributes": {"a": "b"},
        "order": True,
        "perm": 4,
        "readQueueNums": 8,
        "topicFilterType": "MULTI_TAG",
        "topicName": "old",
        "topicSysFlag": 2,
        "writeQueueNums": 6,
    }
    tree = {"dataVersion": {"counter": 41, "timestamp": 1}, "topicConfigTable": {"old": row}}
    under_test.close()
    (under_test.config.store_path / "config" / "topics.json").write_text(json.dumps(tree))
    under_test.open()
    assert under_test.broker.topics.existing("old") == TopicInfo("old", 8, 6, 4)
    create_topic(under_test, TOPIC)
    assert on_disk(under_test)["topicConfigTable"]["old"] == row
    assert on_disk(under_test)["dataVersion"]["counter"] == 42


def test_a_topic_that_rocketmq_left_without_queues_takes_no_messages(
    under_test: BrokerUnderTest,
) -> None:
    """An operator may have set writeQueueNums=0 to drain it; that is a refusal, not a crash."""
    row = {"topicName": TOPIC, "perm": 6, "readQueueNums": 4, "writeQueueNums": 0}
    under_test.close()
    path = under_test.config.store_path / "config" / "topics.json"
    path.write_text(json.dumps({"topicConfigTable": {TOPIC: row}}))
    under_test.open()
    for queue_id in (-1, 0):
        with pytest.raises(QueueUnknown):
            under_test.send(plain("a"), queue_id=queue_id)
    assert under_test.messages(TOPIC) == []


def test_the_same_topic_again_is_no_error(under_test: BrokerUnderTest) -> None:
    """Two deployments may both make sure of it; another setting is one."""
    create_topic(under_test, TOPIC, 2)
    create_topic(under_test, TOPIC, 2)
    assert on_disk(under_test)["dataVersion"]["counter"] == 1
    with pytest.raises(TopicExists):
        create_topic(under_test, TOPIC, 3)
    with pytest.raises(TopicExists):
        create_topic(under_test, TOPIC, 2, perm=4)


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "a@b"])
def test_a_topic_name_is_checked(under_test: BrokerUnderTest, name: str) -> None:
    """By the rule that a send has."""
    with pytest.raises(InvalidName):
        create_topic(under_test, name)


@pytest.mark.parametrize("name", ["SCHEDULE_TOPIC_XXXX", "TBW102", "BenchmarkTest", "rmq_sys_x"])
def test_a_system_topic_is_not_made_by_a_user(under_test: BrokerUnderTest, name: str) -> None:
    """RocketMQ says that the name is in conflict with a system topic's."""
    with pytest.raises(PermissionMissing):
        create_topic(under_test, name)


@pytest.mark.parametrize(
    ("queues", "perm", "field"),
    [
        (0, 6, "read_queues"),
        (-1, 6, "read_queues"),
        (1_025, 6, "read_queues"),
        (1, 0, "perm"),
        (1, 8, "perm"),
        (1, -1, "perm"),
    ],
)
def test_the_settings_of_a_topic_are_checked(
    under_test: BrokerUnderTest, queues: int, perm: int, field: str
) -> None:
    """The error names the field; nothing is made."""
    with pytest.raises(InvalidValue) as caught:
        create_topic(under_test, TOPIC, queues, perm)
    assert caught.value.field == field
    assert under_test.broker.topics.get(TOPIC) is None


def test_a_route_tells_what_a_client_must_know(under_test: BrokerUnderTest) -> None:
    """Queues, levels, limits; the topic is made only if the client means to send."""
    with pytest.raises(TopicUnknown):
        under_test.broker.route(RouteRequest(TOPIC))
    route = under_test.broker.route(RouteRequest(TOPIC, create=True))
    assert route.topic == TopicInfo(TOPIC, 4, 4)
    assert (route.broker_name, route.max_message_bytes) == ("broker-a", BODY_BYTES_MAX)
    assert route.message_delay_level.startswith("1s 5s 10s")
    assert under_test.broker.route(RouteRequest(TOPIC)) == route


def test_the_list_of_topics_is_sorted(under_test: BrokerUnderTest) -> None:
    """The system's included."""
    for name in ("b", "a"):
        create_topic(under_test, name)
    names = [info.topic for info in under_test.broker.topics.all()]
    assert names == sorted([*SYSTEM, "a", "b"])


def test_a_topic_that_could_not_be_written_is_not_there(make: Make) -> None:
    """Neither in memory nor on disk; a later try makes it."""
    files = FaultyFiles()
    broker = make(files=files)
    files.fail("write")
    with pytest.raises(StoreUnavailable):
        broker.send(plain("a"))
    assert broker.broker.topics.get(TOPIC) is None
    assert broker.store.end == 0
    broker.send(plain("a"))
    broker.restart()
    assert broker.broker.topics.get(TOPIC)


def send_many(broker: BrokerUnderTest, topics: list[str]) -> None:
    done(sending(broker.broker, tuple(plain("a", topic) for topic in topics)))


def schedule_many(broker: BrokerUnderTest, topics: list[str]) -> None:
    ids = [f"id-{number}" for number in range(len(topics))]
    done(broker.broker[Bulk].schedule(request(ids, topics=tuple(topics), job_id=""), BORN_HOST))


Sending = Callable[[BrokerUnderTest, list[str]], None]


@pytest.mark.parametrize("send", [send_many, schedule_many])
def test_a_call_changes_each_table_once_however_many_topics_it_makes(
    make: Make, send: Sending
) -> None:
    """A write for each topic of a batch would hold up everybody for seconds."""
    files = FaultyFiles()
    broker = make(files=files)
    before = files.replaced.copy()
    names = [f"topic-{number}" for number in range(20)] + ["%RETRY%shop", "%RETRY%bank"]
    send(broker, names)
    assert files.replaced == before
    changes = broker.store.queue(*TABLES_QUEUE)
    assert changes is not None
    assert changes.max_offset == 2
    broker.crash()
    broker.open()
    assert {info.topic for info in broker.broker.topics.all()} >= set(names)
    send(broker, names)
    changes = broker.store.queue(*TABLES_QUEUE)
    assert changes is not None
    assert changes.max_offset == 2


@pytest.mark.parametrize("send", [send_many, schedule_many])
def test_of_the_topics_of_a_call_all_are_made_or_none(make: Make, send: Sending) -> None:
    """A message without its topic could not be read."""
    files = FaultyFiles()
    broker = make(files=files)
    files.fail("write")
    names = ["a", "b", "c"]
    with pytest.raises(StoreUnavailable):
        send(broker, names)
    assert [broker.broker.topics.get(name) for name in names] == [None] * 3
    assert broker.store.end == 0
    send(broker, names)
    broker.restart()
    assert [len(broker.messages(name)) + len(broker.messages(name, 2)) for name in names] == [1] * 3


def test_a_call_that_is_refused_makes_none_of_its_topics(under_test: BrokerUnderTest) -> None:
    """What it needs is looked for first, and made when all of it can be had."""
    with pytest.raises(TopicUnknown):
        send_many(under_test, ["new", "%DLQ%nobody"])
    with pytest.raises(QueueUnknown):
        under_test.send(plain("a", "new"), queue_id=9)
    assert under_test.broker.topics.get("new") is None


@pytest.mark.parametrize("send", [send_many, schedule_many])
def test_the_number_of_topics_has_a_limit(make: Make, send: Sending) -> None:
    """Any sender can name another topic; those that are there go on."""
    broker = make(topics_max=8)
    send(broker, ["a", "b"])
    with pytest.raises(Overloaded, match="maxTopics=8"):
        send(broker, ["a", "c"])
    with pytest.raises(Overloaded, match="maxTopics=8"):
        create_topic(broker, "c")
    assert broker.broker.topics.get("c") is None
    send(broker, ["a", "b"])


def test_a_failed_message_finds_its_topics_however_many_there_are(make: Make) -> None:
    """Retries and dead letters are not refused because somebody made very many topics."""
    broker = make(topics_max=7)
    message = received(broker)
    assert send_back(broker, message).topic == "%RETRY%shop"
    assert send_back(broker, message, delay_level=-1).topic == "%DLQ%shop"


@pytest.mark.parametrize("send", [send_many, schedule_many])
def test_a_call_makes_only_so_many_queues(make: Make, send: Sending) -> None:
    """Each new queue makes folders and a file; in two calls others get their turn."""
    broker = make()
    names = [f"topic-{number}" for number in range(NEW_QUEUES_MAX + 1)]
    with pytest.raises(MessageTooLarge, match="at most 32 in one call") as caught:
        send(broker, names)
    assert (caught.value.field, caught.value.value) == ("queues", "33")
    assert broker.broker.topics.get(names[0]) is None
    send(broker, names[:1])
    send(broker, names[1:])
