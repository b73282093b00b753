"""Delayed messages: when they become visible, in which order, and as which records."""

from __future__ import annotations

import json

import pytest

from rmqlite.kernel.records.record import tags_hash
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.words.message import DELAY, REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY, WAIT, Message
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import (
    TOPIC,
    bodies,
    delayed,
    level_status,
    physical_offset,
    plain,
    record,
    scheduled_entry,
    table,
)


@pytest.mark.parametrize("level", range(1, 19))
def test_a_delayed_message_arrives_exactly_when_due(
    under_test: BrokerUnderTest, level: int
) -> None:
    """One millisecond early is too early."""
    under_test.send(delayed("a", level))
    under_test.clock.forward(table(under_test).delay_ms(level) - 1)
    assert under_test.deliver() == 0
    assert bodies(under_test) == []
    under_test.clock.forward(1)
    assert under_test.deliver() == 1
    assert bodies(under_test) == ["a"]


def test_a_level_keeps_the_order_of_its_sends(under_test: BrokerUnderTest) -> None:
    """First in, first out, also within one millisecond and over several calls."""
    for number in range(5):
        under_test.send(delayed(f"{number}a", 1), delayed(f"{number}b", 1))
        under_test.clock.forward(number % 2)
    under_test.clock.forward(1_000)
    under_test.deliver()
    assert bodies(under_test) == [f"{n}{half}" for n in range(5) for half in "ab"]


def test_levels_do_not_wait_for_one_another(under_test: BrokerUnderTest) -> None:
    """The short delay that was sent last arrives first."""
    under_test.send(delayed("two minutes", 6), delayed("five seconds", 2), delayed("a second", 1))
    seen = []
    for wait_ms in (1_000, 4_000, 115_000):
        under_test.clock.forward(wait_ms)
        under_test.deliver()
        seen.append(len(bodies(under_test)))
    assert seen == [1, 2, 3]
    assert bodies(under_test) == ["a second", "five seconds", "two minutes"]


def test_the_first_messages_of_a_level_are_delivered_once(under_test: BrokerUnderTest) -> None:
    """A level begins with a whole batch: none of it may be counted a second time."""
    under_test.send(*[delayed(str(number), 1) for number in range(3)])
    assert level_status(under_test, 1).pending == 3
    under_test.clock.forward(1_000)
    assert under_test.deliver() == 3
    assert bodies(under_test) == ["0", "1", "2"]


def test_a_level_above_the_last_one_is_the_last_one(under_test: BrokerUnderTest) -> None:
    """RocketMQ clamps; the record says the level that it really has."""
    (result,) = under_test.send(delayed("a", 99))
    stored = record(under_test, result)
    assert result.deliver_at_ms == under_test.clock.now_ms() + 2 * 3_600_000
    assert (stored.queue_id, stored.properties[DELAY]) == (17, "18")


@pytest.mark.parametrize("level", [0, -1, -(2**31)])
def test_a_level_below_one_is_a_plain_message(under_test: BrokerUnderTest, level: int) -> None:
    """The property stays as it was sent, as in RocketMQ."""
    (result,) = under_test.send(delayed("a", level))
    assert result.deliver_at_ms == 0
    assert bodies(under_test) == ["a"]
    assert record(under_test, result).properties.get(DELAY) == (str(level) if level else None)


def test_the_answer_names_the_queue_it_goes_to_and_the_record_it_is_in(
    under_test: BrokerUnderTest,
) -> None:
    """Queue id of the destination, queue offset and offset id of the scheduled record."""
    under_test.send(delayed("first", 5), queue_id=1)
    sent_at_ms = under_test.clock.now_ms()
    (result,) = under_test.send(Message(TOPIC, b"a", delay_level=5, message_id="ID"), queue_id=2)
    assert (result.topic, result.queue_id, result.queue_offset) == (TOPIC, 2, 1)
    assert (result.message_id, result.deliver_at_ms) == ("ID", sent_at_ms + 60_000)
    stored = record(under_test, result)
    assert (stored.topic, stored.queue_id, stored.queue_offset) == (SCHEDULE_TOPIC, 4, 1)
    assert stored.offset_message_id == result.offset_message_id


