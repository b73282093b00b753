"""When a failed message comes again, and when not: the group's policy, and who sets the limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqlite.kernel.requests.broker import LevelsChange
from rmqlite.kernel.requests.groups import GroupChange, GroupInfo, HeartbeatRequest, Subscription
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.tables.topics import TopicTable
from rmqlite.kernel.words.errors import InvalidName, InvalidValue, StoreDamaged, StoreUnavailable
from rmqlite.kernel.words.message import (
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    StoredMessage,
    encode_properties,
)
from rmqlite.kernel.words.names import retry_topic
from rmqlite.kernel.words.retry_policy import TABLE_KEY
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.letters import dead_letters
from tests.support.made_brokers import Make
from tests.support.messages import (
    GROUP,
    TOPIC,
    bodies,
    delayed,
    plain,
    received,
    save_group,
    send_back,
)
from tests.support.stores import new_record

RETRY = retry_topic(GROUP)


def waits_s(broker: BrokerUnderTest, message: StoredMessage, **how: Any) -> float:
    """How long the message now has to wait; -1: it is dead."""
    # Each time as a delivery of its own.
    broker.broker.failing.sent_back.forget(how.get("group", GROUP))
    answer = send_back(broker, message, **how)
    return -1 if answer.is_dead else (answer.deliver_at_ms - broker.clock.now_ms()) / 1_000


def retried(broker: BrokerUnderTest) -> StoredMessage:
    """What the group is given again next."""
    broker.clock.forward(7_200_000)
    assert broker.deliver() == 1
    return broker.messages(RETRY)[-1]


def table_row(broker: BrokerUnderTest) -> dict[str, object]:
    broker.persist()
    path = broker.config.store_path / "config" / "subscriptionGroup.json"
    row: dict[str, object] = tables.decode(path.read_bytes())["subscriptionGroupTable"][GROUP]
    return row


def write_row(broker: BrokerUnderTest, **row: object) -> None:
    """The table as somebody else wrote it, while no broker runs."""
    path = broker.config.store_path / "config" / "subscriptionGroup.json"
    path.write_text(json.dumps({"subscriptionGroupTable": {GROUP: {"groupName": GROUP} | row}}))


# ---- the policy


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        ("", [10, 30, 60, 120]),
        ("1 5 2", [1, 60, 5, 5]),
        ("10s 1m 10m", [10, 60, 600, 600]),
        ("exponential(10s, 4, 10m)", [10, 60, 180, 600]),
    ],
)
def test_retries_follow_the_groups_policy(
    under_test: BrokerUnderTest, policy: str, waits: list[int]
) -> None:
    """Failure by failure, the last step again and again."""
    save_group(under_test, retry_policy=policy)
    message = received(under_test)
    for wait in waits:
        assert waits_s(under_test, message) == wait
        message = retried(under_test)


def test_a_new_policy_counts_from_the_next_failure_on(under_test: BrokerUnderTest) -> None:
    """What waits already keeps its time, and the attempts so far are counted."""
    message = received(under_test)
    assert waits_s(under_test, message) == 10
    save_group(under_test, retry_policy="1h 2h")
    assert under_test.broker.wait_queues.next_due_ms(3) == under_test.clock.now_ms() + 10_000
    message = retried(under_test)
    assert waits_s(under_test, message) == 7_200
    save_group(under_test, retry_policy="")
    assert waits_s(under_test, retried(under_test)) == 60


def test_a_policy_by_lengths_follows_another_table_of_levels(under_test: BrokerUnderTest) -> None:
    """The next failure goes by the table in force then; level numbers mean what they now mean."""
    save_group(under_test, retry_policy="1m")
    save_group(under_test, group="by-numbers", retry_policy="5")
    message = received(under_test)
    assert waits_s(under_test, message) == waits_s(under_test, message, group="by-numbers") == 60
    under_test.broker.levels.change(LevelsChange("10s 20s 30s 90s 2h"))
    assert waits_s(under_test, message) == 90
    assert waits_s(under_test, message, group="by-numbers") == 7_200
    under_test.broker.levels.change(LevelsChange("10s 20s"))
    assert waits_s(under_test, message) == waits_s(under_test, message, group="by-numbers") == 20


def test_the_consumers_own_level_goes_before_the_policy(under_test: BrokerUnderTest) -> None:
    """It may know that the shop opens in an hour."""
    save_group(under_test, retry_policy="1s")
    message = received(under_test)
    assert waits_s(under_test, message, delay_level=17) == 3_600
    assert waits_s(under_test, message, delay_level=-1) == -1


@pytest.mark.parametrize("is_crash", [True, False])
def test_a_policy_is_there_after_a_restart(under_test: BrokerUnderTest, is_crash: bool) -> None:
    """It is on disk before it is answered."""
    save_group(under_test, retry_policy="exponential( 1m,2, 1h )", max_reconsume_times=3)
    if is_crash:
        under_test.crash()
        under_test.open()
    else:
        under_test.restart()
    info = GroupInfo(GROUP, 3, retry_policy="exponential(1m, 2, 1h)")
    assert under_test.broker.groups.existing(GROUP) == info
    assert waits_s(under_test, received(under_test)) == 60


def test_rocketmq_finds_nothing_new_in_its_file_but_the_policy(
    under_test: BrokerUnderTest,
) -> None:
    """It ignores a key that it does not know; a group without a policy has none."""
    save_group(under_test, retry_policy="3 5 7")
    with_policy = table_row(under_test)
    assert with_policy.pop(TABLE_KEY) == "3 5 7"
    save_group(under_test, retry_policy="")
    assert table_row(under_test) == with_policy


def test_a_table_that_rocketmq_wrote_again_has_its_levels(under_test: BrokerUnderTest) -> None:
    """It left the policy out."""
    save_group(under_test, retry_policy="2h")
    under_test.close()
    write_row(under_test, retryMaxTimes=16, retryQueueNums=1, consumeEnable=True)
    under_test.open()
    assert waits_s(under_test, received(under_test)) == 10


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({TABLE_KEY: "jitter(5s)"}, "retry_policy must be"),
        ({TABLE_KEY: 7}, "text, found 7"),
        ({TABLE_KEY: None}, "text, found None"),
        ({"retryMaxTimes": "many"}, "many"),
        ({"groupName": None, "retryQueueNums": None}, "groupName: text, found None"),
    ],
)
def test_a_row_that_nobody_can_read_is_said_at_once(
    make: Make, row: dict[str, object], said: str
) -> None:
    """Which file and which group, when the store is opened; not at some failure later."""
    broker = make()
    broker.close()
    write_row(broker, **row)
    with pytest.raises(StoreDamaged, match=r"subscriptionGroup\.json.*Table\.shop\.") as raised:
        broker.open()
    assert said in str(raised.value)
    broker.store.release()
    write_row(broker)
    broker.open()


@pytest.mark.parametrize("tree", [{"subscriptionGroupTable": []}, {"dataVersion": 7}])
def test_what_is_no_table_of_groups_is_said_at_once(make: Make, tree: dict[str, object]) -> None:
    """With the file's name, as a damaged store."""
    broker = make()
    broker.close()
    path = broker.config.store_path / "config" / "subscriptionGroup.json"
    path.write_text(json.dumps(tree))
    with pytest.raises(StoreDamaged, match=r"subscriptionGroup\.json .*: an object, found"):
        broker.open()
    broker.store.release()
    path.write_text("{}")
    broker.open()


