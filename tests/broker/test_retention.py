"""Retention: old whole files go, what is still to be delivered stays (promise P9)."""

from __future__ import annotations

import os

import pytest

from rmqlite.features.operating.progress import Progress
from rmqlite.kernel.requests.groups import OffsetsCommit, OffsetsQuery
from rmqlite.kernel.requests.messages import PullStatus, SendBackRequest
from rmqlite.kernel.requests.topics import Queue, TimeQuery
from rmqlite.kernel.words.errors import MessageNotFound, StoreUnavailable
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.log_files import (
    HOUR_MS,
    NOW_MS,
    RETENTION,
    SEGMENT,
    age,
    carry_tables,
    fill,
    log_files,
    starts,
)
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, bodies, delayed, level_status, plain
from tests.support.steps import done


@pytest.fixture
def broker(make: Make) -> BrokerUnderTest:
    """Files of 128 KiB, kept for 72 hours."""
    return make(**RETENTION)


def test_old_files_go_and_the_newest_stays(broker: BrokerUnderTest) -> None:
    """However old it is: the next record is written there."""
    broker.send(plain("first"))
    fill(broker, 3)
    broker.persist()
    age(broker)
    assert broker.broker.retention.clean(NOW_MS) == 3
    assert starts(broker) == [3]
    assert broker.broker.status(0).log_min_offset == 3 * SEGMENT
    assert broker.broker.retention.clean(NOW_MS) == 0


@pytest.mark.parametrize(("hours", "gone"), [(71.99, 0), (72, 2), (73, 2)])
def test_a_file_is_kept_for_its_time(broker: BrokerUnderTest, hours: float, gone: int) -> None:
    """fileReservedTime after its last write."""
    broker.send(plain("first"))
    fill(broker, 2)
    broker.persist()
    age(broker, hours)
    assert broker.broker.retention.clean(NOW_MS) == gone


def test_a_young_file_keeps_all_behind_it(broker: BrokerUnderTest) -> None:
    """The log has no gaps."""
    broker.send(plain("first"))
    fill(broker, 4)
    broker.persist()
    age(broker)
    os.utime(log_files(broker)[1], ns=(NOW_MS * 1_000_000, NOW_MS * 1_000_000))
    assert broker.broker.retention.clean(NOW_MS) == 1
    assert starts(broker) == [1, 2, 3, 4]


def test_what_is_not_persisted_is_not_removed(broker: BrokerUnderTest) -> None:
    """Recovery would walk the log from the last persisted point, which must exist."""
    broker.send(plain("first"))
    fill(broker, 3)
    age(broker)
    assert broker.broker.retention.clean(NOW_MS) == 0


def test_an_undelivered_message_keeps_its_file(broker: BrokerUnderTest) -> None:
    """RocketMQ deletes it, and nobody ever knows."""
    broker.send(plain("first"))
    fill(broker, 1)
    broker.send(delayed("in two hours", 18))
    fill(broker, 3)
    broker.persist()
    age(broker)
    assert broker.broker.retention.clean(NOW_MS) == 1
    assert starts(broker) == [1, 2, 3, 4]
    broker.restart(**RETENTION)
    age(broker)
    assert broker.broker.retention.clean(NOW_MS) == 0
    broker.clock.forward(2 * HOUR_MS)
    assert broker.deliver() == 1
    broker.persist()
    age(broker)
    assert broker.broker.retention.clean(NOW_MS) == 3
    assert bodies(broker)[-1] == "in two hours"


def test_the_oldest_of_all_levels_counts(broker: BrokerUnderTest) -> None:
    """Also one of a level that the table no longer has, and one behind delivered ones."""
    broker.send(delayed("long", 18), delayed("short", 1))
    fill(broker, 1)
    broker.send(delayed("middle", 5))
    fill(broker, 1)
    broker.restart(**RETENTION, message_delay_level="1s")
    broker.clock.forward(60_000)
    assert broker.deliver() == 2
    age(broker)
    assert broker.broker.retention.clean(NOW_MS) == 0
    broker.clock.forward(2 * HOUR_MS)
    broker.deliver()
    broker.persist()
    age(broker)
    assert broker.broker.retention.clean(NOW_MS) == 2


def test_queues_begin_where_the_log_does(broker: BrokerUnderTest) -> None:
    """A reader that was slower is moved to the first message that is left."""
    broker.send(plain("first"))
    broker.send(plain("other"), queue_id=1)
    fill(broker, 2)
    for number in range(3):
        broker.send(plain(str(number)))
    broker.persist()
    age(broker)
    broker.broker.retention.clean(NOW_MS)
    ranges = done(broker.broker.queue_ranges(TOPIC))
    left = broker.pull(TOPIC, 0, ranges[0].min_offset).messages
    assert left[0].physical_offset == broker.store.min_offset
    assert [m.body.decode() for m in left[-3:]] == ["0", "1", "2"]
    moved = broker.pull(TOPIC, 0, 0)
    assert (moved.status, moved.next_offset) == (PullStatus.OFFSET_MOVED, ranges[0].min_offset)
    assert (ranges[1].min_offset, ranges[1].max_offset) == (1, 1)
    (sent,) = broker.send(plain("next"), queue_id=1)
    assert sent.queue_offset == 1


