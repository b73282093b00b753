"""A message that waits for an instant of its own: accepted, delivered, refused."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.operating.deleting import Deleting
from rmqlite.features.transactions.requests import TransactionEnd
from rmqlite.features.transactions.transactions import Transactions
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.names import TIMER_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import TOPIC, bodies, create_topic
from tests.support.restarts import WAYS, Restart
from tests.support.timers import send_drafts, send_timer, timer_draft

YEAR_MS = 365 * 86_400_000
LONG_MAX = 2**63 - 1


@pytest.fixture
def opened(under_test: BrokerUnderTest) -> BrokerUnderTest:
    create_topic(under_test, TOPIC)
    return under_test


def pending(broker: BrokerUnderTest) -> int:
    return broker.broker.wait_queues[TIMERS].pending


@pytest.mark.parametrize(
    ("properties", "due_in_ms"),
    [
        ({"TIMER_DELAY_MS": "1"}, 1),
        ({"TIMER_DELAY_MS": "12345"}, 12_345),
        ({"TIMER_DELAY_SEC": "7"}, 7_000),
        ({"TIMER_DELIVER_MS": 777}, 777),
        ({"__STARTDELIVERTIME": 999}, 999),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": 500}, 2_000),
        ({"TIMER_DELAY_MS": "30", "TIMER_DELIVER_MS": 500}, 30),
        ({"TIMER_DELIVER_MS": 500, "__STARTDELIVERTIME": 900}, 500),
        ({"TIMER_DELAY_MS": str(YEAR_MS)}, YEAR_MS),
    ],
)
def test_a_timer_arrives_at_its_millisecond(
    opened: BrokerUnderTest, properties: dict[str, Any], due_in_ms: int
) -> None:
    """One millisecond early is too early; numbers are instants from now in this test."""
    now_ms = opened.clock.now_ms()
    asked = {
        name: str(now_ms + value) if isinstance(value, int) else value
        for name, value in properties.items()
    }
    send_timer(opened, "a", **asked)
    assert pending(opened) == 1
    opened.clock.forward(due_in_ms - 1)
    assert opened.deliver() == 0
    opened.clock.forward(1)
    assert opened.deliver() == 1
    assert bodies(opened) == ["a"]
    assert pending(opened) == 0


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_MS": "0"},
        {"TIMER_DELAY_MS": "-1"},
        {"TIMER_DELAY_SEC": "-5"},
        {"TIMER_DELIVER_MS": "1"},
        {"TIMER_DELIVER_MS": str(-LONG_MAX - 1)},
        {"__STARTDELIVERTIME": "1"},
    ],
)
def test_a_past_instant_is_delivered_at_once(
    opened: BrokerUnderTest, properties: dict[str, str]
) -> None:
    """As in RocketMQ: it does not wait, and nothing hides it."""
    send_timer(opened, "a", **properties)
    assert bodies(opened) == ["a"]
    assert opened.store.queue(TIMER_TOPIC, 0) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMER_DELAY_MS", "soon"),
        ("TIMER_DELAY_MS", "1.5"),
        ("TIMER_DELAY_MS", " 1"),
        ("TIMER_DELAY_MS", "NaN"),
        ("TIMER_DELAY_MS", str(LONG_MAX)),
        ("TIMER_DELAY_SEC", str(LONG_MAX // 1000)),
        ("TIMER_DELIVER_MS", str(LONG_MAX)),
        ("TIMER_DELIVER_MS", str(LONG_MAX + 1)),
        ("__STARTDELIVERTIME", "tomorrow"),
        ("TIMER_DELAY_MS", str(2 * YEAR_MS + 1)),
        ("TIMER_OUT_MS", "5"),
        ("TIMER_EXACT", "1"),
        ("TIMER_DEL_UNIQKEY", "a"),
        ("TIMER_ROLL_TIMES", "1"),
    ],
)
def test_an_instant_that_cannot_be_kept_is_refused(
    opened: BrokerUnderTest, name: str, value: str
) -> None:
    """The refusal names the property and its value, and nothing is stored."""
    end = opened.store.end
    with pytest.raises(InvalidValue) as refused:
        send_timer(opened, "a", **{name: value})
    assert name in str(refused.value)
    assert value in str(refused.value)
    assert opened.store.end == end


def test_timers_may_be_switched_off(opened: BrokerUnderTest) -> None:
    """New ones are refused by the key's name; those that wait are delivered."""
    send_timer(opened, "a", TIMER_DELAY_MS=1000)
    opened.restart(timer_wheel_enable=False)
    with pytest.raises(InvalidValue, match="timerWheelEnable"):
        send_timer(opened, "b", TIMER_DELAY_MS=1000)
    send_timer(opened, "c", TIMER_DELAY_MS=-1)
    opened.clock.forward(1000)
    assert opened.deliver() == 1
    assert sorted(bodies(opened)) == ["a", "c"]


def test_a_level_wins(opened: BrokerUnderTest) -> None:
    """As in RocketMQ: DELAY above 0 decides, and the properties of timers go."""
    send_timer(opened, "a", DELAY="1", TIMER_DELAY_MS="5", TIMER_OUT_MS="1")
    opened.clock.forward(1000)
    assert opened.deliver() == 1
    (message,) = opened.messages(TOPIC, 0)
    assert not [name for name in message.properties if name.startswith("TIMER")]


