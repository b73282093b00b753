"""Groups of very many members: each change costs little, and all changes of a pause are one."""

from __future__ import annotations

import pytest

from rmqlite.kernel.requests.groups import Assignment, HeartbeatRequest, Subscription
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.tables import membership
from rmqlite.kernel.tables.membership import PAUSE_MS, SMALL_MEMBERS_MAX, SUBSCRIPTION_BYTES
from rmqlite.kernel.words.errors import InvalidValue, Overloaded
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, create_topic

LARGE = 100


def beat(
    broker: BrokerUnderTest, client_id: str, *, group: str = GROUP, known_epoch: int = 0
) -> Assignment:
    request = HeartbeatRequest(group, client_id, (Subscription(TOPIC),), known_epoch)
    return broker.broker.heartbeat(request)


def rebalance(broker: BrokerUnderTest) -> int:
    """Let the time pass that the next assignments wait for; in how many steps they are made."""
    due_ms = broker.broker.membership.due_ms()
    assert due_ms is not None
    broker.clock.forward(max(0, due_ms - broker.clock.now_ms()))
    return sum(1 for _ in broker.broker.membership.rebalance())


def join_many(broker: BrokerUnderTest, count: int = LARGE) -> list[str]:
    names = [f"member-{number:04}" for number in range(count)]
    for name in names:
        beat(broker, name)
    return names


def told_of(broker: BrokerUnderTest) -> list[str]:
    told: list[str] = []
    broker.broker.membership.on_change.append(told.append)
    return told


def test_members_that_join_one_by_one_get_one_assignment_together(
    under_test: BrokerUnderTest,
) -> None:
    """Each assignment is told to all members: a thousand of them would be told a million times."""
    create_topic(under_test, TOPIC, LARGE)
    told = told_of(under_test)
    names = join_many(under_test)
    assert len(told) == SMALL_MEMBERS_MAX
    rebalance(under_test)
    assert len(told) == SMALL_MEMBERS_MAX + 1
    found = [beat(under_test, name) for name in names]
    assert len({each.epoch for each in found}) == 1
    assert all(each.members == tuple(names) for each in found)
    topics = [[queue for queue in each.queues if queue.topic == TOPIC] for each in found]
    assert topics == [[Queue(TOPIC, number)] for number in range(LARGE)]
    assert under_test.broker.membership.due_ms() is None


def test_until_the_next_assignment_the_last_one_is_in_force(under_test: BrokerUnderTest) -> None:
    """No queue has two readers meanwhile, and who has just joined has none."""
    create_topic(under_test, TOPIC, 4)
    join_many(under_test, SMALL_MEMBERS_MAX)
    before = beat(under_test, "member-0000")
    late = beat(under_test, "another")
    assert (late.epoch, late.queues, late.members) == (before.epoch, (), before.members)
    assert beat(under_test, "member-0000") == before
    rebalance(under_test)
    assert beat(under_test, "another").queues != ()
    assert beat(under_test, "another").epoch > before.epoch


def test_a_large_group_has_a_pause_between_two_assignments(under_test: BrokerUnderTest) -> None:
    """As long as it takes to tell them all a few times; after a quiet time it has none."""
    create_topic(under_test, TOPIC, 4)
    join_many(under_test)
    rebalance(under_test)
    under_test.broker.membership.leave(GROUP, "member-0000")
    due_ms = under_test.broker.membership.due_ms()
    assert due_ms == under_test.clock.now_ms() + PAUSE_MS * (LARGE - 1)
    assert rebalance(under_test) > 0
    under_test.clock.forward(60_000)
    beat(under_test, "member-0000")
    due_ms = under_test.broker.membership.due_ms()
    assert due_ms is not None
    assert due_ms <= under_test.clock.now_ms()


