"""Delivery on a loop whose time is the fake clock: exact, fair, never stuck."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from itertools import pairwise

import pytest

from rmqlite.kernel.process.delivery import RETRY_S_MAX, DeliveryTasks
from rmqlite.kernel.service.turns import TURNS
from rmqlite.kernel.words.errors import FlushFailed
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import SetTime
from tests.support.deliveries import FULL, fail_deliveries, run, send
from tests.support.loops import run_with


def stored_times(under_test: BrokerUnderTest) -> list[int]:
    under_test.sync()
    return [message.store_timestamp_ms for message in under_test.messages("orders")]


def test_a_message_is_delivered_in_the_millisecond_it_is_due(under_test: BrokerUnderTest) -> None:
    """P2 and P3: not a millisecond early, and no polling interval late."""
    due: list[int] = []

    async def scenario(delivery: DeliveryTasks) -> None:
        due.append(send(under_test, delivery, level=3))
        await asyncio.sleep(11)

    run(under_test, scenario)
    assert stored_times(under_test) == due


def test_an_earlier_message_of_another_level_is_not_waited_past(
    under_test: BrokerUnderTest,
) -> None:
    """Levels sleep on their own: a two-hour message keeps nobody waiting."""
    due: list[int] = []

    async def scenario(delivery: DeliveryTasks) -> None:
        due.append(send(under_test, delivery, level=18))
        due.append(send(under_test, delivery, level=1))
        await asyncio.sleep(2)
        assert under_test.broker.schedule.delivered == 1
        await asyncio.sleep(2 * 3600)

    run(under_test, scenario)
    assert stored_times(under_test) == sorted(due)


@pytest.mark.parametrize(("slice_ms", "together"), [(5, 1), (1.5, 2), (0.75, 3)])
def test_a_burst_leaves_in_slices_between_which_others_run(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch, slice_ms: float, together: int
) -> None:
    """P3 for all other calls: a backlog never holds the loop for longer than a few short slices."""
    elapsed, deliver = SetTime(), under_test.broker.deliver

    def timed(wait_queue: int) -> int | None:
        elapsed.s += slice_ms / 1000
        return deliver(wait_queue)

    monkeypatch.setattr("rmqlite.kernel.process.delivery.elapsed_s", elapsed)
    monkeypatch.setattr(under_test.broker, "deliver", timed)
    most = together * under_test.config.deliver_batch_max
    seen: list[int] = []

    async def scenario(delivery: DeliveryTasks) -> None:
        for _ in range(6):
            send(under_test, delivery, level=1, count=500)
        until = under_test.clock.now_ms() + 1_000
        await asyncio.sleep(1)
        while under_test.broker.schedule.delivered < 3_000:
            seen.append(under_test.broker.schedule.delivered)
            await asyncio.sleep(0)
        assert under_test.clock.now_ms() == until

    run(under_test, scenario)
    steps = [later - earlier for earlier, later in pairwise(seen)]
    assert max(steps) <= most
    assert len(set(seen)) >= 3_000 // most - 1
    # A call needs many turns of the loop; it should not need as many slices.
    assert min(list(Counter(seen).values())[1:]) >= TURNS


def test_a_level_rests_longer_after_every_failed_append_and_then_goes_on(
    under_test: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk is no reason to spin, nor to be late for long when there is space again."""
    caplog.set_level(logging.INFO)
    due: list[int] = []
    tried = fail_deliveries(under_test, FULL, times=6)

    async def scenario(delivery: DeliveryTasks) -> None:
        due.append(send(under_test, delivery, level=1))
        await asyncio.sleep(60)

    run(under_test, scenario)
    assert tried[0] == due[0]
    times = [*tried, *stored_times(under_test)]
    pauses_ms = [later - earlier for earlier, later in pairwise(times)]
    assert pauses_ms == [1_000, 2_000, 4_000, 8_000, 8_000, 8_000]
    assert pauses_ms[-1] == RETRY_S_MAX * 1000
    said = [each.getMessage() for each in caplog.records]
    assert said == [
        "delivery failed, it is tried again error=cannot write to commitlog: "
        "No space left on device",
        "deliveries were late level=1 messages=1 latest_ms=31000",
        "delivery continues failed_attempts=6",
    ]


def test_what_could_not_be_delivered_arrives_once_and_in_order(
    under_test: BrokerUnderTest,
) -> None:
    """What fell due while the disk was full does not overtake what fell due before."""
    fail_deliveries(under_test, FULL, times=3)
    due: list[int] = []

    async def scenario(delivery: DeliveryTasks) -> None:
        for _ in range(40):
            due.append(send(under_test, delivery, level=1))
            await asyncio.sleep(0.25)
        await asyncio.sleep(20)

    run(under_test, scenario)
    under_test.sync()
    kept = under_test.messages("orders")
    assert [message.prepared_transaction_offset for message in kept] == sorted(
        {message.prepared_transaction_offset for message in kept}
    )
    assert len(kept) == len(due)
    late_ms = [message.store_timestamp_ms - at for message, at in zip(kept, due, strict=True)]
    assert late_ms[0] == 7_000
    assert late_ms[-1] == 0


def test_a_failed_sync_is_not_tried_again(under_test: BrokerUnderTest) -> None:
    """The data of the sync may be gone: the task ends, and so does the broker."""
    failed = FlushFailed("cannot sync commitlog: Input/output error")

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            delivery = DeliveryTasks(under_test.broker, under_test.clock, tasks)
            send(under_test, delivery, level=1)
            fail_deliveries(under_test, failed, times=1)

    with pytest.raises(BaseExceptionGroup) as raised:
        run_with(under_test.clock, main())
    assert raised.value.exceptions == (failed,)
