"""Parked calls: woken by key, by time, by closing; never forgotten, never too many."""

from __future__ import annotations

import asyncio

import pytest

from rmqlite.kernel.service.waiting import PULLS_AT_ONCE, ParkedCalls
from rmqlite.kernel.words.errors import Overloaded
from tests.support.clock import FakeClock
from tests.support.loops import run_with

KEY = ("orders", 0)


def test_a_parked_call_is_woken_by_its_key() -> None:
    """No other key wakes it: readers of one queue do not look again for another's message."""
    clock = FakeClock()

    async def main() -> int:
        waiting = ParkedCalls("maxParkedPolls", 10)
        began_ms = clock.now_ms()
        parked = asyncio.create_task(waiting.wait(KEY, 60))
        other = asyncio.create_task(waiting.wait(("orders", 1), 60))
        await asyncio.sleep(1)
        waiting.wake([KEY])
        await parked
        assert not other.done()
        other.cancel()
        return clock.now_ms() - began_ms

    assert run_with(clock, main()) == 1_000


def test_a_parked_call_ends_when_its_time_is_up() -> None:
    """No message came: the call gets an empty answer, not a longer wait."""
    clock = FakeClock()

    async def main() -> int:
        began_ms = clock.now_ms()
        await ParkedCalls("maxParkedPolls", 10).wait(KEY, 15)
        return clock.now_ms() - began_ms

    assert run_with(clock, main()) == 15_000


def test_one_parked_call_too_many_is_refused() -> None:
    """The limit has a name, and the error says it."""

    async def main() -> None:
        waiting = ParkedCalls("maxParkedPolls", 1)
        parked = asyncio.create_task(waiting.wait(KEY, 60))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="maxParkedPolls=1"):
            await waiting.wait(KEY, 60)
        waiting.close()
        await parked

    run_with(FakeClock(), main())


def test_one_account_leaves_room_for_the_calls_of_others() -> None:
    """It may have half of them."""

    async def main() -> None:
        waiting = ParkedCalls("maxParkedPolls", 2)
        parked = asyncio.create_task(waiting.wait(KEY, 60, "one"))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="maxParkedPolls of one account=1"):
            await waiting.wait(KEY, 60, "one")
        other = asyncio.create_task(waiting.wait(KEY, 60, "other"))
        await asyncio.sleep(0)
        assert waiting.count == 2
        waiting.close()
        await asyncio.gather(parked, other)
        assert waiting.count == 0

    run_with(FakeClock(), main())


def test_a_call_that_is_cut_off_leaves_nothing_behind() -> None:
    """Clients come and go; their parked calls must not stay in memory."""

    async def main() -> int:
        waiting = ParkedCalls("maxParkedPolls", 10)
        parked = [asyncio.create_task(waiting.wait(KEY, 60)) for _ in range(3)]
        await asyncio.sleep(0)
        assert waiting.count == 3
        for task in parked:
            task.cancel()
        await asyncio.gather(*parked, return_exceptions=True)
        return waiting.count

    assert run_with(FakeClock(), main()) == 0


def test_closing_wakes_everyone_and_lets_nobody_in() -> None:
    """A broker that stops answers its parked calls at once."""
    clock = FakeClock()

    async def main() -> int:
        waiting = ParkedCalls("maxParkedPolls", 10)
        parked = [asyncio.create_task(waiting.wait((t, 0), 60)) for t in ("a", "b")]
        await asyncio.sleep(0)
        began_ms = clock.now_ms()
        waiting.close()
        await asyncio.gather(*parked)
        await waiting.wait(KEY, 60)
        return clock.now_ms() - began_ms

    assert run_with(clock, main()) == 0


def test_of_many_calls_a_few_are_woken_in_a_turn() -> None:
    """Five thousand at once would hold up everybody else; each is woken all the same."""

    async def main() -> None:
        waiting = ParkedCalls("maxParkedPolls", 1_000)
        parked = [asyncio.create_task(waiting.wait(KEY, 60)) for _ in range(500)]
        await asyncio.sleep(0)
        waiting.wake([KEY])
        # Who comes after the message has looked already.
        late = asyncio.create_task(waiting.wait(KEY, 60))
        before = woken = 0
        while woken < len(parked):
            await asyncio.sleep(0)
            woken = sum(task.done() for task in parked)
            assert woken - before <= PULLS_AT_ONCE
            before = woken
        assert not late.done()
        waiting.wake([KEY])
        await late

    run_with(FakeClock(), main())
