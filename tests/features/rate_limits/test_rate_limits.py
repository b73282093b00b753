"""The limit of a group at the broker: what takes a token, and what an answer then says."""

from __future__ import annotations

import json
from random import Random

import pytest

from rmqlite.features.leases.leases import Leases
from rmqlite.features.operating.progress import Progress
from rmqlite.kernel.requests.groups import GroupChange, GroupInfo
from rmqlite.kernel.requests.messages import PullStatus
from rmqlite.kernel.words.errors import InvalidValue, QueueUnknown, RmqliteError, TopicUnknown
from rmqlite.kernel.words.names import retry_topic
from rmqlite.views.groups import limit_line, silent_lines
from tests.support.brokers import BrokerUnderTest
from tests.support.leases import CLIENT, INVISIBLE_MS, Consumer
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, plain, record, send_back
from tests.support.pulls import pull, texts
from tests.support.rate_limits import begin_limits, limit, most_above
from tests.support.scrape import scrape
from tests.support.steps import done


def test_a_pull_gets_as_many_messages_as_there_are_tokens(under_test: BrokerUnderTest) -> None:
    """The rest stays where it is: the answer says that there is nothing, and goes nowhere."""
    under_test.send(*[plain(each) for each in "abcdef"])
    time = begin_limits(under_test.broker)
    limit(under_test.broker, 2, burst=3)
    time.forward(1)
    found = pull(under_test, group=GROUP)
    assert (texts(found), found.next_offset) == ("ab", 2)
    held_back = pull(under_test, 2, group=GROUP)
    assert (held_back.status, held_back.next_offset) == (PullStatus.NO_NEW_MESSAGE, 2)
    assert (held_back.min_offset, held_back.max_offset) == (0, 6)
    assert texts(pull(under_test, group="others")) == "abcdef"


def test_a_look_that_finds_nothing_takes_no_token(under_test: BrokerUnderTest) -> None:
    """Members wait at ends of queues all the time; and a filter leaves messages out."""
    under_test.send(*[plain(each, tags="T") for each in "ab"])
    time = begin_limits(under_test.broker)
    limit(under_test.broker, 1, burst=1)
    time.forward(1)
    assert not pull(under_test, 2, group=GROUP).messages
    assert not pull(under_test, group=GROUP, expression="other").messages
    assert pull(under_test, 7, group=GROUP).status is PullStatus.OFFSET_MOVED
    assert texts(pull(under_test, group=GROUP)) == "a"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"topic": "no-such-topic"}, TopicUnknown),
        ({"queue_id": 99}, QueueUnknown),
        ({"max_messages": -1}, InvalidValue),
        ({"max_messages": 10_000_000}, InvalidValue),
        ({"sql": "n >"}, RmqliteError),
        ({"queue_offset": -1}, InvalidValue),
    ],
    ids=str,
)
def test_a_wrong_pull_is_refused_with_and_without_a_token(
    under_test: BrokerUnderTest, wrong: dict[str, object], error: type[RmqliteError]
) -> None:
    """Its client would else wait for ever, and not know why.  It neither takes nor makes one."""
    under_test.send(plain("a"))
    time = begin_limits(under_test.broker)
    limit(under_test.broker, 1, burst=2)
    for tokens in range(2):
        for _ in range(3):
            with pytest.raises(error):
                pull(under_test, **{"queue_offset": 0, "group": GROUP, **wrong})  # type: ignore[arg-type]
        assert len(pull(under_test, group=GROUP).messages) == tokens
        time.forward(1)
    with pytest.raises(TopicUnknown):
        Consumer(under_test, topic="no-such-topic").receive()


def test_a_message_that_comes_again_takes_a_token_again(under_test: BrokerUnderTest) -> None:
    """What a limit protects has to work for a retry, too."""
    (sent,) = under_test.send(plain("a"))
    time = begin_limits(under_test.broker)
    limit(under_test.broker, 1, burst=1)
    time.forward(1)
    assert texts(pull(under_test, group=GROUP)) == "a"
    send_back(under_test, record(under_test, sent), delay_level=1)
    under_test.clock.forward(1_000)
    under_test.deliver()
    retries = retry_topic(GROUP)
    assert not pull(under_test, group=GROUP, topic=retries).messages
    time.forward(1)
    assert texts(pull(under_test, group=GROUP, topic=retries)) == "a"


