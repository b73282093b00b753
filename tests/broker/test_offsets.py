"""How far each group is: commits, queries, RocketMQ's file, crashes."""

from __future__ import annotations

from typing import NoReturn

import pytest

from rmqlite.features.operating.progress import Progress
from rmqlite.kernel.requests.groups import OffsetsCommit, OffsetsQuery
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.errors import (
    GroupUnknown,
    InvalidName,
    InvalidValue,
    Overloaded,
    QueueUnknown,
    TopicUnknown,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, create_topic, plain
from tests.support.steps import done

HEAD = Queue(TOPIC, 0)
SIDE = Queue(TOPIC, 1)


def commit(broker: BrokerUnderTest, offsets: dict[Queue, int], group: str = GROUP) -> None:
    broker.broker.commit_offsets(OffsetsCommit(group, offsets))


def committed(broker: BrokerUnderTest, *queues: Queue, group: str = GROUP) -> dict[Queue, int]:
    return broker.broker.query_offsets(OffsetsQuery(group, queues or (HEAD, SIDE)))


@pytest.fixture
def five(under_test: BrokerUnderTest) -> BrokerUnderTest:
    """Five messages in each of two queues."""
    for queue_id in (0, 1):
        under_test.send(*[plain(str(number)) for number in range(5)], queue_id=queue_id)
    return under_test


def test_a_queue_without_a_commit_is_left_out(five: BrokerUnderTest) -> None:
    """Where to begin is the consumer's choice."""
    assert committed(five) == {}
    commit(five, {HEAD: 3})
    assert committed(five) == {HEAD: 3}
    assert committed(five, group="others") == {}


def test_a_commit_may_go_back(five: BrokerUnderTest) -> None:
    """A seek of the whole group, as in RocketMQ."""
    commit(five, {HEAD: 5, SIDE: 4})
    commit(five, {HEAD: 0})
    assert committed(five) == {HEAD: 0, SIDE: 4}


@pytest.mark.parametrize("offset", [-1, 6, 2**62])
def test_a_commit_outside_of_the_queue_is_refused(five: BrokerUnderTest, offset: int) -> None:
    """Beyond the end it would skip what is sent next; the other queues keep theirs."""
    commit(five, {HEAD: 2, SIDE: 2})
    with pytest.raises(InvalidValue, match="queue_offset"):
        commit(five, {HEAD: 4, SIDE: offset})
    assert committed(five) == {HEAD: 2, SIDE: 2}


def test_a_commit_names_a_group_topic_and_queue_that_are_there(make: Make) -> None:
    """A typing error must not look like progress."""
    broker = make()
    broker.send(plain("a"))
    for error, group, queue in (
        (InvalidName, "a b", HEAD),
        (TopicUnknown, GROUP, Queue("nothing", 0)),
        (QueueUnknown, GROUP, Queue(TOPIC, 4)),
    ):
        with pytest.raises(error):
            commit(broker, {queue: 0}, group)
    assert broker.broker.groups.all() == ()
    strict = make(auto_create_group=False)
    with pytest.raises(GroupUnknown):
        commit(strict, {HEAD: 0})


def test_an_empty_queue_may_be_committed_at_its_begin(under_test: BrokerUnderTest) -> None:
    """A consumer that joined before the first message."""
    create_topic(under_test, TOPIC)
    commit(under_test, {HEAD: 0})
    assert committed(under_test) == {HEAD: 0}


def test_the_number_of_offsets_has_a_limit(make: Make) -> None:
    """Groups times queues has no other bound; a group goes on where it is, and nothing is half."""
    broker = make(consumer_offsets_max=3)
    create_topic(broker, TOPIC)
    commit(broker, {HEAD: 0, SIDE: 0})
    with pytest.raises(Overloaded, match="maxConsumerOffsets=3"):
        commit(broker, {HEAD: 0, SIDE: 0}, "other")
    assert committed(broker, group="other") == {}
    assert [info.group for info in broker.broker.groups.all()] == [GROUP]
    broker.send(plain("a"), queue_id=0)
    commit(broker, {SIDE: 0}, "other")
    with pytest.raises(Overloaded, match="maxConsumerOffsets=3"):
        commit(broker, {HEAD: 1, Queue(TOPIC, 2): 0})
    commit(broker, {HEAD: 1, SIDE: 0})
    assert committed(broker) == {HEAD: 1, SIDE: 0}


class Unwalked(dict[Queue, int]):
    """Answers for one queue, never for all."""

    def keys(self) -> NoReturn:
        raise AssertionError("all queues of the group were looked at")

    __iter__ = items = values = keys


def test_a_commit_looks_only_at_its_own_queues(five: BrokerUnderTest) -> None:
    """A consumer of 1,000 topics commits with each pull: walking over its queues took 1 ms each."""
    commit(five, {HEAD: 1, SIDE: 1})
    offsets = five.broker.offsets._offsets
    offsets[GROUP] = known = Unwalked(offsets[GROUP])
    commit(five, {HEAD: 3})
    assert committed(five) == {HEAD: 3, SIDE: 1}
    # As it was, for the check that follows each test.
    offsets[GROUP] = {queue: known[queue] for queue in (HEAD, SIDE)}


def test_a_store_with_more_offsets_than_allowed_opens(make: Make) -> None:
    """The limit was lowered: all are there, and no more are taken."""
    broker = make(consumer_offsets_max=1)
    create_topic(broker, TOPIC)
    broker.close()
    path = broker.config.store_path / "config" / "consumerOffset.json"
    path.write_bytes(tables.encode({"offsetTable": {"orders@shop": {0: 0}, "orders@b": {1: 0}}}))
    broker.open()
    commit(broker, {HEAD: 0})
    assert committed(broker, group="b") == {SIDE: 0}
    with pytest.raises(Overloaded, match="maxConsumerOffsets=1"):
        commit(broker, {SIDE: 0})


@pytest.mark.parametrize("how", ["clean", "persist and crash"])
def test_commits_survive(five: BrokerUnderTest, how: str) -> None:
    """A clean stop keeps all, a crash those of the last persist."""
    commit(five, {HEAD: 3, SIDE: 5})
    if how == "clean":
        five.restart()
    else:
        five.persist()
        commit(five, {HEAD: 4})
        five.crash()
        five.open()
    assert committed(five) == {HEAD: 3, SIDE: 5}


def test_the_file_has_rocketmqs_shape(five: BrokerUnderTest) -> None:
    """Keys of integers are bare, as its serializer writes them."""
    commit(five, {SIDE: 2, HEAD: 1})
    five.persist()
    text = (five.config.store_path / "config" / "consumerOffset.json").read_text()
    assert text == '{\n\t"offsetTable":{\n\t\t"orders@shop":{0:1,1:2\n\t\t}\n\t}\n}'


def test_rocketmqs_file_is_read(five: BrokerUnderTest) -> None:
    """With quoted keys as newer versions write them, and fields that mean nothing here."""
    five.close()
    path = five.config.store_path / "config" / "consumerOffset.json"
    path.write_text(
        '{"dataVersion":{"counter":5},"offsetTable":{"orders@shop":{"0":3},"orders@b":{1:4}}}'
    )
    five.open()
    assert committed(five) == {HEAD: 3}
    assert committed(five, group="b") == {SIDE: 4}


def test_a_commit_beyond_a_lost_tail_comes_back_to_the_end(five: BrokerUnderTest) -> None:
    """Else the messages that take the lost ones' places would be skipped."""
    five.close()
    path = five.config.store_path / "config" / "consumerOffset.json"
    path.write_bytes(tables.encode({"offsetTable": {"orders@shop": {0: 99, 1: 5}}}))
    five.open()
    assert committed(five) == {HEAD: 5, SIDE: 5}


def test_a_groups_progress_is_told_queue_by_queue(five: BrokerUnderTest) -> None:
    """What an operator looks at: how far, how far behind."""
    commit(five, {HEAD: 3})
    progress, other = done(five.broker[Progress].status(GROUP)).progress
    assert (progress.queue, progress.committed_offset, progress.max_offset) == (HEAD, 3, 5)
    assert (progress.lag, progress.client_id) == (2, "")
    # It reads this topic, and has not begun with its other queue.
    assert (other.committed_offset, other.lag) == (None, 5)
    with pytest.raises(GroupUnknown):
        done(five.broker[Progress].status("nobody"))
