"""How far groups are: LAG, the oldest message that is not consumed, and since when it is silent."""

from __future__ import annotations

from rmqlite.features.leases.leases import Leases
from rmqlite.features.leases.requests import AckRequest, Handle, ReceiveRequest
from rmqlite.features.operating.deleting import Deleting
from rmqlite.features.operating.progress import Progress
from rmqlite.features.operating.requests import GroupStatus, QueueProgress
from rmqlite.kernel.requests.groups import HeartbeatRequest, MemberKind, OffsetsCommit, Subscription
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.names import retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import GROUP, TOPIC, create_topic, plain
from tests.support.steps import done

MINUTE_MS = 60_000
QUEUE = Queue(TOPIC, 0)


def status_of(broker: BrokerUnderTest, group: str = GROUP) -> GroupStatus:
    return done(broker.broker[Progress].status(group))


def progress_in(broker: BrokerUnderTest, queue: Queue = QUEUE) -> QueueProgress:
    return next(each for each in status_of(broker).progress if each.queue == queue)


def join(
    broker: BrokerUnderTest,
    client_id: str = "a",
    topic: str = TOPIC,
    kind: MemberKind = MemberKind.POLLS,
    *,
    broadcasts: bool = False,
) -> None:
    request = HeartbeatRequest(GROUP, client_id, (Subscription(topic),), is_broadcasting=broadcasts)
    broker.broker.heartbeat(request, kind=kind)


def commit(broker: BrokerUnderTest, offset: int, queue: Queue = QUEUE) -> None:
    broker.broker.commit_offsets(OffsetsCommit(GROUP, {queue: offset}))


def receive(broker: BrokerUnderTest, expression: str = "*", most: int = 1) -> list[Handle]:
    request = ReceiveRequest(
        GROUP, TOPIC, "lessee", expression, max_messages=most, invisible_ms=60 * MINUTE_MS
    )
    return [each.handle for each in done(broker.broker[Leases].receive(request)).messages]


def test_the_oldest_message_and_the_last_progress_have_their_times(
    under_test: BrokerUnderTest,
) -> None:
    """A group that hangs has members and a small LAG: only the times tell."""
    create_topic(under_test, TOPIC, 1)
    join(under_test)
    first_ms = under_test.clock.now_ms()
    under_test.send(plain("a"))
    under_test.clock.forward(MINUTE_MS)
    under_test.send(plain("b"))
    before = progress_in(under_test)
    assert (before.lag, before.oldest_timestamp_ms, before.progressed_at_ms) == (2, first_ms, 0)
    assert before.silent_since_ms == first_ms
    under_test.clock.forward(MINUTE_MS)
    commit(under_test, 1)
    after = progress_in(under_test)
    assert (after.lag, after.oldest_timestamp_ms) == (1, first_ms + MINUTE_MS)
    assert after.progressed_at_ms == after.silent_since_ms == first_ms + 2 * MINUTE_MS
    # The same offset again, as clients commit it every five seconds, is no progress.
    under_test.clock.forward(MINUTE_MS)
    commit(under_test, 1)
    assert progress_in(under_test) == after
    commit(under_test, 2)
    last = progress_in(under_test)
    assert (last.lag, last.oldest_timestamp_ms, last.silent_since_ms) == (0, 0, 0)
    assert status_of(under_test).now_ms == first_ms + 3 * MINUTE_MS


def test_a_group_is_not_silent_while_it_has_nothing_to_do(under_test: BrokerUnderTest) -> None:
    """After a night without messages, the first one in the morning is no alarm."""
    create_topic(under_test, TOPIC, 1)
    join(under_test)
    under_test.send(plain("a"))
    commit(under_test, 1)
    under_test.clock.forward(600 * MINUTE_MS)
    under_test.send(plain("b"))
    assert progress_in(under_test).silent_since_ms == under_test.clock.now_ms()


def test_nobody_is_silent_for_longer_than_the_broker_runs(under_test: BrokerUnderTest) -> None:
    """What was finished before its start is not known any more."""
    create_topic(under_test, TOPIC, 1)
    under_test.send(plain("a"))
    join(under_test)
    commit(under_test, 0)
    under_test.clock.forward(600 * MINUTE_MS)
    under_test.restart()
    join(under_test)
    progress = progress_in(under_test)
    assert progress.oldest_timestamp_ms == under_test.clock.now_ms() - 600 * MINUTE_MS
    assert progress.silent_since_ms == under_test.clock.now_ms()


