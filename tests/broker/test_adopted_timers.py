"""A broker on a store of RocketMQ 5: each of its pending timers once, exactly when it is due."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqlite.kernel.words.message import UNIQ_KEY
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import FakeClock
from tests.support.golden import INDEX, pending_timers, unpack_timers


def keys_in(broker: BrokerUnderTest) -> Counter[str]:
    """How often each message is in a topic of a user."""
    topics = ("orders", "reminders")
    queues = [key for key in broker.store.queue_keys() if key[0] in topics]
    return Counter(each.properties[UNIQ_KEY] for key in queues for each in broker.messages(*key))


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_each_pending_timer_is_delivered_once_when_it_is_due(tmp_path: Path, which: str) -> None:
    """A millisecond before, it is not; what RocketMQ delivered or recalled is not, ever."""
    root, rows = unpack_timers(tmp_path, which)
    pending = {row["uniqKey"]: due_ms for row, due_ms in pending_timers(rows)}
    clock = FakeClock(min(pending.values()) - 1)
    broker = BrokerUnderTest(root, clock=clock, **INDEX)
    before = keys_in(broker)
    for at_ms in sorted(set(pending.values())):
        # The broker's clock is never before the newest record: then some are due already.
        for wait_ms in (at_ms - 1, at_ms):
            clock.forward(max(0, wait_ms - clock.now_ms()))
            broker.deliver()
            now_ms = clock.now_ms()
            due = Counter([key for key, each_ms in pending.items() if each_ms <= now_ms])
            found = keys_in(broker) - before
            assert Counter({key: found[key] for key in found if key in pending}) == due
    assert not ({row["uniqKey"] for row in rows} & found.keys()) - pending.keys()
    broker.close()
    assert list(check(root)) == []
