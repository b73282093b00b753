"""Limits the bytes that calls hold at once to maxBytesInFlight: requests, and unread answers.

gRPC says how long a request is only when all of it is in memory.  So a request first takes room
for the longest one that gRPC accepts, then it is read, and then it gives back the room that it
does not need; it keeps its own length until it is answered.  A request without room waits in
line: until it is read, gRPC holds only its beginning.

gRPC keeps an answer until the client's window has room for it, however long that takes.  So a long
answer is made only when its client has taken most of the former ones, and one at a time for each
connection; that also gives connections their turns.  Answers of all connections together stay
below maxBytesInFlight, too.  A connection that takes nothing is closed after a time, and earlier
if others wait because of it: gRPC has no way to end a call whose answer waits.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import Overloaded
from rmqlite.kernel.words.message import host_text

UNREAD_BYTES_MAX: Final = 4 << 20
"""A client that has not taken so many bytes gets no further answer until it has."""
LONGEST_BYTES: Final = 8 << 20
"""Taken for the length of an answer that is being made."""
SHORT_BYTES_MAX: Final = 4 << 10
"""Up to this length an answer costs less than its call, of which there are limits, too."""
"""How long a call waits until its client, or the others, have taken what they got."""
TAKE_S_MAX: Final = 10.0
"""How long a connection may take nothing while others wait for room."""
UNREAD_S_MAX: Final = 120.0
"""How long it may in any case."""
OTHERS_SHARE: Final = 3
"""Calls that come in get so many times as long as the answers that are made meanwhile."""
LET_IN_S_MAX: Final = 0.05
QUIET_TURNS: Final = 8
"""If no call comes in for so many turns of the loop, none waits."""
_DESCRIPTORS: Final = Path("/dev/fd")
log = logging.getLogger(__name__)
LIMIT: Final = "maxBytesInFlight"
LINE_MAX: Final = 1_000
"""How many requests may wait for room.  gRPC holds up to 64 KiB of each."""
ARRIVAL_S_MAX: Final = 5.0
"""How long a request may take to arrive while others wait for room."""
WAIT_S_MAX: Final = 15.0
"""How long a request waits for room: until then, requests that do not arrive have ended."""
LOOK_S: Final = 1.0
End = Callable[[Collection[str]], Awaitable[None]]
"""Closes the connections to these peers."""


class _Connection:
    """bytes: of its answers.  moved_s: when they became more than none, or less, the last time."""

    __slots__ = ("bytes", "is_stalled", "lock", "moved_s", "users", "waiting", "work")

    def __init__(self) -> None:
        self.bytes = 0
        self.moved_s = 0.0
        self.is_stalled = False
        """Has a call waited in vain since anything was taken?"""
        self.users = 0
        self.lock = asyncio.Lock()
        """Held by the call that makes a long answer, or waits for room for it."""
        self.work = asyncio.Lock()
        self.waiting: asyncio.Future[None] | None = None
        """The call that waits until the client has taken more; only who has the lock does."""


class Unread:
    """The answers of all connections."""

    def __init__(self, limit: int, end: End | None = None) -> None:
        """end: closes connections, if this process does not have them."""
        self._limit = limit
        self._end = end or end_in_thread
        self._connections: dict[str, _Connection] = {}
        """By peer."""
        self._line: dict[_Connection, asyncio.Future[None]] = {}
        """Those that wait for room that others have taken."""
        self._is_stalled = False
        self._turn = asyncio.Lock()
        self._even_at_s = 0.0
        """When other calls have had their share of the time since the last answer was made."""
        self.begun = 0
        """How many calls have begun."""
        self.bytes = 0
        """Of all, and of those that are being made."""

    def connection(self, peer: str) -> _Connection:
        """Call leave() once for each call of this."""
        found = self._connections.get(peer)
        if found is None:
            found = self._connections[peer] = _Connection()
        found.users += 1
        return found

    def leave(self, peer: str, connection: _Connection) -> None:
        connection.users -= 1
        if not connection.users:
            del self._connections[peer]

    def count(self, connection: _Connection, more: int) -> None:
        """A connection has so many more bytes to take, or less."""
        if not more:
            return
        if more < 0 or not connection.bytes:
            connection.moved_s = asyncio.get_running_loop().time()
        connection.bytes += more
        if more > 0:
            self.bytes += more
            return
        connection.is_stalled = False
        waiting = connection.waiting
        if waiting is not None and not waiting.done() and self._may_more(connection):
            waiting.set_result(None)
        self._free(-more)

    def has_room(self, connection: _Connection, size: int) -> bool:
        """May a connection be given so many bytes more at once?"""
        return self._may_more(connection) and self.bytes + size <= self._limit

    @asynccontextmanager
    async def making(self, connection: _Connection) -> AsyncIterator[None]:
        """Inside it a connection makes an answer, when there is room for it.  Raises Overloaded."""
        async with connection.lock:
            while not self._may_more(connection):
                await self._wait(connection)
            while not self._has_room():
                await self._wait_in_line(connection)
            self.bytes += LONGEST_BYTES
            self._next()
            try:
                async with self.working(connection):
                    yield
            finally:
                self._free(LONGEST_BYTES)

    @asynccontextmanager
    async def working(self, connection: _Connection) -> AsyncIterator[None]:
        """Inside it a call works on its answer; of each connection one at a time does."""
        async with connection.work:
            await self._let_in()
            began_s = elapsed_s()
            yield
            now_s = elapsed_s()
            even_s = max(self._even_at_s, now_s) + OTHERS_SHARE * (now_s - began_s)
            self._even_at_s = min(even_s, now_s + LET_IN_S_MAX)

    async def turn(self, connection: _Connection) -> None:
        """Return when the client has taken most of its answers.  Raises Overloaded."""
        while not self._may_more(connection):
            async with connection.lock:
                if not self._may_more(connection):
                    await self._wait(connection)

    async def look(self) -> None:
        """Close connections that take nothing."""
        now_s = asyncio.get_running_loop().time()
        most_s = TAKE_S_MAX if self._line else UNREAD_S_MAX
        peers = [
            peer
            for peer, each in self._connections.items()
            if each.bytes and now_s - each.moved_s >= most_s
        ]
        if not peers:
            return
        for peer in peers:
            reason = f"it has taken no answer for {most_s:.0f} s"
            log.warning("a connection is closed client=%s reason=%s", peer, reason)
        await self._end(peers)

    async def _let_in(self) -> None:
        """While calls come in, let them, until they have had their share of the time.

        gRPC hands over one call after the other, in the order in which they came, and needs several
        turns of the loop for each: so who has begun a thousand would keep out all others for as
        long as it takes to answer them.
        """
        if elapsed_s() >= self._even_at_s:
            return
        async with self._turn:
            while elapsed_s() < self._even_at_s:
                before = self.begun
                for _ in range(QUIET_TURNS):
                    await asyncio.sleep(0)
                if self.begun == before:
                    return

    def _overloaded(self) -> Overloaded:
        return Overloaded(LIMIT, self._limit)

    @staticmethod
    def _may_more(connection: _Connection) -> bool:
        return connection.bytes <= UNREAD_BYTES_MAX

    def _has_room(self) -> bool:
        return not self.bytes or self.bytes + LONGEST_BYTES <= self._limit

    async def _wait(self, connection: _Connection) -> None:
        """Wait until the client has taken some of its answers."""
        if connection.is_stalled:
            raise self._overloaded()
        connection.waiting = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await connection.waiting
        except TimeoutError:
            connection.is_stalled = True
            raise self._overloaded() from None
        finally:
            connection.waiting = None

    async def _wait_in_line(self, connection: _Connection) -> None:
        if self._is_stalled:
            raise self._overloaded()
        turn = self._line[connection] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await turn
        except TimeoutError:
            self._is_stalled = True
            raise self._overloaded() from None
        finally:
            del self._line[connection]
            if turn.done():
                self._next()

    def _free(self, size: int) -> None:
        self.bytes -= size
        self._is_stalled = False
        self._next()

    def _next(self) -> None:
        """Let the first in line go if there is room; it then calls this for the next one."""
        first = next(iter(self._line.values()), None)
        if first is not None and not first.done() and self._has_room():
            first.set_result(None)


class Answering:
    """The answer of one call."""

    __slots__ = ("_connection", "_held", "_peer", "_unread")

    def __init__(self, unread: Unread, peer: str) -> None:
        self._unread = unread
        self._peer = peer
        self._held = 0
        self._connection: _Connection | None = None
        unread.begun += 1

    def hold(self, size: int) -> None:
        """The answer has so many bytes from now on, until the call ends."""
        self._unread.count(self._own(), size - self._held)
        self._held = size

    def has_room(self, size: int) -> bool:
        """May the answer have so many bytes more at once?"""
        return self._unread.has_room(self._own(), size)

    def release(self, _: Any = None) -> None:
        """The answer is taken, or the connection is lost."""
        if self._connection is not None:
            self.hold(0)
            self._unread.leave(self._peer, self._connection)
            self._connection = None

    @asynccontextmanager
    async def making(self) -> AsyncIterator[Callable[[int], None]]:
        """Inside it a long answer is made; hold() is called with its length, or an estimate."""
        async with self._unread.making(self._own()):
            yield self.hold

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with self._unread.working(self._own()):
            yield

    async def turn(self) -> None:
        """Return when the client has taken most of its answers.  Raises Overloaded."""
        known = self._unread._connections.get(self._peer)
        if known is not None and known.bytes > UNREAD_BYTES_MAX:
            await self._unread.turn(self._own())

    def _own(self) -> _Connection:
        if self._connection is None:
            self._connection = self._unread.connection(self._peer)
        return self._connection


ANSWERING: Final[ContextVar[Answering | None]] = ContextVar("answering", default=None)
"""The answer of the running call."""


@asynccontextmanager
async def making() -> AsyncIterator[Callable[[int], None] | None]:
    """Inside it the running call makes a long answer; it may wait before.  Raises Overloaded."""
    answering = ANSWERING.get()
    if answering is None:
        yield None
        return
    async with answering.making() as made:
        yield made


@asynccontextmanager
async def working() -> AsyncIterator[None]:
    """Inside it the running call works on an answer for which it has room; it waits for its turn,
    but not for its client."""
    answering = ANSWERING.get()
    if answering is None:
        yield
        return
    async with answering.working():
        yield


def end_connections(peers: Collection[str]) -> None:
    """Shut down this process's connections to these peers of gRPC, "ipv4:10.0.0.7:4711"."""
    wanted = {peer_address(peer) for peer in peers}
    for each in tuple(_DESCRIPTORS.iterdir()):
        with (
            suppress(OSError),
            # A copy; an address of IPv4 has room in this family, too.
            socket.fromfd(int(each.name), socket.AF_INET6, socket.SOCK_STREAM) as end,
        ):
            name: Any = end.getpeername()
            if not isinstance(name, tuple) or not isinstance(name[0], str):
                continue
            host = name[0].removeprefix("::ffff:").partition("%")[0]
            if host_text(host, name[1]) in wanted:
                end.shutdown(socket.SHUT_RDWR)


async def end_in_thread(peers: Collection[str]) -> None:
    """The same, beside the loop."""
    await asyncio.to_thread(end_connections, peers)


def peer_address(peer: str) -> str:
    """The address of a gRPC peer, such as "ipv6:%5B::1%5D:5000"."""
    return peer.partition(":")[2].replace("%5B", "[").replace("%5D", "]")


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

    request_bytes_max: the longest request that gRPC accepts; at most the limit.  end: see Unread.
    """

    def __init__(self, limit: int, request_bytes_max: int, end: End | None = None) -> None:
        self._limit = limit
        self._request_bytes_max = request_bytes_max
        self._line: dict[asyncio.Future[bool], float] = {}
        """The requests that wait for room, in order, and since when."""
        self.arriving: dict[asyncio.Timeout, float] = {}
        """The requests that are being read, and since when."""
        self.bytes = 0
        self.unread = Unread(limit, end)
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