def test_a_heartbeat_that_says_nothing_new_works_nothing_out(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand members say that they live every few seconds."""
    create_topic(under_test, TOPIC, 4)
    join_many(under_test)
    rebalance(under_test)
    first = beat(under_test, "member-0000")

    def refuse(*_: object) -> None:
        raise AssertionError("nothing has changed")

    for name in ("_with_retries", "_check_member", "allocate", "_size_bytes"):
        monkeypatch.setattr(membership, name, refuse)
    again = beat(under_test, "member-0000")
    assert again == first
    assert again.members is first.members
    assert again.queues is first.queues


def test_what_members_say_alike_is_kept_once(under_test: BrokerUnderTest) -> None:
    """A thousand copies of a long subscription would be a lot of memory."""
    join_many(under_test, 3)
    members = under_test.broker.membership.members(GROUP)
    assert all(each.subscriptions is members[0].subscriptions for each in members)


def test_a_long_assignment_is_worked_out_in_steps(make: Make) -> None:
    """Others get their turn; what changes meanwhile is in the next one."""
    broker = make()
    topics = [f"topic-{number}" for number in range(20)]
    for topic in topics:
        create_topic(broker, topic, 1_000)
    request = HeartbeatRequest(GROUP, "a", tuple(Subscription(topic) for topic in topics))
    assert broker.broker.heartbeat(request).queues == ()
    steps = broker.broker.membership.rebalance()
    next(steps)
    beat(broker, "b")
    assert sum(1 for _ in steps) > 5
    assert len(broker.broker.heartbeat(request).queues) == 20_001
    assert broker.broker.membership.due_ms() is not None


def test_a_group_that_is_small_by_now_keeps_its_newer_assignment(make: Make) -> None:
    """A long work on an older one must not come after it."""
    broker = make()
    create_topic(broker, TOPIC, 10)
    names = join_many(broker)
    steps = broker.broker.membership.rebalance()
    broker.clock.forward(60_000)
    for name in names[2:]:
        broker.broker.membership.leave(GROUP, name)
    newest = beat(broker, names[0])
    assert len([queue for queue in newest.queues if queue.topic == TOPIC]) == 5
    for _ in steps:
        pass
    assert beat(broker, names[0]) == newest


def test_a_topic_of_very_many_groups_changes_in_turns(make: Make) -> None:
    """One call that widens a topic must not work out the assignments of all its readers."""
    broker = make()
    for number in range(50):
        beat(broker, "a", group=f"group-{number}")
    told = told_of(broker)
    create_topic(broker, TOPIC, 4)
    assert told == []
    assert rebalance(broker) >= 50
    assert len(told) == 50
    assert len(beat(broker, "a", group="group-7").queues) == 5


def test_all_groups_together_have_a_limit_of_members(make: Make) -> None:
    """Any client can join any number of groups; who has left makes room."""
    broker = make(members_max=3)
    for number in range(3):
        beat(broker, "a", group=f"group-{number}")
    with pytest.raises(Overloaded, match="maxMembers=3"):
        beat(broker, "a", group="group-3")
    assert broker.broker.membership.members("group-3") == ()
    beat(broker, "a", group="group-0")
    broker.broker.membership.leave("group-1", "a")
    beat(broker, "a", group="group-3")
    broker.clock.forward(1_000_000)
    broker.broker.membership.expire()
    for number in range(3):
        beat(broker, "b", group=f"group-{number}")


def test_the_subscriptions_of_all_members_have_a_limit(make: Make) -> None:
    """30 heartbeats with 19 MiB each would stay in memory, and in every answer about the group."""
    broker = make(subscription_bytes_max=3_000)

    def subscribe(client_id: str, topics: int) -> Assignment:
        wanted = tuple(Subscription(f"t-{number}") for number in range(topics))
        return broker.broker.heartbeat(HeartbeatRequest(GROUP, client_id, wanted))

    assert 3_000 // SUBSCRIPTION_BYTES == 15
    subscribe("a", 10)
    with pytest.raises(Overloaded, match="maxSubscriptionBytes=3000"):
        subscribe("b", 5)
    with pytest.raises(Overloaded, match="maxSubscriptionBytes=3000"):
        subscribe("a", 20)
    (member,) = broker.broker.membership.members(GROUP)
    assert len(member.subscriptions) == 11
    subscribe("a", 5)
    subscribe("b", 5)


@pytest.mark.parametrize(
    ("client_id", "expression"), [("c" * 256, "*"), ("é" * 128, "*"), ("c", "x" * 4_097)]
)
def test_a_member_that_says_too_much_is_refused(
    under_test: BrokerUnderTest, client_id: str, expression: str
) -> None:
    """Also the second one, whose subscription is known; the sentence has the length only."""
    beat(under_test, "a")
    request = HeartbeatRequest(GROUP, client_id, (Subscription(TOPIC, expression),))
    with pytest.raises(InvalidValue, match=r"\d+ bytes"):
        under_test.broker.heartbeat(request)
    assert len(under_test.broker.membership.members(GROUP)) == 1


def test_an_empty_group_is_forgotten(under_test: BrokerUnderTest) -> None:
    """And its epochs go on behind those of all groups: none comes again."""
    before = beat(under_test, "a").epoch
    under_test.broker.membership.leave(GROUP, "a")
    assert under_test.broker.membership.epoch(GROUP) == 0
    assert beat(under_test, "a").epoch > before
