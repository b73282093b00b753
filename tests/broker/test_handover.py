"""What RocketMQ would deliver of a store of ours, and what is left to do when it comes back.

RocketMQ knows one number per level, in config/delayOffset.json: from there on all is pending.
"""

from __future__ import annotations

import pytest

from rmqlite.features.changes.requests import PendingFilter
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.pending import (
    ACTIONS,
    CANCEL,
    FIRE,
    RESCHEDULE,
    by_filter,
    by_ids,
    counts,
    deliver_all,
    named,
    true_counts,
    waiting,
    waiting_ids,
)

LEVELS = (3, 4)


def changed_behind_pending(broker: BrokerUnderTest) -> None:
    """At either level a pending one, one of each change behind it, and a pending one."""
    for level in LEVELS:
        names = [f"{name}{level}" for name in ("first", "cancel", "fire", "move", "last")]
        broker.send(*(named(name, level) for name in names))
        by_ids(broker, CANCEL, names[1])
        by_ids(broker, FIRE, names[2])
        by_ids(broker, RESCHEDULE, names[3], delay_level=7 - level)


def places(broker: BrokerUnderTest) -> list[tuple[int, int]]:
    """Level and queue offset of all that waits."""
    return sorted((each.level, each.queue_offset) for each in waiting(broker))


def rocketmqs_offsets(broker: BrokerUnderTest) -> dict[int, int]:
    """Of each level, where RocketMQ goes on in a store that is closed."""
    data = (broker.config.store_path / "config" / "delayOffset.json").read_bytes()
    return {int(level): int(at) for level, at in tables.decode(data)["offsetTable"].items()}


def rocketmq_delivers(broker: BrokerUnderTest) -> list[str]:
    """All that is pending to it, by level; a store that is closed."""
    offsets = rocketmqs_offsets(broker)
    broker.open()
    found = []
    for level in LEVELS:
        queue = broker.store.queue(SCHEDULE_TOPIC, level - 1)
        assert queue is not None
        entries = queue.read(offsets.get(level, 0), 1 << 20)
        found += [broker.store.read_message(each.physical_offset).body.decode() for each in entries]
        offsets[level] = queue.max_offset
    broker.close()
    path = broker.config.store_path / "config" / "delayOffset.json"
    path.write_bytes(tables.encode({"offsetTable": offsets}))
    return found


def test_rocketmq_delivers_again_what_was_changed_behind_a_pending_one(
    under_test: BrokerUnderTest,
) -> None:
    """And nothing else twice; what it delivered is not delivered by us again."""
    changed_behind_pending(under_test)
    pending = waiting_ids(under_test)
    under_test.close()
    assert rocketmqs_offsets(under_test) == {}
    delivered = rocketmq_delivers(under_test)
    again = [f"{name}{level}" for level in LEVELS for name in ("cancel", "fire", "move")]
    assert sorted(delivered) == sorted([*pending, *again])
    under_test.open()
    assert counts(under_test) == true_counts(under_test) == {}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_change_of_all_that_waits_leaves_rocketmq_nothing_to_do_again(
    under_test: BrokerUnderTest, action: ScheduleAction
) -> None:
    """Level by level, each to itself: what the store's page says to do before it is moved."""
    changed_behind_pending(under_test)
    for level in LEVELS:
        more = {"delay_level": level} if action is RESCHEDULE else {}
        assert by_filter(under_test, action, PendingFilter(levels=(level,)), **more) == 3
    pending = waiting_ids(under_test)
    assert len(pending) == (6 if action is RESCHEDULE else 0)
    under_test.close()
    assert sorted(rocketmq_delivers(under_test)) == sorted(pending)
    under_test.open()
    assert counts(under_test) == true_counts(under_test) == {}


def test_what_rocketmq_has_not_reached_waits_here_and_what_was_changed_does_not(
    under_test: BrokerUnderTest,
) -> None:
    """It stopped in the middle of either level: before, among and behind what was changed."""
    changed_behind_pending(under_test)
    before = places(under_test)
    under_test.close()
    path = under_test.config.store_path / "config" / "delayOffset.json"
    for reached in range(1, 6):
        path.write_bytes(tables.encode({"offsetTable": dict.fromkeys(LEVELS, reached)}))
        under_test.open()
        assert places(under_test) == [place for place in before if place[1] >= reached]
        assert counts(under_test) == true_counts(under_test)
        under_test.close()
    under_test.open()
    deliver_all(under_test)
    assert counts(under_test) == {}