# ---- changing a group


def test_a_change_leaves_what_it_does_not_name(under_test: BrokerUnderTest) -> None:
    """And makes the group when there is none, also where that is not done on demand."""
    under_test.restart(auto_create_group=False)
    change = under_test.broker.groups.change
    assert change(GroupChange(GROUP)) == GroupInfo(GROUP)
    change(GroupChange(GROUP, max_reconsume_times=0))
    change(GroupChange(GROUP, retry_queues=3))
    change(GroupChange(GROUP, can_consume=False))
    answer = change(GroupChange(GROUP, retry_policy=" 3,5 "))
    assert answer == GroupInfo(GROUP, 0, 3, False, "3 5") == under_test.broker.groups.all()[0]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (GroupChange("a b"), InvalidName),
        (GroupChange(GROUP, max_reconsume_times=-1), InvalidValue),
        (GroupChange(GROUP, max_reconsume_times=2**31), InvalidValue),
        (GroupChange(GROUP, retry_queues=0), InvalidValue),
        (GroupChange(GROUP, retry_queues=100_000), InvalidValue),
        (GroupChange(GROUP, retry_policy="soon"), InvalidValue),
        (GroupChange(GROUP, max_reconsume_times=5, retry_policy="soon"), InvalidValue),
    ],
)
def test_a_change_that_breaks_a_rule_changes_nothing(
    under_test: BrokerUnderTest, change: GroupChange, error: type[Exception]
) -> None:
    """Not the half of it either."""
    save_group(under_test, retry_policy="3 5")
    before = table_row(under_test)
    with pytest.raises(error):
        under_test.broker.groups.change(change)
    assert under_test.broker.groups.all() == (GroupInfo(GROUP, retry_policy="3 5"),)
    assert table_row(under_test) == before


