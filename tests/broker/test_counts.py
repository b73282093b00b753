"""What the broker counts: every event once, per group where a group did it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.words.errors import DiskFull, InvalidName, MessageNotFound, StoreUnavailable
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.made_brokers import Make
from tests.support.messages import TOPIC, delayed, plain


def test_retries_and_dead_letters_are_counted_for_the_group_that_failed(
    under_test: BrokerUnderTest,
) -> None:
    """A dashboard shows which consumers fail; the status has the sums."""
    first, second = [each.physical_offset for each in under_test.send(plain("x"), plain("y"))]
    for group, at, level in (("a", first, 0), ("a", second, 0), ("a", first, -1), ("b", first, -1)):
        under_test.broker.send_back(SendBackRequest(group, at, delay_level=level))
    counts = under_test.broker.counts
    assert counts.retried == {"a": 2}
    assert counts.dead == {"a": 1, "b": 1}
    status = under_test.broker.status(0)
    assert (status.sent, status.retried, status.dead) == (2, 2, 2)


def test_a_send_back_that_is_refused_counts_for_nobody(under_test: BrokerUnderTest) -> None:
    """Nor does a name that is no group's: the number of names is the number of groups."""
    for group, error in (("a", MessageNotFound), ("a b", InvalidName)):
        with pytest.raises(error):
            under_test.broker.send_back(SendBackRequest(group, 10_000))
    assert not under_test.broker.counts.retried
    assert not under_test.broker.counts.dead


def test_what_a_group_is_given_is_counted(under_test: BrokerUnderTest) -> None:
    """Each time it is given; a pull that finds nothing counts nothing."""
    under_test.send(plain("x"), plain("y"))
    for offset in (0, 1, 2):
        under_test.pull(TOPIC, queue_offset=offset, group="readers")
    under_test.pull(TOPIC, queue_offset=2, group="others")
    assert under_test.broker.counts.pulled == {"readers": 3}


def test_appends_are_timed_for_calls_and_for_the_schedule(under_test: BrokerUnderTest) -> None:
    """A slice of 500 deliveries takes longer than a send, and would hide it."""
    under_test.send(plain("x"), delayed("y", 1))
    under_test.clock.forward(1_000)
    assert under_test.deliver() == 1
    assert under_test.broker.counts.appends.histogram().total == 1
    assert under_test.broker.schedule.appends.histogram().total == 1
    assert under_test.broker.wait_queues.lateness(1).count == 1
    assert under_test.broker.wait_queues.lateness(9).count == 0


def test_a_send_that_is_not_stored_is_not_counted(make: Make) -> None:
    """Sent means stored."""
    disk = FaultyFiles()
    broker = make(files=disk)
    disk.take_writes(0)
    with suppress(StoreUnavailable):
        broker.send(plain("x"))
    assert broker.broker.counts.sent == 0
    assert broker.broker.counts.appends.histogram().total == 0


def test_a_send_that_finds_the_disk_full_is_counted(make: Make) -> None:
    """By the call, however many messages it has."""
    broker = make(files=FaultyFiles(used_ratio=1.0))
    broker.broker.retention.measure()
    for _ in range(2):
        with pytest.raises(DiskFull):
            broker.send(plain("x"), plain("y"))
    assert broker.broker.retention.sends_refused == 2
    assert broker.broker.counts.sent == 0