def test_a_leased_message_names_its_client(under_test: BrokerUnderTest) -> None:
    """That one hangs; the others, behind it, are finished, and the group is not silent."""
    create_topic(under_test, TOPIC, 1)
    under_test.send(*[plain(text) for text in "abc"])
    first_ms = under_test.clock.now_ms()
    join(under_test, "lessee", kind=MemberKind.LEASES)
    receive(under_test)
    (second,) = receive(under_test)
    under_test.clock.forward(MINUTE_MS)
    under_test.broker[Leases].ack(AckRequest(GROUP, TOPIC, (second,)))
    progress = progress_in(under_test)
    assert (progress.client_id, progress.in_flight) == ("lessee", 1)
    assert (progress.lag, progress.oldest_timestamp_ms) == (3, first_ms)
    assert progress.progressed_at_ms == progress.silent_since_ms == first_ms + MINUTE_MS


def test_a_filter_that_leaves_all_out_is_progress_for_leases_too(
    under_test: BrokerUnderTest,
) -> None:
    """Nobody acknowledges such messages, so nothing else would move the offset."""
    create_topic(under_test, TOPIC, 1)
    under_test.send(*[plain(text, tags="blue") for text in "abc"])
    assert receive(under_test, "red") == []
    progress = progress_in(under_test)
    assert (progress.lag, progress.committed_offset) == (0, 3)


def test_a_broadcasting_group_has_no_lag(under_test: BrokerUnderTest) -> None:
    """Its members keep their offsets themselves: it would grow for ever, and raise alerts."""
    create_topic(under_test, TOPIC, 1)
    under_test.send(plain("a"))
    join(under_test, "a", broadcasts=True)
    join(under_test, "b", broadcasts=True)
    status = status_of(under_test)
    assert status.is_broadcasting
    assert {each.lag for each in status.progress} == {0}
    assert {each.silent_since_ms for each in status.progress} == {0}
    assert done(under_test.broker[Progress].of_group(GROUP)) == ()
    assert done(under_test.broker[Deleting].loss(TOPIC)).readers[0].unread == 0
    # One that does not has queues of its own.
    join(under_test, "c")
    assert not status_of(under_test).is_broadcasting
    assert progress_in(under_test).lag == 1


def test_a_topic_that_no_member_reads_any_more_has_no_lag(under_test: BrokerUnderTest) -> None:
    """As long as there are members; without any, what it has read so far counts."""
    create_topic(under_test, TOPIC, 1)
    create_topic(under_test, "other", 1)
    under_test.send(plain("a"))
    commit(under_test, 0)
    assert progress_in(under_test).lag == 1
    join(under_test, topic="other")
    left = progress_in(under_test)
    assert (left.lag, left.has_no_lag, left.oldest_timestamp_ms) == (0, True, 0)
    under_test.broker.membership.leave(GROUP, "a")
    assert progress_in(under_test).lag == 1


def test_queues_where_a_group_has_not_begun_count(under_test: BrokerUnderTest) -> None:
    """It consumed one message of one queue, and stopped: the other queues wait for it, too."""
    create_topic(under_test, TOPIC, 2)
    under_test.send(plain("a"), queue_id=0)
    commit(under_test, 1)
    under_test.send(plain("b"), queue_id=1)
    assert progress_in(under_test, Queue(TOPIC, 1)).lag == 1


def test_every_way_to_ask_for_the_lag_has_the_same_answer(under_test: BrokerUnderTest) -> None:
    """A group with retries, with retention behind it, and in a queue where it has no offset."""
    create_topic(under_test, TOPIC, 2)
    under_test.send(*[plain(text) for text in "abc"], queue_id=0)
    under_test.send(plain("d"), queue_id=1)
    commit(under_test, 1)
    entry = under_test.store.queue(TOPIC, 0)
    assert entry is not None
    (failed,) = entry.read(0, 1)
    under_test.broker.send_back(SendBackRequest(GROUP, failed.physical_offset, delay_level=1))
    under_test.clock.forward(MINUTE_MS)
    under_test.deliver()
    status = status_of(under_test)
    lag = sum([each.lag for each in status.progress])
    assert lag == 4
    assert (
        sum([each.lag for each in status.progress if each.queue.topic == retry_topic(GROUP)]) == 1
    )
    assert sum([each.behind for each in done(under_test.broker[Progress].of_group(GROUP))]) == lag
    (reader,) = done(under_test.broker[Deleting].loss(TOPIC)).readers
    assert reader.unread == 3
