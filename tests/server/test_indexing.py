"""The task that keeps the table of the timers, on a loop whose time is the fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from rmqlite.kernel.process import indexing
from rmqlite.kernel.process.indexing import Indexing
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.store.timer_index import IndexDamaged, IndexWrite
from rmqlite.kernel.waits import unindexed
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest
from tests.support.loops import AtOnce, run_with
from tests.support.messages import TOPIC, create_topic
from tests.support.timers import send_drafts, send_timer, timer_draft


class Stop(Exception):
    """Ends the task group of a test."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    made = BrokerUnderTest(tmp_path / "store")
    create_topic(made, TOPIC)
    yield made
    made.store.release()
    assert list(check(tmp_path / "store")) == []


def beside(
    broker: BrokerUnderTest, scenario: Callable[[list[int]], Awaitable[None]], *, close: bool = True
) -> None:
    """Run a scenario beside the loops; it gets the list of wait queues with earlier messages."""

    async def main() -> None:
        sooner: list[int] = []
        task = Indexing(broker.broker, broker.clock, AtOnce(1), sooner.append)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(task.write())
                tasks.create_task(task.catch_up())
                await scenario(sooner)
                raise Stop
        except* Stop:
            pass
        if close:
            task.close()

    run_with(broker.clock, main())


def send(broker: BrokerUnderTest, *delays_ms: int) -> None:
    drafts = [timer_draft(f"t{each}", {"TIMER_DELAY_MS": str(each)}) for each in delays_ms]
    send_drafts(broker, drafts)


def rows(broker: BrokerUnderTest) -> list[int]:
    timers = broker.broker.wait_queues.timers
    assert timers is not None
    return broker.store.timers.slice(0, 1 << 30, timers.keys.unindexed.indexed)


def table(broker: BrokerUnderTest) -> Path:
    return broker.config.store_path / "timers" / "timers.db"


def test_timers_are_written_after_a_while(broker: BrokerUnderTest) -> None:
    """Together; what is due before then never is."""

    async def scenario(_sooner: list[int]) -> None:
        await asyncio.sleep(10)
        send(broker, 60_000, 100, 70_000)
        await asyncio.sleep(0.2)
        broker.deliver()
        await asyncio.sleep(indexing.WRITE_S + 1)
        assert len(rows(broker)) == 2
        assert broker.broker.wait_queues[TIMERS].pending == 2

    beside(broker, scenario)


def test_a_store_without_timers_has_no_table(broker: BrokerUnderTest) -> None:
    """And nothing of it on disk."""

    async def scenario(_sooner: list[int]) -> None:
        await asyncio.sleep(10)

    beside(broker, scenario)
    assert not table(broker).parent.exists()


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_next_start_goes_on(broker: BrokerUnderTest, is_clean: bool) -> None:
    """With nothing to read from the queue after a clean end, with the rest of it after another."""

    async def scenario(_sooner: list[int]) -> None:
        send(broker, 60_000, 50_000)
        await asyncio.sleep(3)
        send(broker, 40_000)

    beside(broker, scenario, close=is_clean)
    broker.restart() if is_clean else broker.crash()
    if not is_clean:
        broker.open()
    assert len(rows(broker)) == (3 if is_clean else 2)
    broker.clock.forward(60_000)
    assert broker.deliver() == 3


def test_overdue_timers_that_a_start_finds_are_delivered(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivery is woken as soon as one is found, while the others are still read."""
    send(broker, *range(5_000, 4_000, -10))
    broker.restart()
    table(broker).unlink(missing_ok=True)
    broker.crash()
    monkeypatch.setattr(unindexed, "READ_TOGETHER", 10)
    broker.open()
    timers = broker.broker.wait_queues.timers
    assert timers is not None
    assert timers.keys.unindexed.rebuilding == (10, 100)

    async def scenario(sooner: list[int]) -> None:
        await asyncio.sleep(1)
        assert set(sooner) == {TIMERS}
        assert timers.keys.unindexed.rebuilding is None

    beside(broker, scenario)
    broker.clock.forward(5_000)
    assert broker.deliver() == 100


def test_a_write_that_fails_is_tried_again(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With longer and longer pauses, and two lines in the log."""
    failures = [StoreUnavailable("use", "timers.db", "full", is_full=True)] * 3
    run = IndexWrite.run

    def failing(write: IndexWrite) -> None:
        if failures:
            raise failures.pop()
        run(write)

    monkeypatch.setattr(IndexWrite, "run", failing)

    async def scenario(_sooner: list[int]) -> None:
        send_timer(broker, "a", TIMER_DELAY_MS=60_000)
        await asyncio.sleep(4)
        assert rows(broker) == []
        send_timer(broker, "b", TIMER_DELAY_MS=60_000)
        await asyncio.sleep(10)
        assert len(rows(broker)) == 2

    beside(broker, scenario)
    assert [record.getMessage()[:24] for record in caplog.records] == [
        "timers cannot be indexed",
        "timers are indexed again",
    ]


def test_a_table_that_breaks_in_a_write_is_made_again(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the queue, by the next write."""
    failures = [IndexDamaged("malformed")]
    run = IndexWrite.run

    def failing(write: IndexWrite) -> None:
        if failures:
            raise failures.pop()
        run(write)

    monkeypatch.setattr(IndexWrite, "run", failing)

    async def scenario(_sooner: list[int]) -> None:
        send(broker, 60_000, 70_000)
        await asyncio.sleep(10)
        assert len(rows(broker)) == 2

    beside(broker, scenario)
