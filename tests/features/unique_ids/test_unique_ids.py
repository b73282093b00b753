"""What becomes of a second message with a unique id: a duplicate, or it replaces the first one."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.requests import ChangeByIds, ChangeOutcome
from rmqlite.features.operating.deleting import Deleting
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.made_brokers import Make
from tests.support.messages import bodies
from tests.support.restarts import WAYS, Restart
from tests.support.sends import sending
from tests.support.steps import done

TOPIC = "orders"
HOUR_MS = 3_600_000


def message(body: str, unique_id: str = "invoice-7", **more: Any) -> Message:
    return Message(TOPIC, body.encode(), unique_id=unique_id, message_id=f"id-{body}", **more)


def all_bodies(broker: BrokerUnderTest) -> list[str]:
    return [body for queue_id in range(4) for body in bodies(broker, TOPIC, queue_id)]


def cancel(broker: BrokerUnderTest, message_id: str) -> ChangeOutcome:
    request = ChangeByIds(ScheduleAction.CANCEL, (message_id,))
    (changed,) = done(broker.broker[Changes].by_ids(request))
    broker.sync()
    return changed.outcome


WAITS: dict[str, dict[str, Any]] = {
    "none": {},
    "level": {"delay_level": 3},
    "length": {"delay": "10s"},
    "instant": {"deliver_after": "10s"},
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("restart", WAYS)
def test_a_second_message_is_answered_with_the_first_one(
    under_test: BrokerUnderTest, wait: dict[str, Any], restart: Restart
) -> None:
    """While it waits, after its delivery, and after a restart or a kill in between."""
    (first,) = under_test.send(message("a", **wait))
    for step_ms in (0, 10_000):
        under_test.clock.forward(step_ms)
        under_test.deliver()
        restart(under_test)
        (second,) = under_test.send(message("b"), queue_id=1)
        assert second.is_duplicate
        assert (second.message_id, second.queue_id) == ("id-a", first.queue_id)
        assert second.deliver_at_ms == (first.deliver_at_ms if not step_ms else 0)
        if not step_ms:
            assert second == first._replace(is_duplicate=True)
    assert all_bodies(under_test) == ["a"]


@pytest.mark.one_of(10)
@pytest.mark.parametrize("old", [*WAITS][1:])
@pytest.mark.parametrize("new", WAITS)
@pytest.mark.parametrize("restart", WAYS)
def test_a_message_takes_the_place_of_one_that_waits(
    under_test: BrokerUnderTest, old: str, new: str, restart: Restart
) -> None:
    """Whatever both wait for; the first one is cancelled, and only the second one is delivered."""
    under_test.send(message("a", **WAITS[old]))
    under_test.clock.forward(1_000)
    (second,) = under_test.send(message("b", replace=True, **WAITS[new]))
    assert (second.is_duplicate, second.message_id) == (False, "id-b")
    restart(under_test)
    assert cancel(under_test, "id-a") is ChangeOutcome.ALREADY_CANCELLED
    (third,) = under_test.send(message("c"))
    assert third == second._replace(is_duplicate=True)
    under_test.clock.forward(9_990)
    under_test.deliver()
    assert all_bodies(under_test) == (["b"] if new == "none" else [])
    under_test.clock.forward(10)
    under_test.deliver()
    assert all_bodies(under_test) == ["b"]
    restart(under_test)
    assert under_test.send(message("d", replace=True))[0].message_id == "id-b"
    assert not any(sum(topics.values()) for topics in under_test.store.progress.pending.values())


def test_a_cancelled_message_frees_its_id(under_test: BrokerUnderTest) -> None:
    """Whoever cancels an order may place it again."""
    under_test.send(message("a", delay_level=3))
    assert cancel(under_test, "id-a") is ChangeOutcome.DONE
    assert not under_test.send(message("b", delay_level=3))[0].is_duplicate
    under_test.clock.forward(10_000)
    under_test.deliver()
    assert all_bodies(under_test) == ["b"]


@pytest.mark.one_of(9)
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("restart", WAYS)
def test_a_send_that_is_repeated_after_a_lost_answer_stores_one_message(
    under_test: BrokerUnderTest, wait: dict[str, Any], replaces: bool, restart: Restart
) -> None:
    """Its message id is the same, so it is no duplicate, and replaces nothing: not even itself."""
    (first,) = under_test.send(message("a", replace=replaces, **wait))
    restart(under_test)
    end = under_test.store.end
    assert under_test.send(message("a", replace=replaces, **wait)) == (first,)
    assert under_test.store.end == end
    under_test.clock.forward(10_000)
    under_test.deliver()
    (again,) = under_test.send(message("a", replace=replaces, **wait))
    assert (again.message_id, again.is_duplicate) == ("id-a", False)
    assert all_bodies(under_test) == ["a"]


def test_a_repeated_send_brings_back_nothing(under_test: BrokerUnderTest) -> None:
    """Neither a message that was cancelled since, nor one that another has replaced."""
    under_test.send(message("a", delay_level=3))
    cancel(under_test, "id-a")
    assert under_test.send(message("a", delay_level=3))[0].message_id == "id-a"
    assert not under_test.store.progress.pending[3][TOPIC]
    under_test.send(message("b", replace=True, delay_level=3))
    under_test.send(message("c", replace=True, delay_level=3))
    (again,) = under_test.send(message("b", replace=True, delay_level=3))
    assert (again.message_id, again.is_duplicate) == ("id-c", True)
    under_test.clock.forward(10_000)
    under_test.deliver()
    assert all_bodies(under_test) == ["c"]


def test_the_window_begins_when_a_message_comes_to_its_topic(make: Make) -> None:
    """A message that waits longer than the window counts for as long as it waits."""
    broker = make(dedup_hours=2)
    broker.send(message("a", deliver_after="5h"))
    steps_ms = (4 * HOUR_MS, HOUR_MS, 2 * HOUR_MS, 1, 2 * HOUR_MS)
    for step_ms, expected in zip(steps_ms, ["id-a"] * 3 + ["id-b"] * 2, strict=True):
        broker.clock.forward(step_ms)
        broker.deliver()
        assert broker.send(message("b"))[0].message_id == expected
        assert broker.send(message("c"))[0].message_id == expected
    assert all_bodies(broker) == ["a", "b"]


@pytest.mark.parametrize(
    ("replaces", "expected"),
    [([False, False, False], "0"), ([False, True, False], "1"), ([True, True, True], "2")],
)
def test_of_one_call_the_first_message_counts_or_the_last_that_replaces(
    under_test: BrokerUnderTest, replaces: list[bool], expected: str
) -> None:
    """Messages of several threads come in one call; others in it are stored as ever."""
    mine = [message(str(at), replace=each, delay_level=3) for at, each in enumerate(replaces)]
    other = Message(TOPIC, b"other", delay_level=3)
    elsewhere = message("elsewhere", "another-id", delay_level=3)
    results = under_test.send(mine[0], other, *mine[1:], elsewhere)
    assert [each.message_id for each in (results[0], *results[2:4])] == [f"id-{expected}"] * 3
    assert [each.is_duplicate for each in results] == [
        *(expected != "0", False, expected != "1", expected != "2", False)
    ]
    assert len({each.physical_offset for each in results}) == 3
    under_test.clock.forward(10_000)
    under_test.deliver()
    assert sorted(all_bodies(under_test)) == [expected, "elsewhere", "other"]


def test_each_topic_has_ids_of_its_own(under_test: BrokerUnderTest) -> None:
    """Also where both wait in the same queue; and a topic that is made anew knows none."""
    others = Message("bills", b"x", unique_id="invoice-7", delay_level=3)
    for _ in range(2):
        assert not under_test.send(message("a", delay_level=3))[0].is_duplicate
        assert not under_test.send(others)[0].is_duplicate
        under_test.clock.forward(10_000)
        under_test.deliver()
        for topic in (TOPIC, "bills"):
            under_test.broker[Deleting].delete_topic(topic)
        under_test.sync()


def test_a_failed_message_keeps_its_unique_id_and_is_stored_all_the_same(
    under_test: BrokerUnderTest,
) -> None:
    """RocketMQ's consumers send a failed message to its retry topic with all its properties."""
    group = retry_topic("shop")
    for body in "ab":
        assert not under_test.send(Message(group, body.encode(), unique_id="i"))[0].is_duplicate