def test_the_earliest_is_delivered_first(opened: BrokerUnderTest) -> None:
    """Whatever the order in which they came; within a millisecond the first one first."""
    now_ms = opened.clock.now_ms()
    for body, at_ms in (("c", 300), ("a", 100), ("b1", 200), ("b2", 200), ("d", 400)):
        send_timer(opened, body, TIMER_DELIVER_MS=now_ms + at_ms)
    opened.clock.forward(350)
    assert opened.deliver() == 4
    assert bodies(opened) == ["a", "b1", "b2", "c"]


@pytest.mark.parametrize("restart", WAYS)
def test_a_restart_changes_nothing(opened: BrokerUnderTest, restart: Restart) -> None:
    """What waited waits for the same instant, what was delivered is not delivered again."""
    sent_ms = opened.clock.now_ms()
    for number in range(10):
        send_timer(opened, f"{number}", TIMER_DELIVER_MS=sent_ms + (number * 7 % 10 + 1) * 1000)
    opened.clock.forward(3_500)
    assert opened.deliver() == 3
    restart(opened)
    assert pending(opened) == 7
    opened.clock.forward(sent_ms + 3_999 - opened.clock.now_ms())
    assert opened.deliver() == 0
    opened.clock.forward(1)
    assert opened.deliver() == 1
    opened.clock.forward(20_000)
    restart(opened)
    assert opened.deliver() == 6
    assert len(bodies(opened)) == len(set(bodies(opened))) == 10


def test_the_delivered_record_is_the_scheduled_one(opened: BrokerUnderTest) -> None:
    """Body and properties stay as they are, and it points back to the record that waited."""
    send_timer(opened, "a", TIMER_DELAY_MS=10, TAGS="t", KEYS="k1 k2", WAIT="false")
    waited = opened.store.queue(TIMER_TOPIC, 0)
    assert waited is not None
    entry = waited.entry(0)
    assert entry is not None
    record = opened.store.read_record(entry.physical_offset)
    opened.clock.forward(10)
    opened.deliver()
    (message,) = opened.messages(TOPIC, 0)
    delivered = opened.store.read_record(message.physical_offset)
    assert delivered.properties.encoded == record.properties.encoded
    assert delivered.head.completes == entry.physical_offset + entry.size
    assert entry.tags_code == int(message.properties["TIMER_OUT_MS"])


def test_a_batch_with_timers_keeps_its_promises(opened: BrokerUnderTest) -> None:
    """RocketMQ 5.3.2 delivers the items of a batch at once."""
    drafts = [timer_draft(str(at), {"TIMER_DELAY_MS": str(at)}) for at in (30, 10, 20)]
    drafts.append(timer_draft("now", {}))
    outcomes = send_drafts(opened, drafts)
    assert all(not isinstance(outcome, Exception) for outcome in outcomes)
    assert bodies(opened) == ["now"]
    opened.clock.forward(20)
    opened.deliver()
    assert bodies(opened) == ["now", "10", "20"]


def test_a_transaction_waits_from_its_commit_on(opened: BrokerUnderTest) -> None:
    """RocketMQ 5.3.2 loses such messages."""
    properties = {"TRAN_MSG": "true", "PGROUP": "g", "TIMER_DELAY_MS": "1000"}
    (outcome,) = send_drafts(opened, [timer_draft("a", properties)])
    assert not isinstance(outcome, Exception)
    opened.clock.forward(5_000)
    assert opened.deliver() == 0
    (offset,) = outcome.physical_offsets
    opened.broker[Transactions].end(TransactionEnd("g", outcome.queue_offset, offset, True))
    opened.sync()
    assert pending(opened) == 1
    opened.clock.forward(999)
    assert opened.deliver() == 0
    opened.clock.forward(1)
    assert opened.deliver() == 1
    assert bodies(opened) == ["a"]


def test_a_deleted_topic_makes_a_dead_letter(opened: BrokerUnderTest) -> None:
    """Its timers are neither lost nor do they hold others up."""
    send_timer(opened, "a", TIMER_DELAY_MS=10)
    create_topic(opened, "other")
    (outcome,) = send_drafts(opened, [timer_draft("b", {"TIMER_DELAY_MS": "10"}, "other")])
    assert not isinstance(outcome, Exception)
    opened.broker[Deleting].delete_topic(TOPIC)
    opened.clock.forward(10)
    opened.deliver()
    assert bodies(opened, "other") == ["b"]
    (letter,) = opened.messages("%DLQ%SCHEDULE_CONSUMER", 0)
    assert letter.properties["FAILURE_REASON"] == f"there is no topic {TOPIC} any more"
    assert letter.properties["REAL_TOPIC"] == TOPIC
    opened.restart()
    assert pending(opened) == 0


def test_a_send_to_the_timers_topic_is_refused(opened: BrokerUnderTest) -> None:
    """One such message would stop the timers of a RocketMQ 5 broker that takes the store over."""
    (outcome,) = send_drafts(opened, [timer_draft("a", {}, TIMER_TOPIC)])
    assert isinstance(outcome, Exception)
