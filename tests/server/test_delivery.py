"""Level tasks on a loop whose time is the fake clock: exact, fair, never stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise

from rmqlite.errors import StoreUnavailable
from rmqlite.message import Message
from rmqlite.requests import SendRequest
from rmqlite.server.delivery import RETRY_S, Delivery
from tests.support.brokers import BORN_HOST, BrokerUnderTest
from tests.support.loops import run_with


class Stop(Exception):
    """Ends the task group of a test."""


def run(under_test: BrokerUnderTest, scenario: Callable[[Delivery], Awaitable[None]]) -> None:
    """Run a scenario beside the level tasks."""

    async def main() -> None:
        with suppress(BaseExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                delivery = Delivery(under_test.broker, under_test.clock, tasks)
                await scenario(delivery)
                raise Stop

    run_with(under_test.clock, main())


def send(under_test: BrokerUnderTest, delivery: Delivery, level: int, count: int = 1) -> int:
    """Send delayed messages, tell the tasks as a server would; when they are due."""
    messages = tuple(Message("orders", b"x", delay_level=level) for _ in range(count))
    results = under_test.broker.send(SendRequest(messages, queue_id=0), BORN_HOST)
    for hastened in under_test.heard.sooner:
        delivery.due_sooner(hastened)
    under_test.heard.sooner.clear()
    return results[-1].deliver_at_ms


def stored_times(under_test: BrokerUnderTest) -> list[int]:
    under_test.sync()
    return [message.store_timestamp_ms for message in under_test.messages("orders")]


def test_a_message_is_delivered_in_the_millisecond_it_is_due(under_test: BrokerUnderTest) -> None:
    """P2 and P3: not a millisecond early, and no polling interval late."""
    due: list[int] = []

    async def scenario(delivery: Delivery) -> None:
        due.append(send(under_test, delivery, level=3))
        await asyncio.sleep(11)

    run(under_test, scenario)
    assert stored_times(under_test) == due


def test_an_earlier_message_of_another_level_is_not_waited_past(
    under_test: BrokerUnderTest,
) -> None:
    """Levels sleep on their own: a two-hour message keeps nobody waiting."""
    due: list[int] = []

    async def scenario(delivery: Delivery) -> None:
        due.append(send(under_test, delivery, level=18))
        due.append(send(under_test, delivery, level=1))
        await asyncio.sleep(2)
        assert under_test.broker.schedule.delivered == 1
        await asyncio.sleep(2 * 3600)

    run(under_test, scenario)
    assert stored_times(under_test) == sorted(due)


def test_a_burst_leaves_in_slices_between_which_others_run(under_test: BrokerUnderTest) -> None:
    """P3 for everybody else: a drain never holds the loop for longer than one slice."""
    seen: list[int] = []

    async def scenario(delivery: Delivery) -> None:
        for _ in range(3):
            send(under_test, delivery, level=1, count=1_000)
        until = under_test.clock.now_ms() + 1_000
        await asyncio.sleep(1)
        while under_test.broker.schedule.delivered < 3_000:
            seen.append(under_test.broker.schedule.delivered)
            await asyncio.sleep(0)
        assert under_test.clock.now_ms() == until

    run(under_test, scenario)
    steps = [later - earlier for earlier, later in pairwise(seen)]
    assert max(steps) <= under_test.config.deliver_batch_max
    assert len(set(seen)) >= 3_000 // under_test.config.deliver_batch_max - 1


def test_a_level_rests_after_a_failed_append_and_then_goes_on(under_test: BrokerUnderTest) -> None:
    """A full disk is no reason to spin, nor to lose the message or the task."""
    append = under_test.store.append
    failures = 2
    due: list[int] = []

    def failing(records):  # type: ignore[no-untyped-def]
        nonlocal failures
        if due and failures:
            failures -= 1
            raise StoreUnavailable("write to", "commitlog", "No space left on device")
        return append(records)

    async def scenario(delivery: Delivery) -> None:
        due.append(send(under_test, delivery, level=1))
        under_test.store.append = failing  # type: ignore[method-assign]
        await asyncio.sleep(1 + 3 * RETRY_S)

    run(under_test, scenario)
    assert failures == 0
    assert stored_times(under_test) == [due[0] + round(2 * RETRY_S * 1000)]
