"""How many messages come and go, as samples count them; and how far groups are."""

from __future__ import annotations

import pytest

from rmqlite.features.figures.requests import Rate
from rmqlite.features.figures.traffic import SAMPLE_S, Traffic
from rmqlite.features.operating.progress import Progress
from rmqlite.features.operating.requests import QueueTimes, TakenQueue
from rmqlite.kernel import counts
from rmqlite.kernel.requests.groups import HeartbeatRequest, OffsetsCommit, Subscription
from rmqlite.kernel.requests.topics import Queue
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, TOPIC, create_topic, delayed, plain
from tests.support.steps import done


def pass_samples(broker: BrokerUnderTest, count: int = 1) -> None:
    for _ in range(count):
        broker.clock.forward(SAMPLE_S * 1000)
        done(broker.broker[Traffic].sample())


def progress_of(under_test: BrokerUnderTest) -> Progress:
    return under_test.broker[Progress]


def test_rates_are_differences_between_samples(under_test: BrokerUnderTest) -> None:
    """A minute is the last six intervals; before the second sample there is no rate."""
    traffic = under_test.broker[Traffic]
    assert traffic.of_topic(TOPIC).minute == Rate()
    under_test.send(*[plain(f"{number}") for number in range(30)])
    assert traffic.of_topic(TOPIC).minute == Rate()
    pass_samples(under_test)
    assert traffic.of_topic(TOPIC).minute == Rate(30, 3.0, 1.0)
    pass_samples(under_test, 5)
    assert traffic.of_topic(TOPIC).minute == Rate(30, 0.5, 1.0)
    pass_samples(under_test)
    assert traffic.of_topic(TOPIC).minute == Rate()


def test_an_hour_and_a_day_have_their_own_samples(under_test: BrokerUnderTest) -> None:
    """Every ten minutes, and every hour."""
    under_test.send(plain("a"), plain("b"))
    pass_samples(under_test, 60)
    rates = under_test.broker[Traffic].of_topic(TOPIC)
    assert (rates.minute.messages, rates.hour.messages, rates.day.messages) == (0, 2, 0)
    assert rates.hour.per_second == pytest.approx(2 / 600)
    pass_samples(under_test, 300)
    rates = under_test.broker[Traffic].of_topic(TOPIC)
    assert (rates.hour.messages, rates.day.messages) == (2, 2)
    pass_samples(under_test, 60)
    assert under_test.broker[Traffic].of_topic(TOPIC).hour == Rate()


def test_a_group_has_rates_of_its_own_in_each_topic(under_test: BrokerUnderTest) -> None:
    """With the messages that one pull brought on average."""
    under_test.send(*[plain(f"{number}") for number in range(10)])
    under_test.pull(TOPIC, group=GROUP)
    under_test.pull(TOPIC, group=GROUP)
    under_test.pull(TOPIC, queue_offset=10, group=GROUP)
    pass_samples(under_test)
    traffic = under_test.broker[Traffic]
    assert traffic.of_group(TOPIC, GROUP).minute == Rate(20, 2.0, 10.0)
    assert traffic.of_group(TOPIC, "others").minute == Rate()
    now = traffic.now()
    assert (now.now.stored, now.now.found, now.now.missed, now.now.taken) == (10, 2, 1, 20)
    assert now.stored_per_second == (1.0, 1.0, 1.0)
    assert now.taken_per_second[0] == 2.0


def test_deliveries_and_retries_count_as_stored(under_test: BrokerUnderTest) -> None:
    """As in RocketMQ, where a delayed message is stored twice."""
    under_test.send(delayed("late", 1))
    under_test.clock.forward(1_000)
    under_test.deliver()
    pass_samples(under_test)
    traffic = under_test.broker[Traffic]
    assert traffic.of_topic("SCHEDULE_TOPIC_XXXX").minute.messages == 1
    assert traffic.of_topic(TOPIC).minute.messages == 1
    assert traffic.now().now.stored == 2


