"""Limits the bytes of requests that the broker holds at once to maxBytesInFlight.

gRPC says how long a request is only when all of it is in memory.  So a request first takes room
for the longest one that gRPC accepts, then it is read, and then it gives back the room that it
does not need; it keeps its own length until it is answered.  A request without room waits in
line: until it is read, gRPC holds only its beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from rmqlite.kernel.words.errors import Overloaded
from rmqlite.protocols.grpc.unread import Unread

LIMIT: Final = "maxBytesInFlight"
LINE_MAX: Final = 1_000
"""How many requests may wait for room.  gRPC holds up to 64 KiB of each."""
ARRIVAL_S_MAX: Final = 5.0
"""How long a request may take to arrive while others wait for room."""
WAIT_S_MAX: Final = 15.0
"""How long a request waits for room: until then, requests that do not arrive have ended."""
LOOK_S: Final = 1.0


class BytesInFlight:
    """The bytes that one request has taken; call give_back() when it is answered."""

    __slots__ = ("_in_flight", "bytes")

    def __init__(self, in_flight: InFlight, size: int) -> None:
        self._in_flight = in_flight
        self.bytes = size

    async def receive(self, read: Awaitable[bytes | None]) -> bytes | None:
        """Read the request and shrink the room to its length; None if no request comes.

        Raises Overloaded if the request is too slow and others wait.
        """
        in_flight, deadline = self._in_flight, asyncio.timeout(None)
        in_flight.arriving[deadline] = asyncio.get_running_loop().time()
        try:
            async with deadline:
                data = await read
        except TimeoutError:
            raise in_flight.overloaded() from None
        finally:
            del in_flight.arriving[deadline]
        self._shrink(len(data) if data else 0)
        return data

    def give_back(self) -> None:
        """Free the room: the request is answered or has failed."""
        self._shrink(0)

    def _shrink(self, size: int) -> None:
        self._in_flight.give_back(self.bytes - size)
        self.bytes = size


class InFlight:
    """The bytes of all requests.

    request_bytes_max: the longest request that gRPC accepts; at most the limit.
    """

    def __init__(self, limit: int, request_bytes_max: int) -> None:
        self._limit = limit
        self._request_bytes_max = request_bytes_max
        self._line: dict[asyncio.Future[bool], float] = {}
        """The requests that wait for room, in order, and since when."""
        self.arriving: dict[asyncio.Timeout, float] = {}
        """The requests that are being read, and since when."""
        self.bytes = 0
        self.unread = Unread(limit)
        """The bytes of answers, which have the same limit for themselves."""

    async def room(self) -> BytesInFlight:
        """Room for a request, perhaps after a wait.  Raises Overloaded."""
        if self._line or not self._has_room():
            await self._turn()
        else:
            self.bytes += self._request_bytes_max
        return BytesInFlight(self, self._request_bytes_max)

    def taken(self, size: int) -> BytesInFlight:
        """Room for bytes that are here already: they may pass the limit, and others wait."""
        self.bytes += size
        return BytesInFlight(self, size)

    def give_back(self, size: int) -> None:
        """Free this many bytes and let the next request in line take them."""
        self.bytes -= size
        self._next()

    async def run(self) -> None:
        """Keep the line moving until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
            await self.unread.look()

    def look(self) -> None:
        """While requests wait for room, end those that arrive too slowly or wait too long."""
        if not self._line:
            return
        now_s = asyncio.get_running_loop().time()
        for deadline, since_s in self.arriving.items():
            if now_s - since_s >= ARRIVAL_S_MAX and deadline.when() is None:
                deadline.reschedule(now_s)
        for turn, since_s in self._line.items():
            if now_s - since_s >= WAIT_S_MAX and not turn.done():
                turn.set_result(False)

    def overloaded(self) -> Overloaded:
        return Overloaded(LIMIT, self._limit)

    def _has_room(self) -> bool:
        return self.bytes + self._request_bytes_max <= self._limit

    async def _turn(self) -> None:
        """Wait in line, then take the room."""
        if len(self._line) >= LINE_MAX:
            raise self.overloaded()
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        self._line[turn] = loop.time()
        try:
            has_turn = await turn
            if has_turn:
                self.bytes += self._request_bytes_max
        finally:
            # Also if the caller is gone: then the next in line may go.
            del self._line[turn]
            self._next()
        if not has_turn:
            raise self.overloaded()

    def _next(self) -> None:
        """Let the first in line go if there is room; it then calls this for the next one."""
        first = next(iter(self._line), None)
        if first is not None and not first.done() and self._has_room():
            first.set_result(True)
