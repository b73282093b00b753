"""When a record is due: computed once, said by the append, and found again by everybody."""

from __future__ import annotations

import shutil

import pytest

from rmqlite.features.finding.waits import wait_of
from rmqlite.kernel.records.record import tags_code
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of, wait_queue_of, when_due_ms
from rmqlite.kernel.words.levels import LevelHistory, parse_levels
from rmqlite.kernel.words.message import encode_properties
from rmqlite.kernel.words.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqlite.store_tools.reader import MessageFilter, StoreReader
from tests.support.stores import StoreUnderTest, new_record, scheduled

SECOND = 1_000
MINUTE = 60 * SECOND


def test_a_wait_queue_and_its_queue_name_each_other() -> None:
    """The id is what tables and cursors keep, so it must lead back."""
    for number in (TIMERS, 1, 18, 64, 1_000):
        assert wait_queue_of(*queue_of(number)) == number
    assert wait_queue_of("orders", 3) == 0


def test_a_record_that_does_not_wait_is_due_never() -> None:
    """0 is no time: an entry of an ordinary topic keeps its tags code."""
    levels = LevelHistory.starting_with(parse_levels("1s 5s"))
    assert when_due_ms(levels, "orders", 0, 7_000, b"") == 0


def test_an_append_says_when_each_record_is_due(under_test: StoreUnderTest) -> None:
    """Who has appended need not compute it, and cannot compute it otherwise than the entry."""
    records = [scheduled("a", 1), new_record("b"), scheduled("c", 3), scheduled("d", 1)]
    written = under_test.store.append(records)
    now_ms = under_test.clock.now_ms()
    assert [at.due_ms - now_ms for at in written] == [SECOND, -now_ms, 10 * SECOND, SECOND]
    for new, at in zip(records, written, strict=True):
        queue = under_test.store.queue(new.topic, new.queue_id)
        entry = queue.entry(at.queue_offset) if queue else None
        assert entry is not None
        assert entry.tags_code == (at.due_ms or tags_code(new.properties.encoded))


@pytest.mark.parametrize("how", ["open", "restarted", "rebuilt"])
def test_everybody_names_the_time_that_the_append_said(
    under_test: StoreUnderTest, how: str
) -> None:
    """Also after another table is in force: broker, recovery and a reader of the files agree."""
    (at,) = under_test.store.append([scheduled("a", 2)])
    under_test.store.change_levels(parse_levels("1h 1h"))
    (later,) = under_test.store.append([scheduled("b", 2)])
    assert later.due_ms - at.due_ms > 50 * MINUTE
    if how != "open":
        under_test.close()
        if how == "rebuilt":
            shutil.rmtree(under_test.root / "consumequeue")
        under_test.open()
    for each in (at, later):
        head = under_test.store.read_record(each.physical_offset).head
        wait = wait_of(under_test.store, head)
        assert wait is not None
        assert (wait.wait_queue, wait.due_ms, wait.is_pending) == (2, each.due_ms, True)
    with StoreReader(under_test.root) as reader:
        found = list(reader.messages(MessageFilter(topic=SCHEDULE_TOPIC)))
        waits = [reader.waiting(message) for message in found]
    assert [wait and wait.deliver_at_ms for wait in waits] == [at.due_ms, later.due_ms]


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({"TIMER_OUT_MS": "5432", "TIMER_EXACT": "1"}, 5_432),
        ({"TIMER_OUT_MS": "5432", "TIMER_EXACT": "1", "TIMER_DELIVER_MS": "9"}, 5_432),
        ({"TIMER_OUT_MS": "5000", "TIMER_DELIVER_MS": "5432"}, 5_432),
        ({"TIMER_OUT_MS": "5000", "TIMER_DELIVER_MS": "6000"}, 6_000),
        ({"TIMER_OUT_MS": "5000", "TIMER_DELIVER_MS": "9000"}, 6_000),
        ({"TIMER_OUT_MS": "5000", "TIMER_DELIVER_MS": "5432", "TIMER_DELAY_MS": "1"}, 6_000),
        ({"TIMER_OUT_MS": "5000", "TIMER_DELAY_SEC": "1"}, 6_000),
        ({"TIMER_OUT_MS": "5000"}, 6_000),
        ({"TIMER_OUT_MS": "soon"}, 777),
        ({}, 777),
    ],
)
def test_a_timer_says_itself_when_it_is_due(properties: dict[str, str], due_ms: int) -> None:
    """RocketMQ writes the second before; only an instant that was asked for is exact there."""
    levels = LevelHistory.starting_with(parse_levels("1s 5s"))
    assert when_due_ms(levels, TIMER_TOPIC, 0, 777, encode_properties(properties)) == due_ms
