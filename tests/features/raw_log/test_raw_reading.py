"""Raw reading: exact bytes, only what is durable, and what retention took is said."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from rmqlite.features.operating.deleting import Deleting
from rmqlite.features.raw_log.raw_reading import RawReading
from rmqlite.features.raw_log.requests import (
    READ_BYTES_MAX,
    LogRead,
    LogReadRequest,
    LogSnapshot,
    LogSnapshotRequest,
    QueueRead,
    QueueReadRequest,
)
from rmqlite.kernel.records import record
from rmqlite.kernel.requests.topics import Queue, TimeQuery
from rmqlite.kernel.store.tables.logged_tables import TABLES_QUEUE
from rmqlite.kernel.words.errors import (
    InvalidValue,
    OffsetGone,
    QueueUnknown,
    StoreDamaged,
    TopicUnknown,
)
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import (
    GROUP,
    TOPIC,
    create_topic,
    delayed,
    physical_offset,
    plain,
    received,
    send_back,
)
from tests.support.sends import sending
from tests.support.steps import done

T = TypeVar("T")
SEGMENT = 1 << 17


def snapshot(broker: BrokerUnderTest, *topics: str) -> LogSnapshot:
    return done(broker.broker[RawReading].snapshot(LogSnapshotRequest(topics)))


def read_log(
    broker: BrokerUnderTest, begin: int = 0, end: int | None = None, **more: Any
) -> LogRead:
    return done(broker.broker[RawReading].read_log(LogReadRequest(begin, end, **more)))


def read_queue(
    broker: BrokerUnderTest, begin: int = 0, end: int | None = None, **more: Any
) -> QueueRead:
    values: dict[str, Any] = {"topic": TOPIC, "queue_id": 0, **more}
    request = QueueReadRequest(
        begin_queue_offset=begin,
        end_queue_offset=end,
        max_bytes=values.pop("max_bytes", 0),
        **values,
    )
    return done(broker.broker[RawReading].read_queue(request))


def heads(records: bytes) -> list[record.Head]:
    """The records that lie one behind the other."""
    found, at = [], 0
    while at < len(records):
        head = record.read_head(records, at)
        assert head is not None
        found.append(head)
        at += head.size
    return found


def ranges(found: LogSnapshot) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (each.queue.topic, each.queue.queue_id): (each.min_offset, each.max_offset)
        for each in found.queues
    }


@pytest.fixture
def filled(make: Make) -> BrokerUnderTest:
    """Three log files: 12 messages of 30,000 bytes alternate between the queues 0 and 1."""
    broker = make(mapped_file_size_commit_log=SEGMENT, max_message_bytes=40_000)
    for number in range(12):
        broker.send(Message(TOPIC, bytes([65 + number]) * 30_000), queue_id=number % 2)
    return broker


# ---- what there is


def test_a_snapshot_tells_from_where_to_where_all_goes(make: Make) -> None:
    """The schedule's queues and those of retry topics, too; empty ones are 0 to 0."""
    broker = make()
    broker.send(plain("a"), plain("b"))
    broker.clock.forward(7)
    broker.send(delayed("c", 5))
    send_back(broker, received(broker, topic="other"))
    found = snapshot(broker)
    assert (found.begin_offset, found.end_offset) == (0, broker.store.end)
    assert found.segment_bytes == broker.config.mapped_file_size_commit_log
    assert found.now_ms == found.newest_timestamp_ms == broker.clock.now_ms()
    assert found.broker_name == broker.config.broker_name
    assert [each.message_delay_level for each in found.levels] == [broker.config.levels.text]
    held = {key: value for key, value in ranges(found).items() if value != (0, 0)}
    assert held == {
        (TOPIC, 0): (0, 2),
        ("other", 0): (0, 1),
        (SCHEDULE_TOPIC, 4): (0, 1),
        (SCHEDULE_TOPIC, 2): (0, 1),
        TABLES_QUEUE: (0, broker.store.queue(*TABLES_QUEUE).max_offset),  # type: ignore[union-attr]
    }
    assert (f"%RETRY%{GROUP}", 0) in ranges(found)
    assert (TOPIC, 3) in ranges(found)
    assert list(found.queues) == sorted(found.queues, key=lambda each: each.queue)


def test_a_snapshot_names_the_topics_whose_queues_lack_records(under_test: BrokerUnderTest) -> None:
    """Their records can still be read as parts of the log."""
    under_test.send(plain("a", topic="other"), plain("b"))
    under_test.broker[Deleting].delete_topic("other")
    found = snapshot(under_test)
    assert found.deleted_topics == ("other",)
    assert ranges(found)[("other", 0)] == (1, 1)