def test_a_delayed_message_is_two_records(under_test: BrokerUnderTest) -> None:
    """Reference G8: the same but for topic, queue, place, store time and back pointer."""
    message = Message(TOPIC, b"a", "Tag", ("key",), {"colour": "red"}, 3, flag=7)
    (result,) = under_test.send(message, queue_id=2)
    hidden = record(under_test, result)
    assert hidden.properties[REAL_TOPIC] == TOPIC
    assert hidden.properties[REAL_QID] == "2"
    assert hidden.properties[WAIT] == "true"
    entry = scheduled_entry(under_test, 3)
    assert entry.tags_code == hidden.store_timestamp_ms + 10_000 == result.deliver_at_ms
    under_test.clock.forward(10_500)
    under_test.deliver()
    (shown,) = under_test.messages(TOPIC, 2)
    kept = "body properties flag sys_flag born_timestamp_ms born_host store_host reconsume_times"
    for name in kept.split():
        assert getattr(shown, name) == getattr(hidden, name)
    assert (shown.topic, shown.queue_id, shown.queue_offset) == (TOPIC, 2, 0)
    assert shown.store_timestamp_ms == under_test.clock.now_ms()
    assert shown.properties[UNIQ_KEY] == result.message_id
    assert shown.properties[DELAY] == "3"
    queue = under_test.store.queue(TOPIC, 2)
    assert queue is not None
    assert queue.read(0, 1)[0].tags_code == tags_hash(shown.properties[TAGS])


def test_a_delivered_record_points_back_to_the_end_of_the_scheduled_one(
    under_test: BrokerUnderTest,
) -> None:
    """So the log alone says what was delivered."""
    results = under_test.send(delayed("a", 1), plain("b"), delayed("c", 1))
    hidden = [record(under_test, result) for result in results]
    assert [each.prepared_transaction_offset for each in hidden] == [0, 0, 0]
    under_test.clock.forward(1_000)
    under_test.deliver()
    pointers = {m.body: m.prepared_transaction_offset for m in under_test.messages(TOPIC)}
    ends = {m.body: m.physical_offset + m.store_size for m in hidden if m.topic != TOPIC}
    assert pointers == {b"b": 0, **ends}


def test_delivery_says_when_to_come_back(under_test: BrokerUnderTest) -> None:
    """The server sleeps exactly that long."""
    assert under_test.deliver_slice() is None
    (first,) = under_test.send(delayed("a", 1))
    under_test.clock.forward(300)
    (second,) = under_test.send(delayed("b", 1))
    assert under_test.deliver_slice() == first.deliver_at_ms
    under_test.clock.forward(700)
    assert under_test.deliver_slice() == second.deliver_at_ms
    under_test.clock.forward(300)
    assert under_test.deliver_slice() is None


def test_a_slice_ends_before_what_is_not_due(under_test: BrokerUnderTest) -> None:
    """A millisecond apart, and in the same read of the queue."""
    for number in range(3):
        under_test.send(delayed(str(number), 1))
        under_test.clock.forward(1)
    under_test.clock.forward(997)
    for number in range(3):
        assert under_test.deliver() == 1
        assert bodies(under_test)[-1] == str(number)
        under_test.clock.forward(1)


def test_delivery_goes_in_slices(make: Make) -> None:
    """A burst must not keep sends and pulls waiting."""
    broker = make(deliver_batch_max=2)
    broker.send(*[delayed(str(number), 1) for number in range(5)])
    broker.clock.forward(1_000)
    seen = []
    while broker.deliver_slice() is not None:
        broker.sync()
        seen.append(len(bodies(broker)))
    assert seen == [2, 4]
    assert broker.broker.schedule.delivered == 5


