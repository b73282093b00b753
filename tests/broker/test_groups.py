"""Groups: settings in RocketMQ's file, members, and the queues that each one reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqlite.features.operating.progress import Progress
from rmqlite.kernel.requests.groups import (
    Assignment,
    GroupInfo,
    HeartbeatRequest,
    MemberKind,
    OffsetsCommit,
    Subscription,
)
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.tables.membership import BETWEEN_POLLS_MS_MAX
from rmqlite.kernel.tables.shares import allocate
from rmqlite.kernel.words.errors import GroupUnknown, InvalidName, InvalidValue, Overloaded
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, create_topic, plain, save_group
from tests.support.steps import done

RETRY = Queue("%RETRY%" + GROUP, 0)


def beat(broker: BrokerUnderTest, client_id: str, *topics: str, group: str = GROUP) -> Assignment:
    subscriptions = tuple(Subscription(topic) for topic in topics or (TOPIC,))
    return broker.broker.heartbeat(HeartbeatRequest(group, client_id, subscriptions))


def shares(broker: BrokerUnderTest, *clients: str, topic: str = TOPIC) -> list[list[int]]:
    """The queue ids of a topic that each client reads."""
    found = [broker.broker.membership.assignment(GROUP, client).queues for client in clients]
    return [[queue.queue_id for queue in queues if queue.topic == topic] for queues in found]


def on_disk(broker: BrokerUnderTest) -> Any:
    broker.persist()
    path = broker.config.store_path / "config" / "subscriptionGroup.json"
    return tables.decode(path.read_bytes())


def test_a_group_is_made_on_demand_with_rocketmqs_defaults(under_test: BrokerUnderTest) -> None:
    """And is there after a crash."""
    beat(under_test, "c")
    under_test.crash()
    under_test.open()
    assert under_test.broker.groups.all() == (GroupInfo(GROUP, 16, 1, True),)


def test_the_file_has_rocketmqs_shape(under_test: BrokerUnderTest) -> None:
    """RocketMQ must be able to start on it."""
    save_group(under_test, max_reconsume_times=3, retry_queues=2, can_consume=False)
    tree = on_disk(under_test)
    assert tree["dataVersion"]["counter"] == 1
    assert tree["subscriptionGroupTable"][GROUP] == {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": False,
        "consumeFromMinEnable": True,
        "groupName": GROUP,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 3,
        "retryQueueNums": 2,
        "whichBrokerWhenConsumeSlowly": 1,
    }


def test_what_rocketmq_wrote_is_kept(under_test: BrokerUnderTest) -> None:
    """Fields that mean nothing here go back as they came, also when the group is changed."""
    row = {"groupName": "old", "retryMaxTimes": 5, "retryQueueNums": 2, "consumeEnable": True}
    row |= {"brokerId": 7, "consumeBroadcastEnable": False, "attributes": {"a": "b"}}
    tree = {"dataVersion": {"counter": 8}, "subscriptionGroupTable": {"old": row}}
    under_test.close()
    path = under_test.config.store_path / "config" / "subscriptionGroup.json"
    path.write_text(json.dumps(tree))
    under_test.open()
    assert under_test.broker.groups.existing("old") == GroupInfo("old", 5, 2, True)
    save_group(under_test)
    assert on_disk(under_test)["subscriptionGroupTable"]["old"] == row
    save_group(under_test, group="old", max_reconsume_times=6, retry_queues=2)
    changed = on_disk(under_test)["subscriptionGroupTable"]["old"]
    assert changed == {**row, "retryMaxTimes": 6}
    assert on_disk(under_test)["dataVersion"]["counter"] == 10


@pytest.mark.parametrize(
    "wrong", [{"retry_queues": 0}, {"retry_queues": -1}, {"max_reconsume_times": -1}]
)
def test_settings_that_lose_messages_are_refused(
    under_test: BrokerUnderTest, wrong: dict[str, int]
) -> None:
    """RocketMQ drops failed messages of a group without retry queues."""
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        save_group(under_test, **wrong)
    assert under_test.broker.groups.all() == ()


def test_an_unknown_group_is_refused_when_that_is_set(make: Make) -> None:
    """autoCreateSubscriptionGroup=false."""
    broker = make(auto_create_group=False)
    with pytest.raises(GroupUnknown):
        beat(broker, "c")


@pytest.mark.parametrize(
    ("queues", "members", "sizes"),
    [
        (8, 1, [8]),
        (8, 3, [3, 3, 2]),
        (8, 4, [2, 2, 2, 2]),
        (4, 6, [1, 1, 1, 1, 0, 0]),
        (1, 3, [1, 0, 0]),
        (0, 2, [0, 0]),
    ],
)
def test_queues_are_shared_as_rocketmq_shares_them(
    queues: int, members: int, sizes: list[int]
) -> None:
    """Consecutive, the first ones get one more; with more members than queues some have none."""
    every = [Queue(TOPIC, queue_id) for queue_id in range(queues)]
    found = list(allocate(every, members))
    assert [len(share) for share in found] == sizes
    assert [queue for share in found for queue in share] == every


def test_queues_move_when_members_come_and_go(under_test: BrokerUnderTest) -> None:
    """Every queue has exactly one reader at any time, in the order of the client ids."""
    create_topic(under_test, TOPIC, 4)
    assert beat(under_test, "b").queues == (RETRY, *(Queue(TOPIC, n) for n in range(4)))
    beat(under_test, "a")
    assert shares(under_test, "a", "b") == [[0, 1], [2, 3]]
    for name in "cdef":
        beat(under_test, name)
    assert shares(under_test, *"abcdef") == [[0], [1], [2], [3], [], []]
    under_test.broker.membership.leave(GROUP, "a")
    assert shares(under_test, *"abcdef") == [[], [0], [1], [2], [3], []]
    assert beat(under_test, "b").members == tuple("bcdef")


def test_an_epoch_rises_with_every_change_and_only_then(under_test: BrokerUnderTest) -> None:
    """A consumer waits for the next one; a repeated one would be missed."""
    epochs = [beat(under_test, "a").epoch]
    epochs.append(beat(under_test, "b").epoch)
    assert beat(under_test, "a").epoch == epochs[-1]
    under_test.broker.membership.leave(GROUP, "nobody")
    assert under_test.broker.membership.epoch(GROUP) == epochs[-1]
    under_test.broker.membership.leave(GROUP, "b")
    epochs.append(under_test.broker.membership.epoch(GROUP))
    epochs.append(beat(under_test, "a", TOPIC, "other").epoch)
    under_test.restart()
    under_test.clock.forward(1_000)
    epochs.append(beat(under_test, "a").epoch)
    assert epochs == sorted(set(epochs))


def test_a_silent_member_is_gone_after_its_time(make: Make) -> None:
    """channelExpiredTimeout after the last heartbeat, not a millisecond before."""
    broker = make(client_expiry_ms=1_000)
    create_topic(broker, TOPIC, 2)
    told: list[str] = []
    broker.broker.membership.on_change.append(told.append)
    beat(broker, "a")
    broker.clock.forward(400)
    beat(broker, "b")
    broker.clock.forward(600)
    broker.broker.membership.expire()
    assert shares(broker, "a", "b") == [[0], [1]]
    broker.clock.forward(1)
    broker.broker.membership.expire()
    assert shares(broker, "a", "b") == [[], [0, 1]]
    assert told == [GROUP, GROUP, GROUP]
    beat(broker, "b")
    broker.clock.forward(1_000)
    broker.broker.membership.expire()
    assert shares(broker, "b") == [[0, 1]]


def test_a_member_killed_between_two_polls_is_soon_gone(under_test: BrokerUnderTest) -> None:
    """No connection of its tells; but who polls comes back at once, or never."""
    create_topic(under_test, TOPIC, 2)
    membership = under_test.broker.membership

    def poll(known_epoch: int) -> Assignment:
        subscriptions = (Subscription(TOPIC),)
        request = HeartbeatRequest(GROUP, "a", subscriptions, known_epoch, 30_000)
        return under_test.broker.heartbeat(request)

    epoch = poll(0).epoch
    under_test.clock.forward(BETWEEN_POLLS_MS_MAX)
    membership.expire()
    assert shares(under_test, "a") == [[0, 1]]
    poll(epoch)
    # It waits here now for as long as it asked to, and then has the same time to come back.
    under_test.clock.forward(30_000 + BETWEEN_POLLS_MS_MAX)
    membership.expire()
    assert shares(under_test, "a") == [[0, 1]]
    under_test.clock.forward(1)
    membership.expire()
    assert shares(under_test, "a") == [[]]


def test_a_topic_that_is_made_later_is_shared_then(under_test: BrokerUnderTest) -> None:
    """A consumer may be started before the first message."""
    before = beat(under_test, "a")
    beat(under_test, "b")
    assert shares(under_test, "a", "b") == [[], []]
    under_test.send(plain("a"))
    assert shares(under_test, "a", "b") == [[0, 1], [2, 3]]
    assert under_test.broker.membership.epoch(GROUP) > before.epoch + 1


def test_a_topic_that_may_not_be_read_is_not_shared(under_test: BrokerUnderTest) -> None:
    """A pull there would only be refused."""
    create_topic(under_test, TOPIC, 4, perm=2)
    beat(under_test, "a")
    assert shares(under_test, "a") == [[]]


def test_members_share_only_what_they_subscribe_to(under_test: BrokerUnderTest) -> None:
    """And the retry topic without being asked: one of them reads it."""
    for topic in (TOPIC, "other"):
        create_topic(under_test, topic, 4)
    beat(under_test, "a", TOPIC)
    beat(under_test, "b", TOPIC, "other")
    assert shares(under_test, "a", "b") == [[0, 1], [2, 3]]
    assert shares(under_test, "a", "b", topic="other") == [[], [0, 1, 2, 3]]
    assert shares(under_test, "a", "b", topic=RETRY.topic) == [[0], []]
    beat(under_test, "b", "other")
    assert shares(under_test, "a", "b") == [[0, 1, 2, 3], []]


def test_groups_do_not_share_with_each_other(under_test: BrokerUnderTest) -> None:
    """Each group reads everything."""
    create_topic(under_test, TOPIC, 2)
    beat(under_test, "a")
    other = beat(under_test, "a", group="second")
    assert [q.queue_id for q in other.queues if q.topic == TOPIC] == [0, 1]
    assert shares(under_test, "a") == [[0, 1]]


def test_a_group_of_a_cluster_has_one_kind_of_clients(make: Make) -> None:
    """RocketMQ's clients share out the queues of all brokers, ours those of this one: with both in
    a group, some queues would be read twice and others by nobody."""

    def beat_as(client_id: str, kind: MemberKind) -> None:
        request = HeartbeatRequest(GROUP, client_id, (Subscription(TOPIC),))
        member.broker.heartbeat(request, kind=kind)

    member = make(name_servers="127.0.0.1:9876")
    own, rocketmqs = MemberKind.POLLS, MemberKind.SHARES
    for first, other in ((own, rocketmqs), (rocketmqs, own)):
        beat_as("first", first)
        with pytest.raises(InvalidValue, match="one kind of clients"):
            beat_as("later", other)
        beat_as("same kind", first)
        beat_as("first", first)
        for client_id in ("first", "same kind"):
            member.broker.membership.leave(GROUP, client_id)
    beat_as("first", own)
    beat_as("first", rocketmqs)


def test_a_group_has_a_limit_of_members(make: Make) -> None:
    """Every table has a named limit; who is a member already stays one."""
    broker = make(group_members_max=2)
    beat(broker, "a")
    beat(broker, "b")
    with pytest.raises(Overloaded, match="maxGroupMembers"):
        beat(broker, "c")
    assert beat(broker, "a").members == ("a", "b")


def test_the_number_of_groups_has_a_limit(make: Make) -> None:
    """Any consumer can name another group; those that are there go on."""
    broker = make(groups_max=2)
    beat(broker, "a")
    save_group(broker, group="second")
    with pytest.raises(Overloaded, match="maxGroups=2"):
        beat(broker, "a", group="third")
    with pytest.raises(Overloaded, match="maxGroups=2"):
        save_group(broker, group="third", retry_queues=3)
    assert [info.group for info in broker.broker.groups.all()] == ["second", GROUP]
    save_group(broker, group="second", max_reconsume_times=3)
    beat(broker, "b")


@pytest.mark.parametrize(
    ("client_id", "topics", "error"),
    [
        ("", (TOPIC,), InvalidValue),
        ("c" * 256, (TOPIC,), InvalidValue),
        ("c", ("a b",), InvalidName),
        ("c", (TOPIC, TOPIC), InvalidValue),
        ("c", tuple(f"t{n}" for n in range(2_049)), InvalidValue),
    ],
)
def test_a_heartbeat_is_checked(
    under_test: BrokerUnderTest, client_id: str, topics: tuple[str, ...], error: type[Exception]
) -> None:
    """A member that nobody can name cannot be helped."""
    with pytest.raises(error):
        beat(under_test, client_id, *topics)
    assert under_test.broker.membership.members(GROUP) == ()


def test_a_groups_status_shows_members_readers_and_lag(under_test: BrokerUnderTest) -> None:
    """Queues it reads now, and those it has only read before."""
    create_topic(under_test, TOPIC, 2)
    under_test.send(plain("a"), plain("b"), queue_id=1)
    beat(under_test, "a")
    beat(under_test, "b")
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 1): 1}))
    status = done(under_test.broker[Progress].status(GROUP))
    assert [member.client_id for member in status.members] == ["a", "b"]
    rows = [(p.queue, p.client_id, p.committed_offset, p.lag) for p in status.progress]
    assert rows == [
        (RETRY, "a", None, 0),
        (Queue(TOPIC, 0), "a", None, 0),
        (Queue(TOPIC, 1), "b", 1, 1),
    ]