def test_leases_take_tokens_and_so_does_one_that_comes_again(under_test: BrokerUnderTest) -> None:
    """Two clients of a group share its tokens.  An attempt that is asked for again, because its
    answer was lost, is the same answer and takes none."""
    under_test.send(*[plain(each) for each in "abc"])
    time = begin_limits(under_test.broker)
    limit(under_test.broker, 2, burst=2)
    one, other = Consumer(under_test), Consumer(under_test, client_id="other")
    assert one.bodies() == []
    time.forward(0.5)
    assert one.bodies(attempt_id="1") == ["a"]
    assert other.bodies() == []
    assert one.bodies(attempt_id="1") == ["a"]
    time.forward(1)
    received = other.receive()
    assert len(received.messages) == 2
    under_test.broker[Leases].take_back(received)
    assert one.bodies() == []
    time.forward(0.5)
    assert len(one.bodies()) == 1


def test_a_limit_is_kept_by_a_restart_and_begins_with_nothing(make: Make) -> None:
    """After SIGKILL, too: a broker that crashes in a circle hands out no burst each time."""
    broker = make()
    broker.send(*[plain(each) for each in "abc"])
    limit(broker.broker, 0.5, burst=7)
    broker.sync()
    for end in (broker.crash, broker.close):
        end()
        broker.open()
        time = begin_limits(broker.broker)
        info = broker.broker.groups.existing(GROUP)
        assert (info.max_per_second, info.burst) == (0.5, 7)
        assert not pull(broker, group=GROUP).messages
        time.forward(2)
        assert texts(pull(broker, group=GROUP)) == "a"


def test_the_table_has_it_beside_rocketmqs_settings(under_test: BrokerUnderTest) -> None:
    """RocketMQ ignores these columns; a group without a limit has none of them."""
    limit(under_test.broker, 0.5, burst=7)
    limit(under_test.broker, 0, group="unlimited")
    under_test.sync()
    under_test.persist()
    path = under_test.config.store_path / "config/subscriptionGroup.json"
    rows = json.loads(path.read_text())["subscriptionGroupTable"]
    assert (rows[GROUP]["rmqliteMaxPerSecond"], rows[GROUP]["rmqliteBurst"]) == (0.5, 7)
    assert not [key for key in rows["unlimited"] if key.startswith("rmqlite")]


def test_other_changes_of_a_group_leave_its_limit(under_test: BrokerUnderTest) -> None:
    """And a deleted group has none any more."""
    under_test.send(*[plain(each) for each in "abc"])
    begin_limits(under_test.broker)
    limit(under_test.broker, 3)
    groups = under_test.broker.groups
    groups.change(GroupChange(GROUP, max_reconsume_times=2))
    assert groups.existing(GROUP) == GroupInfo(GROUP, 2, max_per_second=3.0)
    assert not pull(under_test, group=GROUP).messages
    groups.delete(GROUP)
    assert texts(pull(under_test, group=GROUP)) == "abc"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"max_per_second": -0.1}, "max_per_second"),
        ({"max_per_second": float("nan")}, "max_per_second"),
        ({"max_per_second": float("inf")}, "max_per_second"),
        ({"max_per_second": 1_000_001.0}, "max_per_second"),
        ({"burst": -1}, "burst"),
        ({"burst": 1_000_001}, "burst"),
    ],
    ids=str,
)
def test_a_wrong_limit_is_refused_by_its_name(
    under_test: BrokerUnderTest, change: dict[str, float], name: str
) -> None:
    """And nothing has changed."""
    with pytest.raises(InvalidValue, match=f"{name} must be 0 to 1000000"):
        under_test.broker.groups.change(GroupChange(GROUP, **change))  # type: ignore[arg-type]
    assert under_test.broker.groups.get(GROUP) is None