def test_a_slice_is_bounded_in_bytes_but_has_a_message(make: Make) -> None:
    """Five large messages are not one write of ten megabytes."""
    broker = make(mapped_file_size_commit_log=8 << 20, max_message_bytes=3 << 20)
    for number in range(3):
        broker.send(Message(TOPIC, bytes([number]) * (3 << 20), delay_level=1))
    broker.clock.forward(1_000)
    counts = []
    for _ in range(3):
        broker.deliver_slice()
        counts.append(broker.broker.schedule.delivered)
    assert counts == [1, 2, 3]


def test_the_server_is_told_what_changed(under_test: BrokerUnderTest) -> None:
    """Who sleeps for a level, or waits for a queue, is woken only when there is a reason."""
    under_test.send(delayed("a", 2), delayed("b", 2), queue_id=1)
    assert (under_test.heard.sooner, under_test.heard.appended_to) == ([2], [])
    under_test.clock.forward(10)
    under_test.send(delayed("c", 2), queue_id=1)
    assert under_test.heard.sooner == [2]
    under_test.clock.forward(5_000)
    under_test.deliver()
    assert under_test.heard.appended_to == [(TOPIC, 1)]


def test_an_earlier_message_wakes_its_level(make: Make) -> None:
    """After a level was made shorter, a new message may be due before all that wait."""
    broker = make(message_delay_level="10s")
    broker.send(delayed("long", 1))
    broker.restart(message_delay_level="1s")
    broker.send(delayed("short", 1))
    assert broker.heard.sooner == [1, 1]
    broker.clock.forward(1)
    broker.send(delayed("a little later", 1))
    assert broker.heard.sooner == [1, 1]


def test_the_status_counts_what_waits_and_how_late_it_left(under_test: BrokerUnderTest) -> None:
    """What an operator looks at first."""
    results = under_test.send(delayed("a", 1), delayed("b", 1), delayed("c", 2))
    status = level_status(under_test, 1)
    assert (status.delay, status.pending, status.next_due_ms) == (
        "1s",
        2,
        results[0].deliver_at_ms,
    )
    under_test.clock.forward(1_007)
    under_test.deliver()
    status = level_status(under_test, 1)
    assert (status.pending, status.next_due_ms, status.delivered) == (0, 0, 2)
    assert (status.lateness_p50_ms, status.lateness_p99_ms, status.lateness_max_ms) == (7, 7, 7)
    assert level_status(under_test, 2).pending == 1
    assert level_status(under_test, 18).delay == "2h"
    whole = under_test.broker.status(5)
    assert (whole.sent, whole.delivered, whole.parked_polls) == (3, 2, 5)
    assert whole.log_max_offset == under_test.store.end
    assert [each.level for each in whole.levels] == [*range(1, 19), TIMERS]
    assert whole.levels[-1].delay == "timers"


def test_lateness_is_never_negative_and_has_its_quantiles(under_test: BrokerUnderTest) -> None:
    """One late message in a hundred is the p99's matter, not the p50's."""
    for _ in range(99):
        under_test.send(delayed("on time", 1))
    under_test.clock.forward(1_000)
    under_test.deliver()
    under_test.send(delayed("late", 1))
    under_test.clock.forward(91_000)
    under_test.deliver()
    status = level_status(under_test, 1)
    assert (status.lateness_p50_ms, status.lateness_p99_ms) == (0, 0)
    assert (status.delivered, status.lateness_max_ms) == (100, 90_000)


def test_a_scheduled_record_starts_where_its_id_says(under_test: BrokerUnderTest) -> None:
    """The log's very first record included, whose offset is zero: an older version's."""
    rows = {TOPIC: {"topicName": TOPIC, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}}
    under_test.close()
    path = under_test.config.store_path / "config" / "topics.json"
    path.write_text(json.dumps({"topicConfigTable": rows}))
    under_test.open()
    under_test.store.tables.unlogged.clear()
    (result,) = under_test.send(delayed("a", 1))
    assert physical_offset(result) == 0
    under_test.clock.forward(1_000)
    under_test.deliver()
    (shown,) = under_test.messages(TOPIC)
    assert shown.prepared_transaction_offset == record(under_test, result).store_size > 0
