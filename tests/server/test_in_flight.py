"""The bytes of all requests never exceed the limit, and no request is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any

import pytest

from rmqlite.kernel.words.errors import Overloaded
from rmqlite.protocols.grpc.in_flight import (
    ARRIVAL_S_MAX,
    LINE_MAX,
    WAIT_S_MAX,
    BytesInFlight,
    InFlight,
)
from tests.support.calls import turns_until
from tests.support.clock import FakeClock
from tests.support.loops import run_with

LONGEST = 1_000
LIMIT = 3 * LONGEST


def within(in_flight: InFlight) -> bool:
    return 0 <= in_flight.bytes <= LIMIT


async def arriving(data: bytes | None) -> bytes | None:
    await asyncio.sleep(0)
    return data


async def never() -> bytes | None:
    await asyncio.get_running_loop().create_future()
    return None


async def answered(in_flight: InFlight, read: Awaitable[bytes | None]) -> None:
    """A request that is answered as soon as it has arrived."""
    room = await in_flight.room()
    try:
        await room.receive(read)
    finally:
        room.give_back()


def run(main: Any) -> None:
    run_with(FakeClock(), main)


def test_a_request_takes_the_longests_room_and_keeps_its_own() -> None:
    """gRPC says how long a request is only when all of it is in memory."""

    async def main() -> None:
        in_flight = InFlight(LIMIT, LONGEST)
        room = await in_flight.room()
        assert in_flight.bytes == LONGEST
        assert await room.receive(arriving(b"x" * 10)) == b"x" * 10
        assert in_flight.bytes == 10
        room.give_back()
        assert in_flight.bytes == 0

    run(main())


@pytest.mark.parametrize("data", [None, b""])
def test_a_call_without_a_request_takes_no_room(data: bytes | None) -> None:
    """The call may last long after it: a stream whose requests have ended."""

    async def main() -> None:
        in_flight = InFlight(LIMIT, LONGEST)
        await (await in_flight.room()).receive(arriving(data))
        assert in_flight.bytes == 0

    run(main())


def test_a_request_without_room_waits_for_it_in_line() -> None:
    """Backpressure: gRPC reads no more of it than its beginning until it has its turn."""

    async def main() -> None:
        in_flight = InFlight(LIMIT, LONGEST)
        rooms = [await in_flight.room() for _ in range(3)]
        order: list[int] = []

        async def wait(number: int) -> BytesInFlight:
            room = await in_flight.room()
            order.append(number)
            return room

        waiting = [asyncio.create_task(wait(number)) for number in range(4)]
        await asyncio.sleep(0)
        assert not order
        # Two tenths are not enough for another one, three are.
        for room in rooms[:2]:
            await room.receive(arriving(b"x" * 400))
        await asyncio.sleep(0)
        assert order == [0]
        rooms[2].give_back()
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == [0, 1]
        assert within(in_flight)
        for room in rooms[:2]:
            room.give_back()
        await asyncio.wait(waiting[:3])
        assert order == [0, 1, 2]
        waiting[3].cancel()

    run(main())


def test_who_comes_later_does_not_overtake_the_line() -> None:
    """Else a large client could keep a small one out."""

    async def main() -> None:
        in_flight = InFlight(LONGEST, LONGEST)
        first = await in_flight.room()
        second = asyncio.create_task(in_flight.room())
        await asyncio.sleep(0)
        first.give_back()
        # There is room, but it is the second's.
        third = asyncio.create_task(in_flight.room())
        (await second).give_back()
        (await third).give_back()
        assert in_flight.bytes == 0

    run(main())


@pytest.mark.parametrize("turns", range(4))
def test_who_gives_up_in_line_leaves_the_turn_to_the_next(turns: int) -> None:
    """Also if it ends in the moment of its turn."""

    async def main() -> None:
        in_flight = InFlight(LONGEST, LONGEST)
        first = await in_flight.room()
        second, third = [asyncio.create_task(in_flight.room()) for _ in range(2)]
        for _ in range(turns):
            await asyncio.sleep(0)
        first.give_back()
        second.cancel()
        await asyncio.wait([second])
        (await third).give_back()
        assert in_flight.bytes == 0

    run(main())


def test_a_request_that_does_not_arrive_gives_way_when_others_wait() -> None:
    """A client that was stopped in the middle of its sends holds up nobody for long."""

    async def main() -> None:
        in_flight = InFlight(LIMIT, LONGEST)
        running = asyncio.create_task(in_flight.run())
        stuck = [asyncio.create_task(answered(in_flight, never())) for _ in range(3)]
        await asyncio.sleep(10 * ARRIVAL_S_MAX)
        assert not any(each.done() for each in stuck)
        began_s = asyncio.get_running_loop().time()
        await answered(in_flight, arriving(b"x"))
        assert asyncio.get_running_loop().time() - began_s < WAIT_S_MAX
        for each in stuck:
            with pytest.raises(Overloaded, match=f"maxBytesInFlight={LIMIT}"):
                await each
        assert in_flight.bytes == 0
        running.cancel()

    run(main())


def test_a_request_that_gets_no_room_is_refused_in_time() -> None:
    """The other requests still run: its client may try again, or use another broker."""

    async def main() -> None:
        in_flight = InFlight(LIMIT, LONGEST)
        running = asyncio.create_task(in_flight.run())
        rooms = [await in_flight.room() for _ in range(3)]
        for room in rooms:
            await room.receive(arriving(b"x" * LONGEST))
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(Overloaded, match=f"maxBytesInFlight={LIMIT}"):
            await in_flight.room()
        assert WAIT_S_MAX <= asyncio.get_running_loop().time() - began_s < WAIT_S_MAX + 2
        rooms[0].give_back()
        await answered(in_flight, arriving(b"x"))
        running.cancel()

    run(main())


def test_the_line_has_an_end() -> None:
    """gRPC already holds the beginning of each one that waits."""

    async def main() -> None:
        in_flight = InFlight(LONGEST, LONGEST)
        room = await in_flight.room()
        waiting = [
            asyncio.create_task(answered(in_flight, arriving(b"x"))) for _ in range(LINE_MAX)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await in_flight.room()
        room.give_back()
        await asyncio.gather(*waiting)
        assert in_flight.bytes == 0

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_limit_holds_and_everybody_is_answered(seed: int) -> None:
    """Requests of all lengths, slow ones, cancelled ones, in any order."""
    random = Random(seed)

    async def main() -> None:
        in_flight = InFlight(LIMIT, LONGEST)
        running = asyncio.create_task(in_flight.run())

        async def request() -> None:
            await asyncio.sleep(random.choice((0, 0.01, 1)))
            room = await in_flight.room()
            try:
                assert within(in_flight)
                data = bytes(random.randrange(LONGEST + 1))

                async def read() -> bytes | None:
                    await asyncio.sleep(random.choice((0, 0.01, 1, 100)))
                    return data

                await room.receive(read())
                assert within(in_flight)
                await asyncio.sleep(random.choice((0, 0.1)))
            finally:
                room.give_back()
                assert within(in_flight)

        tasks = [asyncio.create_task(request()) for _ in range(100)]
        for task in random.sample(tasks, 20):
            await asyncio.sleep(random.random())
            task.cancel()
        done, pending = await asyncio.wait(tasks, timeout=10_000)
        assert not pending
        for task in done:
            error = None if task.cancelled() else task.exception()
            assert error is None or isinstance(error, Overloaded), repr(error)
        assert in_flight.bytes == 0
        running.cancel()

    run(main())


def test_a_handler_that_is_cancelled_while_it_reads_gives_everything_back() -> None:
    """Its client has gone."""

    async def main() -> None:
        in_flight = InFlight(LIMIT, LONGEST)
        task = asyncio.create_task(answered(in_flight, never()))
        await turns_until(lambda: in_flight.bytes == LONGEST)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert in_flight.bytes == 0

    run(main())
