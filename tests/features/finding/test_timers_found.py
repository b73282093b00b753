"""A message that waits for an instant is found, and its history is told, as at a delay level."""

from __future__ import annotations

import pytest

from rmqlite.features.finding.finding import find_messages
from rmqlite.features.finding.requests import FoundMessages, MessageQuery, MessageState
from rmqlite.kernel.records.drafts import derived
from rmqlite.kernel.records.record import Written
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of, wait_queue_of
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.message import (
    DELAY,
    RESCHEDULED_FROM,
    TIMER_DELAY_MS,
    TIMER_EXACT,
    TIMER_OUT_MS,
)
from rmqlite.kernel.words.names import CANCELLED_TOPIC, TIMER_TOPIC
from rmqlite.store_tools.reader import MessageFilter, StoreReader
from tests.support.brokers import BrokerUnderTest
from tests.support.letters import kinds, life
from tests.support.messages import TOPIC, create_topic
from tests.support.restarts import WAYS, Restart
from tests.support.steps import done
from tests.support.timers import send_timer

DAY_MS = 86_400_000


@pytest.fixture
def opened(under_test: BrokerUnderTest) -> BrokerUnderTest:
    create_topic(under_test, TOPIC)
    return under_test


def find(broker: BrokerUnderTest, key: str) -> FoundMessages:
    return done(
        find_messages(broker.broker.parts, MessageQuery(topic=TOPIC, key=key, history=True))
    )


def moved(store: MessageStore, waiting: Record, wait_queue: int, **said: str) -> Written:
    """Reschedule, carry (without RESCHEDULED_FROM) or cancel (wait_queue 0) by hand."""
    key = queue_of(wait_queue) if wait_queue else (CANCELLED_TOPIC, 0)
    gone = frozenset({DELAY, TIMER_OUT_MS, TIMER_EXACT, TIMER_DELAY_MS, RESCHEDULED_FROM})
    properties = waiting.properties.edited({}, gone).edited(said)
    (at,) = store.append([derived(waiting, *key, properties=properties, completes=waiting.end)])
    head = waiting.head
    left, offset = wait_queue_of(head.topic, head.queue_id), head.queue_offset
    store.progress.complete(left, offset, offset + 1, {TOPIC: 1})
    return at


@pytest.mark.parametrize("restart", WAYS)
def test_a_timer_is_found_while_it_waits_and_after(
    opened: BrokerUnderTest, restart: Restart
) -> None:
    """By key, by id and by place; with the instant to the millisecond."""
    due_ms = opened.clock.now_ms() + DAY_MS + 1
    send_timer(opened, "a", TIMER_DELIVER_MS=due_ms, KEYS="k1 k2")
    restart(opened)
    (waiting,) = find(opened, "k2").messages
    assert (waiting.message.topic, waiting.state) == (TIMER_TOPIC, MessageState.SCHEDULED)
    assert (waiting.deliver_at_ms, waiting.is_pending) == (due_ms, True)
    assert kinds(opened, "a") == ["scheduled"]
    (hop,) = life(opened, "a").events
    assert (hop.level, hop.due_ms, hop.is_pending) == (TIMERS, due_ms, True)
    opened.clock.forward(DAY_MS + 1)
    assert opened.deliver() == 1
    restart(opened)
    waited, stored = find(opened, "k1").messages
    assert (waited.is_pending, waited.ended, waited.deliver_at_ms) == (False, "delivered", due_ms)
    assert (stored.message.topic, stored.state) == (TOPIC, MessageState.STORED)
    assert kinds(opened, "a") == ["scheduled", "delivered"]
    assert [hop.due_ms for hop in life(opened, "a").events] == [due_ms, 0]


@pytest.mark.parametrize("restart", WAYS)
def test_changes_between_the_kinds_are_told(opened: BrokerUnderTest, restart: Restart) -> None:
    """Timer, level, another timer, carried to the log's end, cancelled: each wait ends once."""
    now_ms = opened.clock.now_ms()
    first_ms, last_ms = now_ms + DAY_MS, now_ms + 2 * DAY_MS
    send_timer(opened, "a", TIMER_DELIVER_MS=first_ms, KEYS="k")
    store = opened.store
    (waiting,) = find(opened, "k").messages
    record = store.read_record(waiting.message.physical_offset)
    level = moved(store, record, 3, **{DELAY: "3", RESCHEDULED_FROM: "-1"})
    timer = {TIMER_OUT_MS: str(last_ms), TIMER_EXACT: "1"}
    record = store.read_record(level.physical_offset)
    again = moved(store, record, TIMERS, **timer, **{RESCHEDULED_FROM: "3"})
    record = store.read_record(again.physical_offset)
    carried = moved(store, record, TIMERS, **timer)
    opened.sync()
    restart(opened)
    assert [each.ended for each in find(opened, "k").messages] == [
        *("rescheduled", "rescheduled", "carried", "")
    ]
    assert kinds(opened, "a") == ["scheduled", "rescheduled", "rescheduled", "scheduled"]
    hops = life(opened, "a").events
    assert [hop.level for hop in hops] == [TIMERS, 3, TIMERS, TIMERS]
    assert [hop.due_ms for hop in hops] == [first_ms, now_ms + 10_000, last_ms, last_ms]
    assert [hop.is_pending for hop in hops] == [False, False, False, True]
    record = opened.store.read_record(carried.physical_offset)
    moved(opened.store, record, 0, **{TIMER_OUT_MS: str(last_ms)})
    opened.sync()
    restart(opened)
    assert kinds(opened, "a")[-1] == "cancelled"
    assert [each.ended for each in find(opened, "k").messages][-2] == "cancelled"
    assert opened.broker.wait_queues[TIMERS].pending == 0
    opened.clock.forward(3 * DAY_MS)
    assert opened.deliver() == 0


@pytest.mark.parametrize("restart", WAYS)
def test_a_reader_of_the_store_shows_timers(opened: BrokerUnderTest, restart: Restart) -> None:
    """As they lie: which wait, until when, and how many."""
    now_ms = opened.clock.now_ms()
    for body, in_ms in (("c", 3_000), ("a", 1_000), ("b", 2_000)):
        send_timer(opened, body, TIMER_DELIVER_MS=now_ms + in_ms)
    opened.clock.forward(1_000)
    assert opened.deliver() == 1
    restart(opened)
    with StoreReader(opened.config.store_path, opened.config) as reader:
        found = list(reader.messages(MessageFilter(topic=TOPIC, is_scheduled=True)))
        waits = [reader.waiting(each) for each in found]
        assert [each.body for each in found] == [b"c", b"a", b"b"]
        assert [each.deliver_at_ms - now_ms for each in waits if each] == [3_000, 1_000, 2_000]
        assert [each.is_pending for each in waits if each] == [True, False, True]
        assert {each.level for each in waits if each} == {TIMERS}
        *_, timers = reader.overview().levels()
        assert (timers.level, timers.pending, timers.delay) == (TIMERS, 2, "")
        assert timers.next_due_ms == now_ms + 2_000
        assert [each.body for each in reader.messages(MessageFilter(topic=TIMER_TOPIC))] == [
            *(b"c", b"a", b"b")
        ]
        (by_id, _) = reader.messages(MessageFilter(message_id="a"))
        assert by_id.topic == TIMER_TOPIC
