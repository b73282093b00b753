"""One task for each wait queue: none waits for another, and all together take bounded time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmqlite.kernel.process.delivery import SLICES_S, DeliveryTasks
from rmqlite.kernel.schedule.schedule import REST_MS
from rmqlite.kernel.service.group_commit import GroupCommit, Ran
from rmqlite.kernel.service.turns import TURNS
from rmqlite.kernel.store.commit_log import SyncJob
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import SetTime
from tests.support.deliveries import FULL, fail_deliveries, run, send
from tests.support.files import FOR_GOOD, FaultyFiles
from tests.support.loops import SyncsAtOnce, run_with
from tests.support.messages import level_status
from tests.support.sends import sending
from tests.support.steps import done

SLICE_S = 0.001_5
LEVELS = 64
TABLE = " ".join(["10s"] * LEVELS)


Make = Callable[..., BrokerUnderTest]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes a broker, whose store is let go when the test is over."""
    with ExitStack() as made:

        def fresh(**changes: Any) -> BrokerUnderTest:
            broker = BrokerUnderTest(tmp_path, **changes)
            made.callback(broker.crash)
            return broker

        yield fresh


class Slices:
    """Counts the slices of a broker under test; each that delivers takes SLICE_S."""

    def __init__(self, under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[int] = []
        """The wait queue of each call."""
        self.delivering: list[int] = []
        """The wait queue of each call that delivered something."""
        elapsed, deliver, schedule = (
            SetTime(),
            under_test.broker.deliver,
            under_test.broker.schedule,
        )
        self.now_s = elapsed

        def timed(wait_queue: int) -> int | None:
            self.calls.append(wait_queue)
            before = schedule.delivered
            due_ms = deliver(wait_queue)
            if schedule.delivered > before:
                self.delivering.append(wait_queue)
                elapsed.s += SLICE_S
            return due_ms

        monkeypatch.setattr("rmqlite.kernel.process.delivery.elapsed_s", elapsed)
        monkeypatch.setattr(under_test.broker, "deliver", timed)


# ---- no wait queue waits for another


def test_a_burst_in_one_level_makes_no_other_late(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has just become due comes next, though the burst fell due long before it."""
    slices = Slices(under_test, monkeypatch)
    places: list[int] = []

    async def scenario(delivery: DeliveryTasks) -> None:
        send(under_test, delivery, level=2)
        for _ in range(6):
            send(under_test, delivery, level=1, count=500)
        under_test.clock.forward(4_990)
        # The burst is due for 4 seconds when it begins to leave, and level 2 in 10 ms.
        while len(slices.delivering) < 4:
            await asyncio.sleep(0)
        under_test.clock.forward(10)
        await asyncio.sleep(0.05)
        places.append(slices.delivering.index(2))

    run(under_test, scenario)
    assert 4 <= places[0] <= 5
    assert slices.delivering.count(1) == 15
    assert level_status(under_test, 2).lateness_max_ms == 0


def test_bursts_in_all_levels_hold_others_no_longer_than_one(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of slices between the turns of others is that of all tasks together."""
    broker = make(message_delay_level=TABLE, deliver_batch_max=5)
    slices = Slices(broker, monkeypatch)
    in_pass: list[float] = []

    async def scenario(delivery: DeliveryTasks) -> None:
        for level in range(1, LEVELS + 1):
            send(broker, delivery, level, count=15)
        await asyncio.sleep(9.999)
        while broker.broker.schedule.delivered < 15 * LEVELS:
            before_s = slices.now_s.s
            await asyncio.sleep(0)
            in_pass.append(slices.now_s.s - before_s)

    run(broker, scenario)
    assert max(in_pass) <= SLICES_S + SLICE_S
    spent, passes = sum(in_pass), len(in_pass)
    assert passes >= TURNS * (spent / (SLICES_S + SLICE_S) - 2)
    # Those with more take turns: only the first has its last slice before others have their first.
    later = [each for each in slices.delivering if each != slices.delivering[0]]
    ranks = [later[:at].count(each) for at, each in enumerate(later)]
    assert ranks.index(2) > len(ranks) - 1 - ranks[::-1].index(0)
    assert Counter(slices.delivering) == dict.fromkeys(range(1, LEVELS + 1), 3)


def test_a_level_that_cannot_be_read_rests_alone(make: Make) -> None:
    """Another level delivers to the millisecond while its task waits for its own rest."""
    files = FaultyFiles()
    broker = make(files=files)
    due: list[int] = []

    async def scenario(delivery: DeliveryTasks) -> None:
        send(broker, delivery, level=1)
        first = f"{SCHEDULE_TOPIC}/0/"
        files.fail("read", where=lambda path: first in str(path), times=FOR_GOOD)
        await asyncio.sleep(1)
        for _ in range(10):
            due.append(send(broker, delivery, level=2))
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        assert broker.broker.schedule.delivered == 10
        files.heal()
        await asyncio.sleep(8)

    run(broker, scenario)
    assert broker.broker.schedule.delivered == 11
    assert level_status(broker, 2).lateness_max_ms == 0
    assert level_status(broker, 1).lateness_max_ms >= 3 * REST_MS


@pytest.mark.parametrize("rate", [20, 100])
def test_levels_share_the_rate_and_none_has_all_of_it(make: Make, rate: int) -> None:
    """A burst that waits for its rate lets the few of another level go in between."""
    broker = make(deliver_rate_max=rate, message_delay_level="1s 2s")
    seen: list[tuple[int, int]] = []

    async def scenario(delivery: DeliveryTasks) -> None:
        send(broker, delivery, level=1, count=5 * rate)
        send(broker, delivery, level=2, count=2)
        await asyncio.sleep(1)
        for _ in range(70):
            await asyncio.sleep(0.1)
            seen.append((broker.broker.schedule.delivered, level_status(broker, 2).pending))

    run(broker, scenario)
    assert seen[-1] == (5 * rate + 2, 0)
    assert max(later - at for (at, _), (later, _) in zip(seen, seen[10:], strict=False)) <= rate
    assert level_status(broker, 2).lateness_max_ms <= 250


# ---- what all share


def test_a_full_disk_lets_all_rest_and_is_logged_once(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """64 tasks are no reason for 64 attempts a second, nor for 64 lines."""
    caplog.set_level(logging.INFO)
    broker = make(message_delay_level=TABLE)
    tried = fail_deliveries(broker, FULL, times=4)

    async def scenario(delivery: DeliveryTasks) -> None:
        for level in range(1, LEVELS + 1):
            send(broker, delivery, level)
        await asyncio.sleep(12)
        # Somebody else has nothing to deliver: that ends no outage.
        send(broker, delivery, level=1)
        await asyncio.sleep(60)

    run(broker, scenario)
    assert [later - at for at, later in pairwise(tried)] == [1_000, 2_000, 4_000]
    assert [each.getMessage().split(" error=")[0] for each in caplog.records] == [
        "delivery failed, it is tried again",
        "deliveries were late level=1 messages=2 latest_ms=15000",
        "delivery continues failed_attempts=4",
    ]
    assert broker.broker.schedule.delivered == LEVELS + 1


def test_one_sync_serves_all_levels_that_are_due_in_one_turn(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 tasks that append are no reason for 64 waits for the disk."""
    monkeypatch.setattr("rmqlite.kernel.process.delivery.elapsed_s", SetTime())
    broker = make(message_delay_level=TABLE)
    syncs: list[int] = []
    readable: list[QueueKey] = []

    class Syncs(SyncsAtOnce):
        def begin(self, job: SyncJob, ran: Ran) -> None:
            syncs.append(job.log_end)
            super().begin(job, ran)

    async def main() -> None:
        commit = GroupCommit(broker.config, broker.store, Syncs(), readable.extend)
        broker.heard.appended = commit.appended  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as tasks:
            delivery = DeliveryTasks(broker.broker, broker.clock, tasks)
            broker.heard.due_sooner = delivery.due_sooner  # type: ignore[method-assign]
            for level in range(1, LEVELS + 1):
                done(sending(broker.broker, [Message("orders", b"x", delay_level=level)], 0))
            await asyncio.sleep(9)
            syncs.clear()
            await asyncio.sleep(2)
            delivery.close()

    run_with(broker.clock, main())
    assert broker.broker.schedule.delivered == LEVELS
    assert syncs == [broker.store.end]
    assert readable == [("orders", 0)]


# ---- idle, begin and end


def test_a_task_without_due_messages_does_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps until its own time: 64 levels cost no more than one."""
    broker = make(message_delay_level=TABLE.replace("10s", "2h"))
    slices = Slices(broker, monkeypatch)

    async def scenario(delivery: DeliveryTasks) -> None:
        for level in range(1, LEVELS + 1):
            send(broker, delivery, level)
        await asyncio.sleep(1)
        assert sorted(slices.calls) == list(range(1, LEVELS + 1))
        slices.calls.clear()
        await asyncio.sleep(7_100)
        assert slices.calls == []
        await asyncio.sleep(200)

    run(broker, scenario)
    assert sorted(slices.delivering) == list(range(1, LEVELS + 1))
    # Each looks once more when it has delivered, then sleeps for ever.
    assert len(slices.calls) <= 2 * LEVELS


def test_a_wait_queue_has_a_task_from_its_first_message_on(under_test: BrokerUnderTest) -> None:
    """Levels that nobody uses have none; neither has a broker without a delayed message."""
    names: list[set[str]] = []

    async def scenario(delivery: DeliveryTasks) -> None:
        for level in (0, 1, 3, 3):
            if level:
                send(under_test, delivery, level)
            running = {task.get_name() for task in asyncio.all_tasks()}
            names.append({name for name in running if name.startswith("delivery")})

    run(under_test, scenario)
    assert names == [set(), {"delivery 1"}, *[{"delivery 1", "delivery 3"}] * 2]


def test_what_waits_at_a_start_has_its_tasks(under_test: BrokerUnderTest) -> None:
    """Nobody sends anything more to these levels."""
    messages = [Message("orders", b"x", delay_level=level) for level in (3, 1, 2)]
    due = [each.deliver_at_ms for each in under_test.send(*messages)]
    under_test.restart()

    async def scenario(_: DeliveryTasks) -> None:
        await asyncio.sleep(11)

    run(under_test, scenario)
    under_test.sync()
    stored = [each.store_timestamp_ms for each in under_test.messages("orders")]
    # The loop rounds up what is left after the start.
    assert all(0 <= at - due_ms <= 1 for at, due_ms in zip(stored, sorted(due), strict=True))


def test_close_ends_all_tasks(under_test: BrokerUnderTest) -> None:
    """Also those that wait for their turn while delivery rests."""
    tried = fail_deliveries(under_test, FULL, times=100)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            delivery = DeliveryTasks(under_test.broker, under_test.clock, tasks)
            for level in (1, 1, 2, 18):
                send(under_test, delivery, level)
            await asyncio.sleep(6)
            delivery.close()

    run_with(under_test.clock, main())
    assert tried
