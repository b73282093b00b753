"""Locks of queues end, and are counted for who has them."""

from __future__ import annotations

from typing import Final

import pytest

from rmqlite.features.queue_locks.queue_locks import LOCK_MS, QueueLocks
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import Overloaded
from tests.support.clock import FakeClock

QUEUES: Final = [Queue("orders", number) for number in range(4)]


def test_one_account_leaves_room_for_locks() -> None:
    """A queue counts for the account of the member that has it now; what is over for nobody."""
    clock = FakeClock()
    locks = QueueLocks(BrokerConfig(consumer_offsets_max=4), clock)
    locks.lock("g", "a", QUEUES[:2], "one")
    with pytest.raises(Overloaded, match="maxConsumerOffsets of one account=2"):
        locks.lock("g", "a", QUEUES[2:], "one")
    assert len(locks.lock("g", "b", QUEUES[2:], "other")) == 2
    clock.forward(LOCK_MS + 1)
    assert len(locks.lock("g", "b", QUEUES[:2], "other")) == 2
    locks.unlock("g", "b", QUEUES)
    assert (locks._shares.total, locks._shares._of, locks._groups) == (0, {}, {})


def test_locks_of_a_group_that_is_gone_are_forgotten() -> None:
    """The next call of another group finds those that are over."""
    clock = FakeClock()
    locks = QueueLocks(BrokerConfig(), clock)
    locks.lock("gone", "a", QUEUES)
    clock.forward(LOCK_MS)
    assert locks.lock("other", "b", QUEUES[:1]) == {QUEUES[0]}
    assert (locks._shares.total, list(locks._groups)) == (1, ["other"])
