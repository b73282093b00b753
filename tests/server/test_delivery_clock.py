"""Delivery while the machine's clocks are misused: exact for steps, a second for sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from rmqlite.kernel.process.delivery import DeliveryTasks
from rmqlite.kernel.words.clock import WAKE_MS_MAX
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest
from tests.support.clock import FakeMachine
from tests.support.loops import run_with
from tests.support.sends import sending
from tests.support.steps import done

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


class Stop(Exception):
    """Ends the task group of a test."""


def arrived_after_ms(
    broker: BrokerUnderTest, level: int, during: Callable[[FakeMachine], Awaitable[None]]
) -> int:
    """Send with a delay, do something, wait; return the real time that it took, sleep included."""
    machine = broker.clock.machine
    took: list[int] = []

    async def main() -> None:
        with suppress(BaseExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                done(sending(broker.broker, [Message("orders", b"x", delay_level=level)], 0))
                DeliveryTasks(broker.broker, broker.clock, tasks)
                sent_ns = machine.boot_ns()
                await during(machine)
                while not broker.broker.schedule.delivered:
                    await asyncio.sleep(0.001)
                took.append((machine.boot_ns() - sent_ns) // 1_000_000)
                raise Stop

    run_with(broker.clock, main())
    return took[0]


@pytest.mark.parametrize("step_ms", [1_000, -1_000, HOUR_MS, -HOUR_MS, YEAR_MS, -YEAR_MS])
def test_a_step_hastens_and_delays_nothing(under_test: BrokerUnderTest, step_ms: int) -> None:
    """No task sleeps by the wall clock."""

    async def during(machine: FakeMachine) -> None:
        await asyncio.sleep(5)
        machine.step_wall(step_ms)

    assert 10_000 <= arrived_after_ms(under_test, 3, during) <= 10_001


def test_what_came_due_in_a_sleep_arrives_within_a_second(under_test: BrokerUnderTest) -> None:
    """The loop's own time stood still: it would still wait for the rest of the delay."""

    async def during(machine: FakeMachine) -> None:
        await asyncio.sleep(5)
        machine.suspend(HOUR_MS)

    took_ms = arrived_after_ms(under_test, 3, during)
    assert 5_000 + HOUR_MS <= took_ms <= 5_000 + HOUR_MS + WAKE_MS_MAX + 1


def test_a_short_sleep_makes_nothing_late(under_test: BrokerUnderTest) -> None:
    """The machine is awake again in time, and the broker notices that."""

    async def during(machine: FakeMachine) -> None:
        await asyncio.sleep(1)
        machine.suspend(5_000)

    assert 10_000 <= arrived_after_ms(under_test, 3, during) <= 10_001
