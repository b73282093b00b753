"""The task that asks producers about their transactions, on a loop with the fake clock's time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from rmqlite.features.transactions.checking_back import CheckingBack
from rmqlite.features.transactions.requests import TransactionEnd, TransactionQuestion
from rmqlite.features.transactions.service import TransactionCalls
from rmqlite.kernel.words.errors import FlushFailed
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest
from tests.support.files import FaultyFiles
from tests.support.loops import SyncsAtOnce, run_with
from tests.support.services import Served
from tests.support.transactions import GROUP, bodies, send_half


class Stop(Exception):
    """Ends the task group of a test."""


@dataclass
class Producer:
    """A producer that commits when it is asked, unless it is away."""

    server: Served
    under_test: BrokerUnderTest
    is_there: bool = True
    asked: list[tuple[str, int]] = field(default_factory=list)
    """Message id, and when."""

    def has(self, group: str) -> bool:
        return self.is_there and group == GROUP

    def ask(self, question: TransactionQuestion) -> bool:
        store = self.under_test.store
        assert question.physical_offset < store.durable_end == store.end
        self.asked.append((question.message_id, self.under_test.clock.now_ms()))
        return True


Scenario = Callable[[Producer], Awaitable[None]]


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    broker = BrokerUnderTest(tmp_path / "store", files=FaultyFiles(used_ratio=0.5))
    yield broker
    broker.store.release()
    assert list(check(tmp_path / "store")) == []


def run(under_test: BrokerUnderTest, scenario: Scenario) -> None:
    """Run a scenario beside the task that asks."""

    async def main() -> None:
        with closing(SyncsAtOnce()) as syncer:
            server = Served(under_test, syncer)
            producer = Producer(server, under_test)
            server.service[TransactionCalls].listen(producer)
            task = CheckingBack(
                server.config, under_test.broker, server.commit, server.service[TransactionCalls]
            )
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(task.run())
                    await scenario(producer)
                    raise Stop
            except* Stop:
                pass

    run_with(under_test.clock, main())


def test_a_producer_is_asked_at_each_interval(under_test: BrokerUnderTest) -> None:
    """transactionCheckInterval; each question is on disk before it leaves."""

    async def scenario(producer: Producer) -> None:
        send_half(under_test, "a")
        await asyncio.sleep(185)
        times = [at for _, at in producer.asked]
        assert len(times) == 3
        assert [after - before for before, after in pairwise(times)] == [
            pytest.approx(60_000, abs=50)
        ] * 2

    run(under_test, scenario)


def test_a_producer_that_comes_back_is_asked(under_test: BrokerUnderTest) -> None:
    """Until then nobody was there, and nothing is stored for a question."""

    async def scenario(producer: Producer) -> None:
        producer.is_there = False
        send_half(under_test, "a")
        end = under_test.store.end
        await asyncio.sleep(590)
        assert (producer.asked, under_test.store.end) == ([], end)
        producer.is_there = True
        await asyncio.sleep(30)
        assert [message_id for message_id, _ in producer.asked] == ["a"]

    run(under_test, scenario)


def test_an_ended_transaction_is_durable_and_wakes_its_readers(
    under_test: BrokerUnderTest,
) -> None:
    """The service answers when the message is on disk."""

    async def scenario(producer: Producer) -> None:
        at = send_half(under_test, "a")
        wanted = TransactionEnd(GROUP, at.queue_offset, at.physical_offset, is_commit=True)
        assert await producer.server.service[TransactionCalls].end(wanted)
        assert under_test.store.durable_end == under_test.store.end
        assert ("orders", 0) in under_test.heard.appended_to
        assert not await producer.server.service[TransactionCalls].end(wanted)

    run(under_test, scenario)


def test_nobody_is_asked_while_the_disk_is_full(under_test: BrokerUnderTest) -> None:
    """A question stores a copy of its message; the rest of the disk is for accepted messages."""

    async def scenario(producer: Producer) -> None:
        send_half(under_test, "a")
        under_test.broker.retention.is_disk_full = True
        await asyncio.sleep(130)
        assert producer.asked == []
        under_test.broker.retention.is_disk_full = False
        await asyncio.sleep(60)
        assert len(producer.asked) == 1

    run(under_test, scenario)


def test_a_round_that_cannot_be_stored_is_tried_again(under_test: BrokerUnderTest) -> None:
    """No question leaves without its copy."""

    async def scenario(producer: Producer) -> None:
        send_half(under_test, "a")
        # The table with its topic is on disk.
        await asyncio.sleep(1)
        files = under_test.files
        assert isinstance(files, FaultyFiles)
        files.fail("write", times=1)
        await asyncio.sleep(70)
        assert producer.asked == []
        await asyncio.sleep(60)
        assert len(producer.asked) == 1
        assert bodies(under_test, "RMQ_SYS_TRANS_HALF_TOPIC") == ["a", "a"]

    run(under_test, scenario)


def test_a_failed_sync_ends_the_broker(under_test: BrokerUnderTest) -> None:
    """The disk may lack what the broker has counted."""

    async def scenario(producer: Producer) -> None:
        send_half(under_test, "a")
        producer.server.commit.fail(FlushFailed("gone"))
        with suppress(FlushFailed):
            await producer.server.commit.run()
        await asyncio.sleep(70)

    with pytest.raises(ExceptionGroup) as caught:
        run(under_test, scenario)
    assert caught.group_contains(FlushFailed)