def test_a_limit_that_rocketmq_wrote_does_not_stop_another_change(
    under_test: BrokerUnderTest,
) -> None:
    """Only what a change names is checked."""
    under_test.close()
    write_row(under_test, retryMaxTimes=-1)
    under_test.open()
    save_group(under_test, can_consume=False)
    assert table_row(under_test)["retryMaxTimes"] == -1


def test_what_the_disk_does_not_take_is_not_in_force(make: Make) -> None:
    """The answer was an error, so the next failure goes by the old policy."""

    disk = FaultyFiles()
    broker = make(files=disk)
    message = received(broker)
    assert waits_s(broker, message) == 10
    disk.fail("write")
    with pytest.raises(StoreUnavailable):
        save_group(broker, retry_policy="2h", retry_queues=4)
    assert waits_s(broker, message) == 10
    assert broker.broker.topics.existing(RETRY).read_queues == 1
    save_group(broker, retry_policy="2h")
    assert waits_s(broker, message) == 7_200


def test_more_retry_queues_are_there_at_once_and_read(under_test: BrokerUnderTest) -> None:
    """RocketMQ puts retries into queues that its topic does not have (reference §7.4)."""
    member = HeartbeatRequest(GROUP, "c", (Subscription(TOPIC),))
    assert len(under_test.broker.heartbeat(member).queues) == 1
    row = under_test.config.store_path / "config" / "topics.json"
    save_group(under_test, retry_queues=4)
    assert len(under_test.broker.heartbeat(member).queues) == 4
    under_test.persist()
    assert tables.decode(row.read_bytes())["topicConfigTable"][RETRY]["writeQueueNums"] == 4
    for number in range(12):
        send_back(under_test, received(under_test, body=b"x%d" % number))
    under_test.clock.forward(10_000)
    under_test.deliver()
    counts = [len(bodies(under_test, RETRY, n)) for n in range(4)]
    assert sum(counts) == 12
    assert counts[0] < 12
    under_test.restart()
    assert under_test.broker.topics.existing(RETRY).read_queues == 4


def test_fewer_retry_queues_hide_no_message(under_test: BrokerUnderTest) -> None:
    """The topic keeps the queues that it has: something may lie in them."""
    save_group(under_test, retry_queues=4)
    send_back(under_test, received(under_test))
    save_group(under_test, retry_queues=1)
    assert under_test.broker.topics.existing(RETRY).read_queues == 4


def test_a_wider_topic_keeps_what_rocketmq_says_of_it(under_test: BrokerUnderTest) -> None:
    """Fields that mean nothing here go back as they came."""
    under_test.close()
    row = {"topicName": RETRY, "readQueueNums": 1, "writeQueueNums": 2, "perm": 6}
    row |= {"topicSysFlag": 2, "order": True, "attributes": {"a": "b"}}
    path = under_test.config.store_path / "config" / "topics.json"
    path.write_text(json.dumps({"topicConfigTable": {RETRY: row}}))
    under_test.open()
    save_group(under_test, retry_queues=3)
    under_test.persist()
    tree = tables.decode(path.read_bytes())
    assert tree["topicConfigTable"][RETRY] == row | {"readQueueNums": 3, "writeQueueNums": 3}
    topics = TopicTable(under_test.store, under_test.config)
    assert topics.existing(RETRY).read_queues == 3


