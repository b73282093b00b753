"""Topics and groups that are deleted: nothing comes back, whatever happens next."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.features.operating.deleting import Deleting
from rmqlite.kernel.requests.groups import OffsetsCommit
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store import dispatch
from rmqlite.kernel.words.errors import InvalidName, Overloaded, StoreUnavailable, TopicUnknown
from rmqlite.store_tools.check import check
from rmqlite.store_tools.reader import StoreReader
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, bodies, create_topic, delayed, plain
from tests.support.restarts import WAYS, Restart, crash_and_lose_the_queues
from tests.support.steps import done


def delete(broker: BrokerUnderTest, topic: str = TOPIC) -> None:
    broker.broker[Deleting].delete_topic(topic)


def queue_files(broker: BrokerUnderTest, topic: str = TOPIC) -> list[Path]:
    return list((broker.config.store_path / "consumequeue" / topic).rglob("*"))


def remove_files(broker: BrokerUnderTest) -> None:
    """As the upkeep does it, some queues at a time."""
    for _ in range(20):
        broker.store.deletions.remove_files()


@pytest.mark.one_of(2)
@pytest.mark.parametrize("restart", WAYS)
@pytest.mark.parametrize("cleans", [False, True])
def test_no_restart_brings_a_deleted_topic_back(
    under_test: BrokerUnderTest, restart: Restart, cleans: bool
) -> None:
    """Neither its settings nor half of its messages; and its next messages have new places."""
    create_topic(under_test, TOPIC, 2)
    under_test.send(plain("a"), plain("b"))
    under_test.persist()
    under_test.send(plain("c"), plain("other", "others"))
    delete(under_test)
    if cleans:
        remove_files(under_test)
        assert not queue_files(under_test)
    restart(under_test)
    assert under_test.broker.topics.get(TOPIC) is None
    with pytest.raises(TopicUnknown):
        under_test.pull(TOPIC)
    assert bodies(under_test, "others") == ["other"]
    create_topic(under_test, TOPIC, 2)
    assert bodies(under_test) == []
    (sent,) = under_test.send(plain("new"))
    assert sent.queue_offset == 3
    restart(under_test)
    result = under_test.pull(TOPIC, queue_offset=3)
    assert (result.min_offset, result.max_offset) == (3, 4)
    assert [message.body for message in result.messages] == [b"new"]


@pytest.mark.parametrize("restart", WAYS)
def test_a_topic_that_is_made_again_at_once_has_only_its_new_messages(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """The files of the old queue are still there, and the new entries go into them."""
    under_test.send(*[plain(f"old {number}") for number in range(250)])
    under_test.persist()
    assert len(queue_files(under_test)) == 1 + 2
    delete(under_test)
    under_test.send(plain("new"))
    remove_files(under_test)
    # The files of 200 entries each that have only old ones are gone.
    assert len(queue_files(under_test)) == 1 + 1
    restart(under_test)
    assert under_test.store.queue(TOPIC, 0) is not None
    result = under_test.pull(TOPIC, queue_offset=250)
    assert (result.min_offset, [each.body for each in result.messages]) == (250, [b"new"])
    delete(under_test)
    remove_files(under_test)
    restart(under_test)
    assert under_test.send(plain("newest"))[0].queue_offset == 251


def test_a_store_with_a_deleted_topic_is_sound_at_every_moment(make: Make) -> None:
    """Before and after its files are removed, closed or killed; readers do not see it either."""
    broker = make()
    root = broker.config.store_path
    broker.send(*[plain(f"{number}") for number in range(450)])
    broker.persist()
    delete(broker)
    assert list(check(root)) == []
    broker.send(plain("again"))
    broker.persist()
    assert list(check(root)) == []
    delete(broker)
    remove_files(broker)
    broker.crash()
    assert list(check(root)) == []
    with StoreReader(root) as reader:
        known = {each.topic: each.max_offset - each.min_offset for each in reader.layout().queues}
    assert known.get(TOPIC, 0) == 0
    broker.open()


def test_messages_that_wait_for_a_deleted_topic_become_dead_letters(
    under_test: BrokerUnderTest,
) -> None:
    """None is lost, and the reason says why it was not delivered."""
    under_test.send(delayed("late", 1))
    delete(under_test)
    under_test.clock.forward(1_000)
    under_test.deliver()
    (letter,) = under_test.messages("%DLQ%SCHEDULE_CONSUMER")
    assert letter.body == b"late"
    assert letter.properties["FAILURE_REASON"] == f"there is no topic {TOPIC} any more"
    assert under_test.broker.topics.get(TOPIC) is None


def test_a_delivery_into_a_deleted_topic_is_still_a_delivery_after_a_crash(
    under_test: BrokerUnderTest,
) -> None:
    """Its record completes the scheduled one, so the message does not come again."""
    under_test.send(delayed("once", 1))
    under_test.clock.forward(1_000)
    assert under_test.deliver() == 1
    delete(under_test)
    crash_and_lose_the_queues(under_test)
    create_topic(under_test, TOPIC, 4)
    assert under_test.deliver() == 0
    assert bodies(under_test) == []


@pytest.mark.parametrize("restart", WAYS)
def test_groups_forget_their_offsets_in_a_deleted_topic(
    under_test: BrokerUnderTest, restart: Restart
) -> None:
    """They count towards a limit, and no message of a new topic may be skipped."""
    under_test.send(plain("a"), plain("b"))
    offsets = under_test.broker.offsets
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): 2}))
    delete(under_test)
    assert offsets.of(GROUP) == {}
    assert offsets.committed(Queue(TOPIC, 0)) == {}
    restart(under_test)
    under_test.send(plain("c"))
    known = under_test.broker.offsets.of(GROUP).get(Queue(TOPIC, 0), 0)
    assert known <= 2


@pytest.mark.parametrize(
    "topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_BULK_JOBS", "DefaultCluster_REPLY_TOPIC"]
)
def test_the_brokers_own_topics_are_not_deleted(under_test: BrokerUnderTest, topic: str) -> None:
    """What waits in the schedule is a promise."""
    under_test.send(delayed("late", 3))
    with pytest.raises(InvalidName, match="topic must be"):
        delete(under_test, topic)
    assert under_test.next_due_ms() is not None


def test_a_topic_that_does_not_exist_is_deleted_without_an_error(
    under_test: BrokerUnderTest,
) -> None:
    """mqadmin deletes the retry topic of each group, also of one without failures."""
    delete(under_test, "%RETRY%nobody")
    assert not (under_test.config.store_path / "config" / "deletedTopics.json").exists()


def test_a_deletion_that_cannot_be_written_changes_nothing(make: Make) -> None:
    """The caller can try again."""
    files = FaultyFiles()
    broker = make(files=files)
    broker.send(plain("a"))
    files.fail("write")
    with pytest.raises(StoreUnavailable):
        delete(broker)
    assert bodies(broker) == ["a"]
    files.fail("write", after=2)
    with pytest.raises(StoreUnavailable):
        delete(broker)
    # The topic is empty and still exists: never the other way round.
    assert bodies(broker) == []
    assert broker.broker.topics.get(TOPIC) is not None
    delete(broker)
    assert broker.broker.topics.get(TOPIC) is None


def test_files_that_cannot_be_removed_are_removed_later(make: Make) -> None:
    """A failing disk must not bring messages back."""
    files = FaultyFiles()
    broker = make(files=files)
    broker.send(plain("a"))
    delete(broker)
    files.fail("remove", where=lambda path: TOPIC in path.parts)
    with pytest.raises(StoreUnavailable):
        broker.store.deletions.remove_files()
    assert queue_files(broker)
    create_topic(broker, TOPIC, 4)
    assert bodies(broker) == []
    remove_files(broker)
    assert not queue_files(broker)


def test_a_persist_goes_on_after_files_were_removed(make: Make) -> None:
    """Also one that failed before, and is tried again."""
    files = FaultyFiles()
    broker = make(files=files)
    broker.send(plain("a"), plain("b", "others"))
    files.fail("replace", where=lambda path: path.name == "storeProgress.json")
    with pytest.raises(StoreUnavailable):
        broker.persist()
    delete(broker)
    delete(broker, "others")
    remove_files(broker)
    broker.persist()
    broker.send(plain("c"))
    delete(broker)
    remove_files(broker)
    broker.persist()


def test_deletions_are_forgotten_when_retention_has_taken_their_records(make: Make) -> None:
    """Otherwise a script that makes and deletes topics would fill the table."""
    broker = make(mapped_file_size_commit_log=1 << 17, max_message_bytes=1 << 16)
    broker.broker.topics.ensure("%DLQ%shop2", 1)
    broker.send(plain("a", "temporary"), plain("b", "%DLQ%shop2"), plain("c", "remade"))
    for topic in ("temporary", "%DLQ%shop2", "remade"):
        delete(broker, topic)
    remove_files(broker)
    create_topic(broker, "remade", 1)
    for _ in range(4):
        broker.send(plain("x" * 60_000))
    broker.persist()
    for _ in range(5):
        broker.broker[Deleting].forget_old()
    assert set(broker.store.deletions.topics.topics) == {"temporary", "%DLQ%shop2", "remade"}
    broker.store.drop_before(1 << 17)
    for _ in range(5):
        broker.broker[Deleting].forget_old()
    # Redrive jobs know letters by their places, and a group may have offsets in the other one.
    assert set(broker.store.deletions.topics.topics) == {"%DLQ%shop2", "remade"}
    assert broker.store.queue("temporary", 0) is None
    broker.persist()
    broker.restart()
    assert broker.send(plain("a", "temporary"))[0].queue_offset == 0
    assert broker.send(plain("c", "remade"))[0].queue_offset == 1


def test_the_number_of_remembered_deletions_has_a_limit(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each deletion writes all of them."""
    monkeypatch.setattr(dispatch, "QUEUES_MAX", 1)
    under_test.send(plain("a", "one"), plain("b", "two"))
    delete(under_test, "one")
    with pytest.raises(Overloaded, match="QUEUES_MAX"):
        delete(under_test, "two")
    assert bodies(under_test, "two") == ["b"]