def test_a_snapshot_of_topics_names_only_their_queues(under_test: BrokerUnderTest) -> None:
    """But its end and time are the log's."""
    create_topic(under_test, "other", 2)
    under_test.send(plain("a", topic="other"))
    under_test.clock.forward(5)
    under_test.send(plain("b"))
    found = snapshot(under_test, "other")
    assert ranges(found) == {("other", 0): (0, 1), ("other", 1): (0, 0)}
    assert found.newest_timestamp_ms == under_test.clock.now_ms()
    assert found.queues[0].newest_timestamp_ms == under_test.clock.now_ms() - 5
    with pytest.raises(TopicUnknown):
        snapshot(under_test, "other", "nothing")
    with pytest.raises(InvalidValue, match="topics"):
        snapshot(under_test, *map(str, range(1_001)))


def test_a_snapshot_of_an_empty_store_is_empty(under_test: BrokerUnderTest) -> None:
    """Nothing is no error."""
    found = snapshot(under_test)
    assert (found.begin_offset, found.end_offset, found.newest_timestamp_ms) == (0, 0, 0)
    assert set(ranges(found).values()) == {(0, 0)}


@pytest.mark.parametrize(("flush", "seen"), [("SYNC_FLUSH", 1), ("ASYNC_FLUSH", 3)])
def test_what_is_not_on_disk_is_not_given(make: Make, flush: str, seen: int) -> None:
    """A power cut may take it back, and then other bytes would have the same offsets."""
    broker = make(flush_disk_type=flush)
    broker.send(plain("a"))
    end = broker.store.end
    done(sending(broker.broker, (plain("b"), plain("c")), queue_id=0))
    found = snapshot(broker)
    assert found.end_offset == (end if seen == 1 else broker.store.end)
    assert ranges(found)[TOPIC, 0] == (0, seen)
    assert read_log(broker).next_offset == found.end_offset
    assert read_queue(broker).next_queue_offset == seen
    broker.sync()
    assert ranges(snapshot(broker))[TOPIC, 0] == (0, 3)


# ---- the log


def test_the_log_is_given_byte_for_byte(filled: BrokerUnderTest) -> None:
    """From file to file; with the blanks and marks at the ends of files."""
    files = sorted((filled.config.store_path / "commitlog").iterdir())
    kept = b"".join(path.read_bytes() for path in files)[: filled.store.end]
    given, at = b"", 0
    while at < filled.store.end:
        read = read_log(filled, at)
        assert read.next_offset == at + len(read.data)
        assert at // SEGMENT == (read.next_offset - 1) // SEGMENT
        given, at = given + read.data, read.next_offset
    assert given == kept
    assert read_log(filled, at) == LogRead(b"", at)


@pytest.mark.parametrize(
    ("begin", "end", "max_bytes"),
    [(0, 1, 0), (17, 1_000, 0), (5, None, 300), (60_000, 60_000, 0), (SEGMENT - 1, None, 9)],
)
def test_any_part_of_the_log_can_be_read(
    filled: BrokerUnderTest, begin: int, end: int | None, max_bytes: int
) -> None:
    """A slice may begin and end anywhere."""
    whole = (filled.config.store_path / "commitlog" / f"{0:020d}").read_bytes()
    read = read_log(filled, begin, end, max_bytes=max_bytes)
    upto = min(end or SEGMENT, SEGMENT, begin + (max_bytes or 1 << 20))
    assert read == LogRead(whole[begin:upto], upto)


@pytest.mark.parametrize(
    ("begin", "end", "field"), [(-1, None, "begin"), (10**12, None, "begin"), (5, 4, "end")]
)
def test_a_range_that_makes_no_sense_is_refused(
    filled: BrokerUnderTest, begin: int, end: int | None, field: str
) -> None:
    """The error names what is wrong with it."""
    with pytest.raises(InvalidValue, match=f"{field}_offset"):
        read_log(filled, begin, end)
    with pytest.raises(InvalidValue, match=f"{field}_queue_offset"):
        read_queue(filled, begin, end)


@pytest.mark.parametrize("max_bytes", [-1, READ_BYTES_MAX + 1])
def test_a_call_is_bounded(filled: BrokerUnderTest, max_bytes: int) -> None:
    """One that asks for more is told the limit."""
    for read in (read_log, read_queue):
        with pytest.raises(InvalidValue, match="max_bytes"):
            read(filled, max_bytes=max_bytes)


def test_what_retention_took_is_gone(filled: BrokerUnderTest) -> None:
    """And the error says from where on there is something."""
    filled.store.drop_before(SEGMENT)
    with pytest.raises(OffsetGone, match=f"first one kept is {SEGMENT}"):
        read_log(filled, SEGMENT - 1)
    assert read_log(filled, SEGMENT, SEGMENT + 5).next_offset == SEGMENT + 5
    with pytest.raises(OffsetGone, match=f"queue 0 of topic '{TOPIC}'.* first one kept is 2"):
        read_queue(filled, 1)
    assert heads(read_queue(filled, 2).records)[0].queue_offset == 2
    found = snapshot(filled)
    assert found.begin_offset == SEGMENT
    assert ranges(found)[TOPIC, 0] == (2, 6)