def test_a_long_call_sees_what_others_store_between_its_steps(
    under_test: BrokerUnderTest,
) -> None:
    """And stores all others, each once."""
    under_test.send(message("first", "id-0", delay_level=3))
    ids = [f"id-{number}" for number in range(400)]
    steps = sending(under_test.broker, [message(each, each, delay_level=3) for each in ids], 0)
    between = {1: message("x", "id-7"), 2: message("y", "id-9", delay_level=3)}
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            results = end.value
            break
        count += 1
        if count in between:
            under_test.send(between[count])
    assert count > 2
    duplicates = {at: each.message_id for at, each in enumerate(results) if each.is_duplicate}
    assert duplicates == {0: "id-first", 7: "id-x", 9: "id-y"}
    under_test.sync()
    under_test.clock.forward(10_000)
    under_test.deliver()
    assert len(all_bodies(under_test)) == 400


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"unique_id": "a b"}, "one token without blanks"),
        ({"unique_id": "a\x01"}, "one token without blanks"),
        ({"unique_id": "x" * 256}, "at most 255 bytes"),
        ({"unique_id": 7}, "unique_id must be str, not int"),
        ({"unique_id": "a", "replace": "yes"}, "replace must be bool, not str"),
        ({"replace": True}, "unique_id must be one token"),
        ({"properties": {"UNIQUE_ID": "a"}}, "does not reserve"),
    ],
)
def test_a_message_names_what_is_wrong(values: dict[str, Any], rule: str) -> None:
    """Before it is sent."""
    with pytest.raises(InvalidValue, match=rule):
        Message(TOPIC, b"x", **values)