def test_a_group_that_was_slower_goes_on_with_what_is_left(broker: BrokerUnderTest) -> None:
    """Its commit stays what it was; lag, pulls and times begin at the new minimum (§4.5)."""
    (first,) = broker.send(plain("first"))
    fill(broker, 2)
    broker.send(plain("last"))
    queue = Queue(TOPIC, 0)
    broker.pull(TOPIC, group=GROUP)
    broker.broker.commit_offsets(OffsetsCommit(GROUP, {queue: 1}))
    broker.persist()
    age(broker)
    broker.broker.retention.clean(NOW_MS)
    (known, *_) = done(broker.broker.queue_ranges(TOPIC))
    assert known.min_offset > 1
    assert broker.broker.query_offsets(OffsetsQuery(GROUP, (queue,))) == {queue: 1}
    (progress,) = done(broker.broker[Progress].status(GROUP)).progress
    assert (progress.committed_offset, progress.min_offset) == (1, known.min_offset)
    assert progress.lag == known.max_offset - known.min_offset
    moved = broker.pull(TOPIC, 0, 1, group=GROUP)
    assert (moved.status, moved.next_offset) == (PullStatus.OFFSET_MOVED, known.min_offset)
    assert (moved.min_offset, moved.max_offset) == (known.min_offset, known.max_offset)
    found = broker.pull(TOPIC, 0, moved.next_offset, group=GROUP)
    assert found.messages[-1].body == b"last"
    assert broker.broker.search_offset(TimeQuery(queue, 0)) == known.min_offset
    with pytest.raises(MessageNotFound):
        broker.broker.send_back(SendBackRequest(GROUP, first.physical_offset))
    broker.broker.commit_offsets(OffsetsCommit(GROUP, {queue: known.max_offset}))
    assert done(broker.broker[Progress].status(GROUP)).progress[0].lag == 0


def test_what_a_failed_round_left_over_goes_with_the_next(make: Make) -> None:
    """Meanwhile nobody is given what is gone, and nobody is stuck on it."""
    files = FaultyFiles()
    broker = make(files=files, **RETENTION)
    for _ in range(500):
        broker.send(plain("x" * 900))
    carry_tables(broker)
    broker.persist()
    age(broker)
    queue_files = broker.config.store_path / "consumequeue" / TOPIC / "0"
    files.fail("remove", where=lambda path: "consumequeue" in path.parts)
    with pytest.raises(StoreUnavailable):
        broker.broker.retention.clean(NOW_MS)
    assert starts(broker)[0] > 0
    assert len(list(queue_files.iterdir())) == 3
    offset = 0
    bodies_left = 0
    while offset < 500:
        result = broker.pull(TOPIC, 0, offset)
        assert result.next_offset > offset
        assert all(m.physical_offset >= broker.store.min_offset for m in result.messages)
        offset = result.next_offset
        bodies_left += len(result.messages)
    broker.broker.retention.clean(NOW_MS)
    known = done(broker.broker.queue_ranges(TOPIC))[0]
    assert known.max_offset - known.min_offset == bodies_left
    assert len(list(queue_files.iterdir())) < 3


def test_a_message_beside_removed_ones_is_not_passed_over(make: Make) -> None:
    """Both are read at once, because they lie close together in the log."""
    broker = make(**RETENTION)
    while broker.store.end < SEGMENT + 2_000:
        broker.send(plain("x" * 900))
    carry_tables(broker)
    broker.persist()
    age(broker)
    queue = broker.store.queue(TOPIC, 0)
    assert queue is not None
    first = queue.first_with(SEGMENT)
    left = [message.body for message in broker.pull(TOPIC, 0, first).messages]
    broker.sync()
    broker.store.trim_queues = lambda: []  # type: ignore[method-assign]
    assert broker.broker.retention.clean(NOW_MS) == 1
    pulled = broker.pull(TOPIC, 0, first - 1)
    assert pulled.status is PullStatus.FOUND
    assert [message.body for message in pulled.messages] == left


@pytest.mark.parametrize("how", ["clean", "crash"])
@pytest.mark.parametrize("count", [150, 450, 1_200])
def test_a_store_opens_after_its_files_went(make: Make, how: str, count: int) -> None:
    """Also when queue files went too, and the process died before the next persist."""
    broker = make(**RETENTION)
    for number in range(count):
        broker.send(delayed(str(number), 1), plain("x" * 900))
    broker.clock.forward(1_000)
    broker.deliver()
    broker.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): 2 * count}))
    carry_tables(broker)
    broker.persist()
    age(broker)
    gone = broker.broker.retention.clean(NOW_MS)
    assert gone >= 1
    before = done(broker.broker.queue_ranges(TOPIC))
    if how == "clean":
        broker.restart(**RETENTION)
    else:
        broker.crash()
        broker.open()
    assert done(broker.broker.queue_ranges(TOPIC)) == before
    assert broker.deliver() == 0
    assert level_status(broker, 1).pending == 0
    query = OffsetsQuery(GROUP, (Queue(TOPIC, 0),))
    assert broker.broker.query_offsets(query) == {Queue(TOPIC, 0): 2 * count}
    (result,) = broker.send(delayed("next", 1))
    assert result.queue_offset == count
    schedule = broker.store.queue(SCHEDULE_TOPIC, 0)
    assert schedule is not None
    broker.clock.forward(1_000)
    assert broker.deliver() == 1
