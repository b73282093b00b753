"""What a broker says of its timers: a row beside the levels, and what keeps their index back."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.waits import unindexed
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest


def test_the_timers_have_a_row_behind_the_levels(tmp_path: Path) -> None:
    """Also before the first timer; then with what waits, what is next and how late it was."""
    broker = BrokerUnderTest(tmp_path)
    row = broker.broker.status(0).levels[-1]
    assert (row.level, row.pending, row.is_used) == (TIMERS, 0, False)
    now_ms = broker.clock.now_ms()
    broker.send(*[Message("orders", b"x", deliver_after=after) for after in ("1s", "700d")])
    row = broker.broker.status(0).levels[-1]
    assert (row.pending, row.next_due_ms, row.delivered) == (2, now_ms + 1_000, 0)
    broker.clock.forward(1_007)
    assert broker.deliver() == 1
    row = broker.broker.status(0).levels[-1]
    assert (row.pending, row.next_due_ms) == (1, now_ms + 700 * 86_400_000)
    assert (row.delivered, row.lateness_max_ms) == (1, 7)
    assert broker.broker.status(0).warnings == ()
    broker.store.release()


def test_an_index_that_is_made_again_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then a list lacks timers: nobody should take them for lost."""
    broker = BrokerUnderTest(tmp_path)
    broker.send(*[Message("orders", b"x", deliver_after="1h")] * 10)
    monkeypatch.setattr(unindexed, "READ_TOGETHER", 4)
    broker.restart()
    (warning,) = broker.broker.status(0).warnings
    assert warning.startswith("the index of the timers is made again, 40% of 10: until then")
    timers = broker.broker.wait_queues.timers
    assert timers is not None
    while timers.keys.catch_up():
        pass
    assert broker.broker.status(0).warnings == ()
    broker.store.release()


def test_an_index_that_cannot_be_written_is_told_before_timers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is nearly full leaves time to make room."""
    broker = BrokerUnderTest(tmp_path)
    monkeypatch.setattr(unindexed, "UNINDEXED_MAX", 6)
    for warnings in ((), (), ("3 timers are not written to their index; with more than 6",)):
        broker.send(Message("orders", b"x", deliver_after="1h"))
        found = broker.broker.status(0).warnings
        assert len(found) == len(warnings)
        assert all(map(str.startswith, found, warnings))
    broker.store.release()
