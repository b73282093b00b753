"""Timers in the compiled form: the bytes of the plain one, for a tenth of its time."""

from __future__ import annotations

from random import Random

import pytest

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.requests import ChangeByIds
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.sends.calls import DraftCall, Outcome, Stored
from rmqlite.protocols.remoting.bytes.batch import BatchItem, read_batch, write_batch
from tests.support.brokers import BrokerUnderTest
from tests.support.forms import OTHER, needs_compiled, same_in_both
from tests.support.messages import TOPIC, bodies, create_topic
from tests.support.sends import BORN_HOST
from tests.support.steps import done
from tests.support.timers import send_drafts, send_timer, timer_draft

ASKED = [
    {"TIMER_DELAY_MS": "1500"},
    {"TIMER_DELAY_SEC": "3"},
    {"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "7"},
    {"TIMER_DELAY_MS": "20", "TAGS": "a", "KEYS": "k l", "WAIT": "false"},
    {"TIMER_DELAY_MS": "20", "WAIT": "true"},
    {"TIMER_DELAY_MS": "+20"},
    {"TIMER_DELAY_MS": "0"},
    {"TIMER_DELAY_MS": "-5"},
    {"TIMER_DELAY_MS": "99999999999"},
    {"TIMER_DELAY_MS": "soon"},
    {"TIMER_DELIVER_MS": "1"},
    {"TIMER_OUT_MS": "1"},
    {"__STARTDELIVERTIME": "2000000000000"},
    {"DELAY": "2", "TIMER_DELAY_MS": "5"},
    {},
]


@needs_compiled
def test_single_timers_are_the_same_in_both_forms() -> None:
    """Accepted and refused ones, together and alone."""

    def scenario(broker: BrokerUnderTest) -> object:
        create_topic(broker, TOPIC)
        send_timer(broker, "first", TIMER_DELAY_MS=1)
        answers = [send_drafts(broker, [timer_draft(f"{n}", own)]) for n, own in enumerate(ASKED)]
        answers.append(
            send_drafts(broker, [timer_draft(f"x{n}", own) for n, own in enumerate(ASKED)])
        )
        broker.clock.forward(10_000)
        return [shown(each) for each in answers], broker.deliver(), bodies(broker)

    same_in_both(scenario)


def shown(outcomes: list[Outcome]) -> list[str]:
    return [
        str(each._replace(physical_offsets=[*each.physical_offsets]))
        if isinstance(each, Stored)
        else str(each)
        for each in outcomes
    ]


def batch_of(items: list[dict[str, str]], queue_id: int = 0) -> Draft:
    drafts = [timer_draft(f"{number}", own) for number, own in enumerate(items)]
    body = write_batch(BatchItem(0, draft.body, draft.properties) for draft in drafts)
    return Draft(TOPIC, queue_id, b"", body, 1, BORN_HOST, spans=read_batch(body))


def send_batch(broker: BrokerUnderTest, batch: Draft) -> list[Outcome]:
    outcomes = done(broker.broker.drafts.send([DraftCall((batch,))]))
    broker.sync()
    return outcomes


@needs_compiled
@pytest.mark.parametrize(
    "items",
    [
        [{"TIMER_DELAY_MS": f"{at}"} for at in (5, 3, 4)],
        [{"TIMER_DELAY_MS": "5", "KEYS": "k"}, {"TIMER_DELAY_SEC": "1", "TAGS": "t"}],
        [{"TIMER_DELAY_MS": "5"}, {}],
        [{"TIMER_DELAY_MS": "5"}, {"TIMER_DELAY_MS": "soon"}],
        [{"TIMER_DELAY_MS": "5"}, {"DELAY": "1"}],
        [{"note": "TIMER_ is no property"}],
    ],
)
def test_batches_of_timers_are_the_same_in_both_forms(items: list[dict[str, str]]) -> None:
    """All are stored or none, and each waits for its own instant."""

    def scenario(broker: BrokerUnderTest) -> object:
        create_topic(broker, TOPIC)
        answers = [shown(send_batch(broker, batch_of(items))) for _ in range(2)]
        broker.clock.forward(5_000)
        return answers, broker.deliver(), bodies(broker)

    same_in_both(scenario)


@needs_compiled
def test_a_batch_of_timers_is_made_without_objects(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take ten times as long."""
    create_topic(under_test, TOPIC)

    def never(*_: object) -> None:
        raise AssertionError("left to the plain form")

    monkeypatch.setattr(under_test.broker.drafts.plain, "of", never)
    (stored,) = send_batch(under_test, batch_of([{"TIMER_DELAY_MS": "5"}] * 100, queue_id=2))
    assert not isinstance(stored, Exception)
    assert stored.queue_id == 2
    assert under_test.broker.wait_queues[TIMERS].pending == 100
    under_test.clock.forward(5)
    assert under_test.deliver() == 100
    assert len(bodies(under_test, TOPIC, 2)) == 100


def scattered_timers(broker: BrokerUnderTest, count: int) -> list[str]:
    """Send timers, due soon or late in any order, and cancel some; the bodies of what is due."""
    random = Random(count)
    # Some of them share an instant, and a record of another queue lies between some.
    waits_ms = [random.choice((5, 10, 1 + random.randrange(50), 100_000)) for _ in range(count)]
    for number, wait_ms in enumerate(waits_ms):
        send_timer(broker, f"{number}", TIMER_DELAY_MS=wait_ms)
        if random.random() < 0.2:
            send_drafts(broker, [timer_draft("x" * random.randrange(40_000), {}, OTHER)])
    gone = random.sample(range(count), count // 5)
    request = ChangeByIds(ScheduleAction.CANCEL, tuple(map(str, gone)))
    done(broker.broker[Changes].by_ids(request))
    waiting = [(waits_ms[at], at) for at in range(count) if at not in gone]
    return [f"{at}" for wait_ms, at in sorted(waiting) if wait_ms <= 50]


@needs_compiled
@pytest.mark.parametrize("count", [5, 30, 120])
def test_timers_that_lie_here_and_there_are_the_same_in_both_forms(count: int) -> None:
    """In due order, however they were sent."""

    def scenario(broker: BrokerUnderTest) -> object:
        due = scattered_timers(broker, count)
        broker.clock.forward(50)
        assert broker.deliver() == len(due)
        assert bodies(broker) == due
        return due

    same_in_both(scenario, deliver_batch_max=16)


@needs_compiled
def test_timers_that_lie_here_and_there_are_delivered_without_objects(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one instant were sent at many times, and lie between others."""
    create_topic(under_test, TOPIC)
    create_topic(under_test, OTHER)

    def never(*_: object) -> None:
        raise AssertionError("left to the plain form")

    due = scattered_timers(under_test, 50)
    monkeypatch.setattr(under_test.broker.schedule, "_deliver", never)
    under_test.clock.forward(50)
    under_test.deliver()
    assert bodies(under_test) == due