def test_queues_of_topics_that_do_not_exist_are_deleted_on_request(
    under_test: BrokerUnderTest,
) -> None:
    """RocketMQ leaves such queues behind; those of the broker's own topics stay."""
    under_test.send(plain("a", "left"), plain("b"), delayed("late", 1))
    under_test.broker.topics.delete("left")
    assert done(under_test.broker[Deleting].delete_unused()) == 1
    assert done(under_test.broker[Deleting].delete_unused()) == 0
    create_topic(under_test, "left", 1)
    assert bodies(under_test, "left") == []
    assert bodies(under_test) == ["b"]
    under_test.clock.forward(1_000)
    assert under_test.deliver() == 1


def test_a_group_is_deleted_with_or_without_its_offsets(under_test: BrokerUnderTest) -> None:
    """mqadmin deleteSubGroup, and its -r."""
    under_test.send(plain("a"))
    for keeps in (True, False):
        under_test.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): 1}))
        under_test.broker.groups.delete(GROUP)
        if not keeps:
            under_test.broker.offsets.forget_group(GROUP)
        under_test.restart()
        assert GROUP not in [info.group for info in under_test.broker.groups.all()]
        assert under_test.broker.offsets.of(GROUP) == ({Queue(TOPIC, 0): 1} if keeps else {})
    under_test.broker.groups.delete("nobody")
    under_test.broker.offsets.forget_group("nobody")
