"""A group that is to go on from another place: at a time, an end, or one offset."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.operating.deleting import Deleting
from rmqlite.features.operating.requests import OffsetReset, QueueReset, TopicReader
from rmqlite.features.operating.resetting import Resetting
from rmqlite.kernel.requests.groups import HeartbeatRequest, OffsetsCommit, Subscription
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import (
    GroupInUse,
    GroupUnknown,
    InvalidValue,
    QueueUnknown,
    TopicUnknown,
)
from rmqlite.kernel.words.names import retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.leases import Consumer
from tests.support.messages import GROUP, TOPIC, create_topic, delayed, plain, received, send_back
from tests.support.steps import done

HEAD, SIDE = Queue(TOPIC, 0), Queue(TOPIC, 1)


@pytest.fixture
def read(under_test: BrokerUnderTest) -> BrokerUnderTest:
    """Two queues with five messages each, a second apart; the group has taken 3 and 5."""
    create_topic(under_test, TOPIC, 2)
    for number in range(5):
        for queue_id in (0, 1):
            under_test.send(plain(str(number)), queue_id=queue_id)
        under_test.clock.forward(1_000)
    commit(under_test, {HEAD: 3, SIDE: 5})
    return under_test


def commit(broker: BrokerUnderTest, offsets: dict[Queue, int]) -> None:
    broker.broker.commit_offsets(OffsetsCommit(GROUP, offsets))


def join(broker: BrokerUnderTest) -> None:
    broker.broker.heartbeat(HeartbeatRequest(GROUP, "client", (Subscription(TOPIC),)))


def reset(broker: BrokerUnderTest, **how: Any) -> tuple[QueueReset, ...]:
    """What was done, which is what the preview said; the preview changes nothing."""
    request = OffsetReset(GROUP, **how)
    before = dict(broker.broker.offsets.of(GROUP))
    seen = done(broker.broker[Resetting].preview(request))
    assert broker.broker.offsets.of(GROUP) == before
    assert done(broker.broker[Resetting].reset(request)) == seen
    assert broker.broker.offsets.of(GROUP) == before | {each.queue: each.after for each in seen}
    return seen


def counts(resets: tuple[QueueReset, ...]) -> list[tuple[int, int, int]]:
    return [(each.after, each.again, each.skipped) for each in resets]


def test_a_group_goes_back_to_the_first_message(read: BrokerUnderTest) -> None:
    """All that it has taken comes again, and the preview counts it."""
    assert counts(reset(read, timestamp_ms=0)) == [(0, 3, 0), (0, 5, 0)]


def test_a_group_goes_on_behind_the_last_message(read: BrokerUnderTest) -> None:
    """What it has not taken is skipped."""
    assert counts(reset(read)) == [(5, 0, 2), (5, 0, 0)]


def test_a_group_goes_to_a_time(read: BrokerUnderTest) -> None:
    """Back in one queue, forward in another one, to the first message of that millisecond."""
    at_ms = read.messages(TOPIC, 0)[4].store_timestamp_ms
    assert counts(reset(read, timestamp_ms=at_ms)) == [(4, 0, 1), (4, 1, 0)]
    assert counts(reset(read, timestamp_ms=at_ms + 1)) == [(5, 0, 1), (5, 0, 1)]


def test_one_queue_goes_to_an_offset(read: BrokerUnderTest) -> None:
    """The other queue stays where it is."""
    seen = reset(read, topic=TOPIC, queue_id=1, queue_offset=2)
    assert seen == (QueueReset(SIDE, 0, 5, 5, 2),)
    assert counts(seen) == [(2, 3, 0)]


def test_a_queue_without_an_offset_has_been_taken_by_nobody(read: BrokerUnderTest) -> None:
    """So all of it is skipped, and nothing comes again."""
    read.send(plain("x", "others"))
    seen = reset(read, topic="others")
    (first, *_) = seen
    assert (first.before, first.after, first.again, first.skipped) == (None, 1, 0, 1)


def test_the_retries_of_a_group_stay_unless_they_are_named(read: BrokerUnderTest) -> None:
    """A group that goes on behind the last message must not lose what it has failed."""
    send_back(read, received(read))
    read.clock.forward(10_000)
    read.deliver()
    assert {each.queue.topic for each in reset(read)} == {TOPIC}
    (retries,) = reset(read, topic=retry_topic(GROUP))
    assert (retries.after, retries.skipped) == (1, 1)


def test_a_group_with_members_is_reset_only_by_force(read: BrokerUnderTest) -> None:
    """They would commit their own places over it; the preview is for everybody."""
    join(read)
    request = OffsetReset(GROUP, timestamp_ms=0)
    assert len(done(read.broker[Resetting].preview(request))) == 2
    with pytest.raises(GroupInUse, match="1 live member"):
        done(read.broker[Resetting].reset(request))
    assert read.broker.offsets.of(GROUP) == {HEAD: 3, SIDE: 5}
    assert counts(reset(read, timestamp_ms=0, force=True)) == [(0, 3, 0), (0, 5, 0)]


def test_a_member_that_comes_while_a_reset_counts_stops_it(read: BrokerUnderTest) -> None:
    """Otherwise it would begin at one place, and be counted at another."""
    steps = read.broker[Resetting].reset(OffsetReset(GROUP, timestamp_ms=0))
    next(steps)
    join(read)
    with pytest.raises(GroupInUse):
        done(steps)
    assert read.broker.offsets.of(GROUP) == {HEAD: 3, SIDE: 5}


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (OffsetReset("nobody"), GroupUnknown),
        (OffsetReset(GROUP, "nothing"), TopicUnknown),
        (OffsetReset(GROUP, "", 0), TopicUnknown),
        (OffsetReset(GROUP, TOPIC, 1_700_000_000), InvalidValue),
        (OffsetReset(GROUP, TOPIC, -1), InvalidValue),
        (OffsetReset(GROUP, TOPIC, queue_id=2, queue_offset=0), QueueUnknown),
        (OffsetReset(GROUP, TOPIC, queue_id=0, queue_offset=6), InvalidValue),
        (OffsetReset(GROUP, TOPIC, queue_id=0, queue_offset=-1), InvalidValue),
        (OffsetReset(GROUP, TOPIC, queue_id=0), InvalidValue),
        (OffsetReset(GROUP, TOPIC, queue_offset=0), InvalidValue),
        (OffsetReset(GROUP, queue_id=0, queue_offset=0), InvalidValue),
        (OffsetReset(GROUP, TOPIC, 7, queue_id=0, queue_offset=0), InvalidValue),
    ],
)
def test_a_reset_names_what_is_there(
    read: BrokerUnderTest, request_: OffsetReset, error: type[Exception]
) -> None:
    """A typing error changes nothing, and the preview says it already."""
    for steps in (read.broker[Resetting].preview, read.broker[Resetting].reset):
        with pytest.raises(error):
            done(steps(request_))
    assert read.broker.offsets.of(GROUP) == {HEAD: 3, SIDE: 5}


def test_what_leases_have_done_out_of_order_comes_again_after_a_restart(
    read: BrokerUnderTest,
) -> None:
    """The restart comes before the next receive."""
    commit(read, {HEAD: 0, SIDE: 5})
    consumer = Consumer(read)
    taken = consumer.receive(5).messages
    consumer.ack(*taken[:2], taken[3])
    read.persist()
    assert counts(reset(read, topic=TOPIC, queue_id=0, queue_offset=0)) == [(0, 2, 0)]
    read.persist()
    read.restart()
    assert Consumer(read).bodies() == ["0", "1", "2", "3", "4"]


def test_the_loss_of_a_topic_is_counted(read: BrokerUnderTest) -> None:
    """Unread is what no group has consumed; what waits for other topics is not counted."""
    read.send(delayed("later", 3), delayed("elsewhere", 3, "others"))
    read.broker.commit_offsets(OffsetsCommit("others", {HEAD: 4}))
    join(read)
    loss = done(read.broker[Deleting].loss(TOPIC))
    assert (loss.messages, loss.unread, loss.waiting) == (10, 1, 1)
    assert loss.readers == (TopicReader("others", 6, 0), TopicReader(GROUP, 2, 1))
    create_topic(read, "unread", 1)
    read.send(plain("x", "unread"))
    assert done(read.broker[Deleting].loss("unread")).unread == 1
    with pytest.raises(TopicUnknown):
        done(read.broker[Deleting].loss("nothing"))
