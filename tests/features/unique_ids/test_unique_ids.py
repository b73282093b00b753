"""What becomes of a second message with a unique id: a duplicate, or it replaces the first one."""

from __future__ import annotations

from typing import Any

import pytest

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.requests import ChangeByIds, ChangeOutcome
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import bodies
from tests.support.restarts import WAYS, Restart
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
