"""A row of a bulk call is a message whose unique id is its message id: one rule for both."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.requests import ChangeByIds
from rmqlite.features.first_messages import ENTRIES_MAX, HOUR_MS
from rmqlite.features.operating.deleting import Deleting
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.message import DELAY, REAL_QID, REAL_TOPIC, UNIQ_KEY, Message
from tests.support.brokers import BrokerUnderTest
from tests.support.bulk import TOPIC, outcomes, request, schedule
from tests.support.made_brokers import Make
from tests.support.messages import bodies
from tests.support.restarts import WAYS, Restart, scheduled
from tests.support.sends import BORN_HOST
from tests.support.steps import done
from tests.support.stores import new_record


def send(broker: BrokerUnderTest, unique_id: str, **more: Any) -> bool:
    """Is a message with this unique id, and a message id of its own, a duplicate?"""
    return broker.send(Message(TOPIC, b"sent", unique_id=unique_id, **more))[0].is_duplicate


def is_duplicate(broker: BrokerUnderTest, row: str, **columns: Any) -> bool:
    return outcomes(schedule(broker, [row], **columns), 1) == "d"


def all_bodies(broker: BrokerUnderTest) -> list[str]:
    return sorted([body for queue_id in range(4) for body in bodies(broker, TOPIC, queue_id)])


def deliver(broker: BrokerUnderTest, after_ms: int = 10_000) -> None:
    broker.clock.forward(after_ms)
    broker.deliver()


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("restart", WAYS)
def test_rows_and_sends_have_the_same_ids(
    under_test: BrokerUnderTest, level: int, restart: Restart
) -> None:
    """Whichever comes first, while it waits and later, with a restart or a kill in between."""
    assert not is_duplicate(under_test, "row-first", delay_levels=(level,))
    assert not send(under_test, "sent-first", delay_level=level)
    for _ in range(2):
        restart(under_test)
        assert send(under_test, "row-first")
        assert send(under_test, "sent-first")
        assert is_duplicate(under_test, "row-first")
        assert is_duplicate(under_test, "sent-first")
        deliver(under_test)
    assert all_bodies(under_test) == ["row-first", "sent"]


def test_a_job_that_an_older_version_began_goes_on(under_test: BrokerUnderTest) -> None:
    """Its records have no UNIQUE_ID, and are found by the message id."""
    row = new_record(b"x", TOPIC, properties={UNIQ_KEY: "row-1", "WAIT": "true"})
    under_test.store.append([row])
    waiting = {DELAY: "1", REAL_TOPIC: TOPIC, REAL_QID: "0", UNIQ_KEY: "row-2"}
    scheduled(under_test, b"x", waiting)
    answer = schedule(under_test, ["row-1", "row-2", "row-3"])
    assert outcomes(answer, 3) == "dda"
    assert send(under_test, "row-1")
    assert send(under_test, "row-2")


def test_a_message_with_a_unique_id_has_no_other(under_test: BrokerUnderTest) -> None:
    """Its message id is then only the name of one send."""
    send(under_test, "invoice-7", message_id="send-1")
    assert not is_duplicate(under_test, "send-1")
    assert is_duplicate(under_test, "invoice-7")


def test_a_row_that_waits_longer_than_the_window_is_known_as_long_as_it_waits(make: Make) -> None:
    """And then for the window, counted from its delivery; whatever has come in between."""
    broker = make(dedup_hours=2, max_index_entries=50)
    due_ms = broker.clock.now_ms() + 5 * HOUR_MS
    assert not is_duplicate(broker, "a", deliver_at_ms=(due_ms,))
    steps_ms = (4 * HOUR_MS, HOUR_MS, 2 * HOUR_MS, 1)
    for step_ms, expected in zip(steps_ms, (True, True, True, False), strict=True):
        deliver(broker, step_ms)
        for number in range(60):
            broker.send(Message("bills", b"x", delay_level=number % 2))
        assert is_duplicate(broker, "a") == expected
    assert all_bodies(broker) == ["a", "a"]


def test_a_cancelled_row_comes_back_by_another_message_only(under_test: BrokerUnderTest) -> None:
    """To repeat a job brings back nothing; a message of another id may take the free place."""
    schedule(under_test, ["a", "b"], delay_levels=(3,))
    done(under_test.broker[Changes].by_ids(ChangeByIds(ScheduleAction.CANCEL, ("a", "b"))))
    under_test.sync()
    assert is_duplicate(under_test, "a")
    assert not send(under_test, "a", delay_level=3)
    assert is_duplicate(under_test, "a")
    deliver(under_test)
    assert all_bodies(under_test) == ["sent"]


def test_a_row_that_waits_can_be_replaced_by_a_send(under_test: BrokerUnderTest) -> None:
    """The repeated job then finds the message that has its place."""
    schedule(under_test, ["a"], delay_levels=(3,))
    assert not send(under_test, "a", delay_level=3, replace=True)
    assert is_duplicate(under_test, "a", delay_levels=(3,))
    deliver(under_test)
    assert is_duplicate(under_test, "a")
    assert all_bodies(under_test) == ["sent"]


def test_a_topic_that_is_made_anew_knows_no_rows(under_test: BrokerUnderTest) -> None:
    """Its log still has them, but no consumer gets them."""
    schedule(under_test, ["a"])
    under_test.broker[Deleting].delete_topic(TOPIC)
    under_test.sync()
    assert not is_duplicate(under_test, "a")
    assert is_duplicate(under_test, "a")


def test_a_long_call_sees_what_others_store_between_its_steps(under_test: BrokerUnderTest) -> None:
    """By a send and by another call; it stores all others, each once."""
    ids = [f"row-{number}" for number in range(400)]
    schedule(under_test, ids[:1], job_id="")
    steps = under_test.broker[Bulk].schedule(request(ids, delay_levels=(3,)), BORN_HOST)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer = end.value
            break
        count += 1
        if count == 1:
            assert not send(under_test, "row-7")
        if count == 2:
            assert not is_duplicate(under_test, "row-9", job_id="")
    assert count >= 2
    assert answer.duplicates == (0, 7, 9)
    under_test.sync()
    deliver(under_test)
    assert len(all_bodies(under_test)) == 400


@pytest.mark.parametrize("count", [10, ENTRIES_MAX + 10])
def test_an_id_that_is_a_key_of_many_messages_is_found(make: Make, count: int) -> None:
    """Keys share the index with ids; however many newer messages have the key."""
    broker = make(max_index_entries=5_000)
    schedule(broker, ["a"])
    noise = [Message(TOPIC, b"x", keys="a b") for _ in range(count)]
    broker.send(*noise)
    assert is_duplicate(broker, "a")
    assert send(broker, "a")
    assert not is_duplicate(broker, "b")