def test_the_slowest_limit_is_one(under_test: BrokerUnderTest) -> None:
    """A number so small that a century brings no token."""
    under_test.send(plain("a"))
    time = begin_limits(under_test.broker)
    limit(under_test.broker, 5e-324)
    assert not pull(under_test, group=GROUP, wait_ms=1).messages
    time.forward(3_600 * 24)
    assert not pull(under_test, group=GROUP, wait_ms=1).messages


@pytest.mark.parametrize(("per_second", "silent"), [(1, 6_000), (0.01, 0), (5e-324, 0)])
def test_a_group_is_not_silent_while_it_waits_for_its_limit(
    under_test: BrokerUnderTest, per_second: float, silent: int
) -> None:
    """Of four queues with messages each has its turn every four seconds at one a second, and only
    later it may be that a consumer hangs."""
    for queue_id in range(4):
        under_test.send(*[plain(each) for each in "abc"], queue_id=queue_id)
    limit(under_test.broker, per_second)
    Consumer(under_test).receive(1)
    under_test.clock.forward(10_000)
    status = done(under_test.broker[Progress].status(GROUP))
    silent_ms = {status.now_ms - each.silent_since_ms for each in status.progress if each.lag}
    assert silent_ms == {silent}


def test_the_status_says_when_the_limit_held_something_back(under_test: BrokerUnderTest) -> None:
    """Who sees a lag has to know that no consumer is to blame."""
    under_test.send(plain("a"))
    begin_limits(under_test.broker)
    limit(under_test.broker, 1)
    assert done(under_test.broker[Progress].status(GROUP)).held_back_at_ms == 0
    pull(under_test, group=GROUP, wait_ms=1)
    under_test.clock.forward(5_000)
    status = done(under_test.broker[Progress].status(GROUP))
    assert status.now_ms - status.held_back_at_ms == 5_000
    assert limit_line(status).endswith("it holds messages back: a lag comes from it")
    assert not silent_lines(status)
    found = scrape(under_test)
    assert found.value("rmqlite_rate_limit_per_second", group=GROUP) == 1
    assert found.value("rmqlite_rate_limit_waits_total", group=GROUP) == 1
    under_test.clock.forward(60_000)
    later = done(under_test.broker[Progress].status(GROUP))
    assert limit_line(later).endswith("it held nothing back in the last minute")


@pytest.mark.parametrize("seed", range(6))
def test_no_time_sees_more_messages_than_burst_and_rate(make: Make, seed: int) -> None:
    """Pulls and leases, of any members, retries and all, in any window of time; steps of the wall
    clock and a suspended machine neither stall the group nor flood it."""
    random = Random(seed)
    per_second, burst = random.choice([(2.5, 3), (40, 1), (100, 100)])
    broker = make()
    broker.send(*[plain(str(each)) for each in range(300)])
    time = begin_limits(broker.broker)
    limit(broker.broker, per_second, burst)
    members = [Consumer(broker, client_id=f"{CLIENT}-{each}") for each in range(3)]
    handed_out: list[tuple[float, int]] = []
    began_s = time.now_s
    for _ in range(200):
        time.forward(random.choice([0, 0.1, 1, 3]) / per_second)
        machine = broker.clock.machine
        random.choice([machine.forward, machine.suspend])(random.randint(0, INVISIBLE_MS))
        machine.step_wall(random.randint(-100_000, 100_000))
        most = random.choice([1, 2, 32])
        if random.random() < 0.5:
            count = len(pull(broker, group=GROUP, max_messages=most).messages)
        else:
            count = len(random.choice(members).receive(most).messages)
        handed_out.append((time.now_s, count))
    assert most_above(handed_out, per_second) <= burst + 1e-3
    total = sum([count for _, count in handed_out])
    assert total >= min(1.0, 0.9 * per_second * (time.now_s - began_s) / (burst + 3)) > 0


def test_a_group_without_a_limit_costs_the_kernel_one_look(under_test: BrokerUnderTest) -> None:
    """Also one that had a limit is pulled by the kernel alone."""
    under_test.send(plain("a"))
    begin_limits(under_test.broker)
    limit(under_test.broker, 5)
    limit(under_test.broker, 0)
    assert under_test.broker.limited_pulls == {}
    assert under_test.broker[Leases].limited == {}
    assert under_test.broker.groups.existing(GROUP) == GroupInfo(GROUP)