def test_totals_are_noted_at_midnight(under_test: BrokerUnderTest) -> None:
    """For yesterday and today; a broker that was just started has none."""
    traffic = under_test.broker[Traffic]
    under_test.send(plain("a"))
    assert [each.stored for each in traffic.now().at_midnight] == [0, 0]
    under_test.clock.forward(86_400_000)
    pass_samples(under_test)
    assert [each.stored for each in traffic.now().at_midnight] == [0, 1]
    under_test.send(plain("b"))
    under_test.clock.forward(86_400_000)
    pass_samples(under_test)
    assert [each.stored for each in traffic.now().at_midnight] == [1, 2]


def test_pairs_of_topic_and_group_are_limited(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever pulls with new groups all the time fills no memory; the totals go on."""
    monkeypatch.setattr(counts, "PAIRS_MAX", 1)
    under_test.send(plain("a"))
    for group in ("one", "two"):
        under_test.pull(TOPIC, group=group)
    assert list(under_test.broker.counts.taken) == [(TOPIC, "one")]
    assert under_test.broker.counts.found == 2


def test_progress_has_every_queue_of_a_topic_that_a_group_reads(
    under_test: BrokerUnderTest,
) -> None:
    """Also queues without an offset; and when the last message that it took was stored."""
    create_topic(under_test, TOPIC, 2)
    under_test.send(plain("a"))
    stored_ms = under_test.clock.now_ms()
    under_test.clock.forward(5_000)
    under_test.send(plain("b"))
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): 1}))
    (taken,) = done(progress_of(under_test).of_group(GROUP))
    assert taken.queues == (
        TakenQueue(Queue(TOPIC, 0), 2, 1, stored_ms),
        TakenQueue(Queue(TOPIC, 1), 0, 0, 0),
    )
    assert taken.behind == 1
    assert done(progress_of(under_test).of_group(GROUP, "others")) == ()
    (times, empty) = done(progress_of(under_test).times(GROUP, TOPIC))
    assert times == QueueTimes(
        Queue(TOPIC, 0), stored_ms, stored_ms + 5_000, stored_ms, stored_ms + 5_000
    )
    assert empty == QueueTimes(Queue(TOPIC, 1), None, None, None, None)


def test_a_topic_that_no_member_reads_any_more_is_left_out(under_test: BrokerUnderTest) -> None:
    """As long as the group has members; its old offsets would show a growing backlog."""
    under_test.send(plain("a"), plain("b", "others"))
    offsets = {Queue(TOPIC, 0): 1, Queue("others", 0): 1}
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, offsets))
    progress = progress_of(under_test)
    assert [each.topic for each in done(progress.of_group(GROUP))] == [TOPIC, "others"]
    under_test.broker.heartbeat(HeartbeatRequest(GROUP, "me", (Subscription(TOPIC),)))
    assert [each.topic for each in done(progress.of_group(GROUP))] == [TOPIC]
    assert under_test.broker.parts.groups_at(TOPIC) == (GROUP,)
    assert under_test.broker.parts.groups_at("others") == (GROUP,)
    under_test.broker.heartbeat(HeartbeatRequest("new", "me", (Subscription("others"),)))
    assert under_test.broker.parts.groups_at("others") == ("new", GROUP)


def test_offsets_of_a_time_do_not_advance_unless_that_is_wished(
    under_test: BrokerUnderTest,
) -> None:
    """resetOffsetByTime without -f must not skip messages."""
    under_test.send(plain("a"))
    under_test.clock.forward(5_000)
    second_ms = under_test.clock.now_ms()
    under_test.send(plain("b"))
    under_test.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): 1}))
    progress = progress_of(under_test)

    def at(timestamp_ms: int | None, *, may_advance: bool = True) -> int:
        steps = progress.offsets_at(GROUP, TOPIC, timestamp_ms, may_advance=may_advance)
        return done(steps)[Queue(TOPIC, 0)]

    assert (at(0), at(second_ms), at(second_ms + 1), at(None)) == (0, 1, 2, 2)
    assert at(None, may_advance=False) == 1
    assert at(0, may_advance=False) == 0