# ---- who sets the limit


@pytest.mark.parametrize(
    ("senders", "consumers", "groups", "retries"),
    [
        (None, None, 2, 2),
        (None, None, 0, 0),
        (None, 3, 2, 3),
        (None, 0, 2, 0),
        (1, None, 2, 1),
        (1, 3, 2, 1),
        (4, 3, 2, 4),
        (0, 3, 2, 0),
        (3, 0, 0, 3),
    ],
)
def test_the_senders_limit_goes_before_the_consumers_and_that_before_the_groups(
    under_test: BrokerUnderTest,
    senders: int | None,
    consumers: int | None,
    groups: int,
    retries: int,
) -> None:
    """So many retries, then it is dead; with 0 at its first failure."""
    save_group(under_test, max_reconsume_times=groups)
    message = received(under_test, max_reconsume_times=senders)
    for _ in range(retries):
        assert waits_s(under_test, message, max_reconsume_times=consumers) > 0
        message = retried(under_test)
    assert waits_s(under_test, message, max_reconsume_times=consumers) == -1


def test_the_senders_limit_stays_with_a_delayed_message(under_test: BrokerUnderTest) -> None:
    """Through the schedule, its retries, and into the dead letter."""
    message = delayed("late", 4)
    under_test.send(plain("late", delay_level=4, max_reconsume_times=1))
    under_test.send(message)
    under_test.clock.forward(30_000)
    under_test.deliver()
    limited, plain_one = under_test.messages(TOPIC)
    assert (limited.max_reconsume_times, plain_one.max_reconsume_times) == (1, None)
    assert waits_s(under_test, limited) == 10
    again = retried(under_test)
    assert again.max_reconsume_times == 1
    assert waits_s(under_test, again) == -1
    (dead,) = under_test.messages("%DLQ%" + GROUP)
    assert dead.properties[MAX_RECONSUME_TIMES] == "1"
    assert [letter.max_reconsume_times for letter in dead_letters(under_test)] == [1]


@pytest.mark.parametrize(
    ("properties", "retries"),
    [
        ({MAX_RECONSUME_TIMES: "0"}, 0),
        ({MAX_RECONSUME_TIMES: "00"}, 0),
        ({MAX_RECONSUME_TIMES: "2147483647"}, 2),
        ({MAX_RECONSUME_TIMES: "2147483648"}, 1),
        ({MAX_RECONSUME_TIMES: "-1"}, 1),
        ({MAX_RECONSUME_TIMES: "two"}, 1),
        ({MAX_RECONSUME_TIMES: " 0"}, 1),
        ({MAX_RECONSUME_TIMES: "\u0660"}, 1),
        ({MAX_RECONSUME_TIMES: "9" * 5_000}, 1),
        # What RocketMQ's consumer writes when it sends a failed message itself (§5.3, §7.3).
        ({MAX_RECONSUME_TIMES: "0", RECONSUME_TIME: "1"}, 1),
    ],
)
def test_only_a_limit_that_the_sender_set_counts(
    under_test: BrokerUnderTest, properties: dict[str, str], retries: int
) -> None:
    """What is no number of 0 or more, and what a consumer wrote, leaves the group's in force."""
    save_group(under_test, max_reconsume_times=1)
    under_test.send(plain("first"))
    under_test.store.append([new_record("odd", TOPIC, properties=properties)])
    under_test.sync()
    message = under_test.messages(TOPIC)[-1]
    assert encode_properties(message.properties) == encode_properties(properties)
    for _ in range(retries):
        assert waits_s(under_test, message) > 0
        message = retried(under_test)
    if properties[MAX_RECONSUME_TIMES] != "2147483647":
        assert waits_s(under_test, message) == -1
