"""Stores of earlier versions: today's broker opens them and goes on where theirs stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqlite.client import (
    CONSUME_SUCCESS,
    AdminClient,
    ConsumeResult,
    PullConsumer,
    PushConsumer,
    StoredMessage,
)
from rmqlite.store_tools.check import StoreCheck, Verdict
from rmqlite.store_tools.reader import MessageFilter, StoreReader
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually
from tests.support.golden import unpack_own

VERSIONS = ("0.5.0", "0.6.0")
ORDERS = [b"order %d" % number for number in range(12)] + [b"later 0"]
BILLS = {b"bill 0", b"bill 1", b"bill 2"}


def verdict(root: Path) -> Verdict:
    checking = StoreCheck(root)
    try:
        return checking.verdict(list(checking.run()))
    finally:
        checking.close()


def bodies(root: Path, topic: str) -> list[bytes]:
    with StoreReader(root) as reader:
        return [each.body for each in reader.messages(MessageFilter(topic=topic))]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_a_store_of_an_earlier_version_goes_on(
    start_broker: StartBroker, tmp_path: Path, version: str, which: str
) -> None:
    """It is sound, it can be read, and all that waited in it comes: delays, retries, redrives."""
    root = unpack_own(tmp_path, version, which)
    assert verdict(root) is (Verdict.SOUND if which == "clean" else Verdict.NOT_CLOSED)
    assert bodies(root, "orders") == ORDERS
    (tmp_path / "broker").mkdir()
    root = root.rename(tmp_path / "broker" / "store")
    broker = start_broker(maxMessageSize=65536)
    with AdminClient(broker.endpoint) as admin:
        admin.schedule.fire(*[each.message_id for each in admin.schedule.pending()])
        eventually(lambda: not admin.schedule.count_pending(), "nothing waits any more")
        (letters,) = admin.dead_letters.groups()
        assert (letters.group, letters.letters, letters.redriven) == ("strict", 3, 1)
        assert admin.group("strict").info.max_reconsume_times == 0
    with PullConsumer(broker.endpoint, "readers") as consumer:
        (queue,) = consumer.queues("orders")
        # A commit is on disk 5 seconds later: the kill came before.
        committed = 5 if which == "clean" else None
        assert consumer.committed(queue) == committed
        found = consumer.pull("orders", 0).messages
    assert [each.body for each in found][:-2] == ORDERS[committed or 0 :]
    assert {each.body for each in found[-2:]} == {b"later 1", b"later 2"}
    # Its retries, and the redriven one, which these versions sent to the topic.
    assert consumed(broker.endpoint, "slow", 4) == BILLS
    assert consumed(broker.endpoint, "strict", 1) == {b"bill 0"}
    broker.stop()
    assert verdict(root) is Verdict.SOUND


def consumed(endpoint: str, group: str, count: int) -> set[bytes]:
    """The bodies that a group gets: those that it failed before."""
    seen: list[StoredMessage] = []

    def listen(message: StoredMessage) -> ConsumeResult:
        seen.append(message)
        return CONSUME_SUCCESS

    with PushConsumer(endpoint, group, listen) as consumer:
        consumer.subscribe("bills")
        consumer.start()
        eventually(lambda: len(seen) >= count, f"{group} gets what it failed")
    return {each.body for each in seen}