def test_what_retention_takes_between_two_steps_is_not_given(make: Make) -> None:
    """What was read before is right, and the next call is told that the rest is gone."""
    broker = make(mapped_file_size_commit_log=1 << 20, max_message_bytes=300_000)
    for letter in b"abcdefgh":
        broker.send(Message(TOPIC, bytes([letter]) * 250_000))
    log_steps = broker.broker[RawReading].read_log(LogReadRequest(0))
    queue_steps = broker.broker[RawReading].read_queue(
        QueueReadRequest(TOPIC, 0, 0, max_bytes=1 << 20)
    )
    next(log_steps)
    next(queue_steps)
    broker.store.drop_before(1 << 20)
    assert 0 < len(done(log_steps).data) < 1 << 20
    read = done(queue_steps)
    assert [head.queue_offset for head in heads(read.records)] == list(
        range(read.next_queue_offset)
    )
    with pytest.raises(OffsetGone):
        read_queue(broker, read.next_queue_offset)


# ---- queues


def test_a_queue_is_given_as_whole_records(filled: BrokerUnderTest) -> None:
    """In the queue's order, without what lies between them in the log."""
    read = read_queue(filled, 1, 5, queue_id=1)
    found = heads(read.records)
    assert [head.queue_offset for head in found] == [1, 2, 3, 4]
    assert {head.queue_id for head in found} == {1}
    begin = found[0].physical_offset
    assert read.records[: found[0].size] == filled.store.read(begin, found[0].size)
    assert read.next_queue_offset == 5


@pytest.mark.parametrize(
    ("max_bytes", "count"), [(1, 1), (30_000, 1), (61_000, 2), (300_000, 6), (0, 6)]
)
def test_a_queue_read_gives_what_fits_but_one_at_least(
    filled: BrokerUnderTest, max_bytes: int, count: int
) -> None:
    """Else a record larger than the limit would never be read."""
    read = read_queue(filled, 0, max_bytes=max_bytes)
    assert len(heads(read.records)) == count == read.next_queue_offset


def test_many_small_records_are_read_in_steps(under_test: BrokerUnderTest) -> None:
    """Other calls get their turn; nothing is left out or given twice."""
    for _ in range(50):
        under_test.send(*[plain("x" * 100) for _ in range(100)])
    steps = under_test.broker[RawReading].read_queue(
        QueueReadRequest(TOPIC, 0, 0, max_bytes=4 << 20)
    )
    assert sum(1 for _ in steps) > 2
    read = read_queue(under_test, 3, 4_999, max_bytes=4 << 20)
    assert [head.queue_offset for head in heads(read.records)] == list(range(3, 4_999))


def test_system_topics_are_read_like_others(make: Make) -> None:
    """The schedule's queues are its levels; a retry topic's are there when it is."""
    broker = make(message_delay_level=" ".join(["1m"] * 20))
    broker.send(delayed("late", 20))
    send_back(broker, received(broker))
    assert len(heads(read_queue(broker, topic=SCHEDULE_TOPIC, queue_id=19).records)) == 1
    assert read_queue(broker, topic=f"%RETRY%{GROUP}") == QueueRead(b"", 0)
    broker.clock.forward(60_000)
    broker.deliver()
    assert len(heads(read_queue(broker, topic=f"%RETRY%{GROUP}").records)) == 1
    at_level_20 = TimeQuery(Queue(SCHEDULE_TOPIC, 19), broker.clock.now_ms())
    assert broker.broker.search_offset(at_level_20) == 1


def test_a_queue_that_is_not_there_is_told(under_test: BrokerUnderTest) -> None:
    """An empty one is no error."""
    create_topic(under_test, TOPIC, 2)
    assert read_queue(under_test, queue_id=1) == QueueRead(b"", 0)
    with pytest.raises(QueueUnknown):
        read_queue(under_test, queue_id=2)
    with pytest.raises(TopicUnknown):
        read_queue(under_test, topic="nothing")


def test_a_queue_that_begins_anew_is_noticed(make: Make) -> None:
    """Its old offsets are beyond its end: that is an error and not an empty answer."""
    broker = make()
    broker.send(plain("a"))
    with pytest.raises(InvalidValue, match="0 to 1, the present end"):
        read_queue(broker, 2)


def test_damage_in_the_log_is_told(filled: BrokerUnderTest) -> None:
    """With file and position, as everywhere."""
    first, second = filled.send(plain("c"), plain("d"))
    position = physical_offset(second)
    whole = filled.store.end
    path = filled.config.store_path / "commitlog" / f"{position - position % SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    kept = bytes(data)
    data[position % SEGMENT + 5] ^= 1
    path.write_bytes(data)
    begin = first.queue_offset
    assert len(heads(read_queue(filled, begin, begin + 1).records)) == 1
    with pytest.raises(StoreDamaged, match=f"byte {position % SEGMENT}"):
        read_queue(filled, begin, begin + 2)
    path.write_bytes(kept)
    assert whole == filled.store.end
