"""The tasks that deliver, on a loop whose time is the fake clock, and deliveries that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from rmqlite.kernel.process.delivery import DeliveryTasks
from rmqlite.kernel.records.packed import Packed
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.message import Message
from rmqlite.kernel.words.names import TABLES_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.loops import run_with
from tests.support.sends import sending
from tests.support.steps import done


class Stop(Exception):
    """Ends the task group of a test."""


def run(under_test: BrokerUnderTest, scenario: Callable[[DeliveryTasks], Awaitable[None]]) -> None:
    """Run a scenario beside the delivery."""

    async def main() -> None:
        with suppress(BaseExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                delivery = DeliveryTasks(under_test.broker, under_test.clock, tasks)
                await scenario(delivery)
                raise Stop

    run_with(under_test.clock, main())


def send(under_test: BrokerUnderTest, delivery: DeliveryTasks, level: int, count: int = 1) -> int:
    """Send delayed messages, notify the tasks like a server; return the deliver times."""
    messages = tuple(Message("orders", b"x", delay_level=level) for _ in range(count))
    results = done(sending(under_test.broker, messages, queue_id=0))
    for wait_queue in under_test.heard.sooner:
        delivery.due_sooner(wait_queue)
    under_test.heard.sooner.clear()
    return results[-1].deliver_at_ms


FULL = StoreUnavailable("write to", "commitlog", "No space left on device", is_full=True)


def fail_deliveries(under_test: BrokerUnderTest, error: Exception, times: int) -> list[int]:
    """Let so many deliveries fail; return the times of the attempts."""
    append = under_test.store.append_packed
    tried: list[int] = []

    def failing(packed: Sequence[Packed]) -> None:
        if packed[0].queues[0][0] not in (*WAIT_TOPICS, TABLES_TOPIC) and len(tried) < times:
            tried.append(under_test.clock.now_ms())
            raise error
        append(packed)

    under_test.store.append_packed = failing  # type: ignore[method-assign]
    return tried


def most_in_a_second(done: list[tuple[int, int]]) -> int:
    """Deliveries are times and counts; of all windows of 1,000 ms that one can lay over them."""
    return max(sum(count for at, count in done if begin <= at < begin + 1_000) for begin, _ in done)
