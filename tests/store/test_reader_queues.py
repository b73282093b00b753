"""Where queues begin and end, and where a time lies in them, seen by another process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqlite.kernel.requests.topics import Queue, TimeQuery
from rmqlite.kernel.words.message import Message
from rmqlite.store_tools.reader import StoreReader
from tests.support.brokers import BrokerUnderTest
from tests.support.looking import untouched


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    """Twelve moments, 10 ms apart, in three queues and the schedule; half of it persisted."""
    made = BrokerUnderTest(tmp_path / "store")
    for number in range(12):
        made.send(Message("orders", b"x" * 9_000), queue_id=number % 2)
        made.send(Message("late", b"y", delay_level=3))
        made.clock.forward(10)
        if number == 5:
            made.persist()
    made.send(Message("new", b"z"), queue_id=2)
    yield made
    made.crash()


def ranges_of(broker: BrokerUnderTest) -> dict[tuple[str, int], tuple[int, int]]:
    found = {}
    for key in broker.store.queue_keys():
        queue = broker.store.queue(*key)
        assert queue is not None
        found[key] = (queue.min_offset, queue.max_offset)
    return found


def seen_by(reader: StoreReader) -> dict[tuple[str, int], tuple[int, int]]:
    queues = reader.layout().queues
    return {(each.topic, each.queue_id): (each.min_offset, each.max_offset) for each in queues}


def test_the_ranges_are_those_of_the_broker(broker: BrokerUnderTest) -> None:
    """Also of what no table tells yet."""
    root = broker.config.store_path
    with untouched(root), StoreReader(root) as reader:
        assert seen_by(reader) == ranges_of(broker)
    assert ranges_of(broker)["new", 2] == (0, 1)


def test_a_queue_begins_where_the_log_does(tmp_path: Path) -> None:
    """What retention took is not in it any more."""
    made = BrokerUnderTest(tmp_path, mapped_file_size_commit_log=1 << 17, max_message_bytes=40_000)
    for number in range(12):
        made.send(Message("orders", bytes([number]) * 30_000))
    made.store.drop_before(1 << 17)
    with StoreReader(tmp_path) as reader:
        assert seen_by(reader)["orders", 0] == ranges_of(made)["orders", 0] == (4, 12)
        assert reader.offsets_at(0)["orders", 0] == 4
    made.crash()


def test_a_time_lies_where_the_broker_says(broker: BrokerUnderTest) -> None:
    """At every moment, before the first one and behind the last."""
    now_ms = broker.clock.now_ms()
    with StoreReader(broker.config.store_path) as reader:
        for timestamp_ms in (*range(now_ms - 125, now_ms + 10, 5), 0, 1 << 60):
            told = {
                key: broker.broker.search_offset(TimeQuery(Queue(*key), timestamp_ms))
                for key in broker.store.queue_keys()
            }
            assert reader.offsets_at(timestamp_ms) == told
