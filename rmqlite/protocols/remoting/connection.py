"""One connection: bytes become requests, answers become bytes.

All frames that arrive together are begun together, and all answers of one turn of the loop are
written together.  A client that does not read its answers, or has too many requests without an
answer, is not read from until that changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from rmqlite.kernel.words.message import host_text, pack_host
from rmqlite.protocols.remoting.bytes.command import Command, server_request
from rmqlite.protocols.remoting.bytes.fields import FRAME_BYTES_MAX
from rmqlite.protocols.remoting.bytes.frame import FrameDecoder, encode
from rmqlite.protocols.remoting.bytes.requests.request import RemotingRequest
from rmqlite.protocols.remoting.wrong_clients import PREFACE, GrpcRefusal, Trust, WrongSignatures

FRAMES_IN_FLIGHT_MAX: Final = 1_024
"""A connection with so many requests without an answer is not read from.  Parked pulls do not
count: one consumer has as many of them as it has queues; maxParkedPolls limits them."""
UNREAD_BYTES_MAX: Final = 1 << 20
"""A client that has so many bytes of answers to read gets no more records until it has read."""
AT_ONCE_MAX: Final = 32
"""After so many answers to what came in one read, other connections have their turns first."""
ASKED_MAX: Final = 1_024
"""How many requests of the broker a client may leave without an answer."""
WORTH_BYTES: Final = 16 << 10
"""So many bytes do not wait for other answers: the client works on them meanwhile."""
_GRPC_BEGINS: Final = PREFACE[:4]

Q = TypeVar("Q", bound=tuple[Any, ...])
log = logging.getLogger(__name__)


class NotAnswered(Exception):
    """A client did not answer a request of the broker, or is gone."""


class OwnRequests:
    """The requests of the broker on one connection."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        """By the number of the request."""
        self._opaque = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def request(self, code: int, ext: dict[str, str], body: bytes, *, is_one_way: bool) -> Command:
        """The next request."""
        self._opaque += 1
        return server_request(code, self._opaque, ext, body, is_one_way=is_one_way)

    async def answer_to(self, request: Command, peer: str, seconds: float) -> Command:
        """The answer to a request that is being sent.  Raises NotAnswered.

        peer: who was asked, for errors, such as "the client 10.0.0.7:4711".
        """
        waiting: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[request.opaque] = waiting
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError:
            sentence = f"{peer} did not answer within {seconds:g} s"
            raise NotAnswered(sentence) from None
        finally:
            self._waiting.pop(request.opaque, None)
            # The error that it may hold leads back to this frame, and so to the connection.
            del waiting

    def answered(self, answer: Command) -> None:
        """An answer has come, perhaps one that nobody waits for."""
        waiting = self._waiting.pop(answer.opaque, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def end(self, peer: str) -> None:
        """Whoever was asked is gone."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(NotAnswered(f"{peer} is gone"))
        self._waiting.clear()


class AnsweredRequest(NamedTuple):
    """A request of this size in bytes, and its answer."""

    request: Command
    size: int
    frame: bytes


class Handling(Protocol):
    """What a connection calls."""

    def begin(self, connection: ClientConnection, command: Command, size: int) -> None:
        """Begin a request of this size; connection.answer() is called for each one."""
        ...

    def gone(self, connection: ClientConnection) -> None:
        """The connection has ended."""
        ...


@dataclass(slots=True)
class Connections:
    """All connections of the protocol.  grpc_hint: where clients of rmqlite.v1 have to go."""

    handling: Handling
    connections_max: int
    bytes_max: int
    grpc_hint: str
    open: set[ClientConnection] = field(default_factory=set)
    bytes: int = 0
    """Bytes of requests that are not answered, and of frames that are not complete."""
    wrong_signatures: WrongSignatures = field(default_factory=WrongSignatures)
    without_room: set[ClientConnection] = field(default_factory=set)
    """Connections that are not read from until there is room again."""
    is_draining: bool = False
    _is_full: bool = False

    def made(self) -> ClientConnection:
        """The protocol of a new connection."""
        return ClientConnection(self)

    def admit(self, connection: ClientConnection) -> bool:
        """False if there are maxConnections already."""
        if len(self.open) < self.connections_max:
            self.open.add(connection)
            return True
        if not self._is_full:
            # Once, until one of the connections has ended.
            log.warning("connections are refused, maxConnections=%d", self.connections_max)
        self._is_full = True
        return False

    def ended(self, connection: ClientConnection) -> None:
        self.open.discard(connection)
        self.without_room.discard(connection)
        self._is_full = False

    def drain(self) -> None:
        """Read nothing more from any client; answers still go out."""
        self.is_draining = True
        for connection in self.open:
            connection.regulate()

    def give_back(self, size: int) -> None:
        """A request is answered: its bytes are free."""
        self.bytes -= size
        if self.without_room and self.bytes <= self.bytes_max:
            waiting, self.without_room = self.without_room, set()
            for connection in waiting:
                connection.regulate()

    def keep_room(self, connection: ClientConnection) -> None:
        """A connection may hold more than before of a frame that is not whole.  If no room is left,
        close the one that holds the most, whose bytes are free at once.

        If all room were held by such frames, none of them could be completed.
        """
        if not connection.held or self.bytes <= self.bytes_max:
            return
        longest = max(self.open, key=lambda each: each.held)
        reason = "maxBytesInFlight is full"
        log.warning("a connection is closed client=%s reason=%s", longest.address, reason)
        longest.abort()


class ClientConnection(asyncio.Protocol):
    """A client's connection.  born_host: its packed address, which stored messages keep."""

    def __init__(self, connections: Connections) -> None:
        self._all = connections
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._answered = 0
        """Requests that have ended since the last read."""
        self._bytes = 0
        self._asked = OwnRequests()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._reading = asyncio.Lock()
        self._parked: set[asyncio.Task[object]] = set()
        self._is_paused = False
        self._is_first = True
        self._refusal: GrpcRefusal | None = None
        self.in_flight = 0
        self.held = 0
        """Memory of frames that are not complete, or not begun."""
        self.last_seen_s = self._loop.time()
        self.trust = Trust(connections.wrong_signatures)
        self.address = ""
        self.born_host = b""
        self.is_open = False

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # None: the client is gone already.
        peer = self._transport.get_extra_info("peername")
        if peer is None or not self._all.admit(self):
            self._transport.abort()
            return
        host, port, *_ = peer
        host = host.partition("%")[0]
        self.address = host_text(host, port)
        self.born_host = pack_host(self.address)
        self._transport.set_write_buffer_limits(UNREAD_BYTES_MAX)
        self.is_open = True
        self.trust.begin(host, self.go_on)
        self.regulate()

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            return
        self.last_seen_s = self._loop.time()
        if self._is_first and data.startswith(_GRPC_BEGINS):
            self._refusal = GrpcRefusal(self._all.grpc_hint)
        self._is_first = False
        if self._refusal is not None:
            self._refuse(self._refusal, data)
            return
        self._begin_all(data)

    def _begin_all(self, data: bytes) -> None:
        self._answered = 0
        while self._begin(data):
            data = b""

    def _begin(self, data: bytes) -> bool:
        """Begin the requests that these bytes complete; may there be more of them to begin now?"""
        at_once = self.trust.frames_at_once
        commands = self._decoder.feed(data, at_once)
        self._hold(self._decoder.held_bytes)
        begin = self._all.handling.begin
        for command in commands:
            if command.is_answer:
                self._asked.answered(command)
                continue
            self.in_flight += 1
            size = command.held_bytes
            self._bytes += size
            self._all.bytes += size
            begin(self, command, size)
        if self._decoder.error is not None:
            log.info(
                "a connection is closed client=%s reason=%s", self.address, self._decoder.error
            )
            self.close()
            return False
        self._all.keep_room(self)
        self.regulate()
        return len(commands) == at_once and not self.trust.is_waiting

    def pause_writing(self) -> None:
        self._may_write.clear()
        self.regulate()

    def resume_writing(self) -> None:
        self._may_write.set()
        self.regulate()

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._all.ended(self)
        self._drop()
        self._all.give_back(self._bytes)
        self._bytes = 0
        self._may_write.set()
        self.trust.end()
        for task in self._parked:
            task.cancel()
        self._asked.end(f"the client {self.address}")
        self._all.handling.gone(self)

    # ---- the protocol's side

    def answer(self, request: Command, size: int, frame: bytes | None) -> None:
        """End a request of this size.  frame: None if it gets no answer."""
        if not self.is_open:
            return
        self._ended(1, size)
        if frame is not None and not request.is_one_way:
            self.write(frame)
        if self._is_paused:
            self.regulate()

    def answer_all(self, answers: Sequence[AnsweredRequest]) -> None:
        """End several requests, and send what is answered to them at once."""
        if not self.is_open:
            return
        self._ended(len(answers), sum([each.size for each in answers]))
        frames = [each.frame for each in answers if not each.request.is_one_way]
        self._out += frames
        self._out_bytes += sum(map(len, frames))
        self._flush()
        if self._is_paused:
            self.regulate()

    def write(self, frame: bytes) -> None:
        """Send a frame at the end of this turn of the loop, or at once if that is worth a write."""
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes >= WORTH_BYTES:
            self._flush()
        elif len(self._out) == 1:
            self._loop.call_soon(self._flush)

    def notify(self, row: RemotingRequest[Q, Any], fields: Q, body: bytes = b"") -> None:
        """Send a request to which the client gives no answer.

        A client that does not read gets none, or they would pile up.
        """
        if self.is_open and self.is_read:
            ext = row.fields.write(fields)
            self.write(encode(self._asked.request(row.code, ext, body, is_one_way=True)))

    async def ask(
        self, row: RemotingRequest[Q, Any], fields: Q, body: bytes = b"", *, seconds: float
    ) -> Command:
        """Send a request and return the client's answer.  Raises NotAnswered."""
        client = f"the client {self.address}"
        if not self.is_open or len(self._asked) >= ASKED_MAX:
            raise NotAnswered(f"{client} does not answer")
        ext = row.fields.write(fields)
        request = self._asked.request(row.code, ext, body, is_one_way=False)
        self.write(encode(request))
        return await self._asked.answer_to(request, client, seconds)

    @property
    def is_read(self) -> bool:
        """Has the client read most of its answers?"""
        return self._may_write.is_set()

    @property
    def answers_at_once(self) -> bool:
        """May a request be answered in the turn in which it came, also with records?"""
        is_first = self._answered < AT_ONCE_MAX and not self._reading.locked()
        return is_first and self.is_read

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Inside it the client has read most of its answers, and no other request of it reads
        records: so a client that does not read costs the memory of one answer."""
        async with self._reading:
            while not self.is_read:
                await self._may_write.wait()
            yield

    def without_body(self, request: Command) -> Command:
        """The same request, without its texts and its body, which nobody will read."""
        self._give_back(len(request.body))
        return request._replace(body=b"", remark="", language="")

    @contextmanager
    def parked(self, request: Command) -> Iterator[None]:
        """Inside it a request does not count as in flight, and ends when the connection does.

        Its fields were read: it loses them.
        """
        task = asyncio.current_task(self._loop)
        assert task is not None
        size = request.held_bytes
        request.ext.clear()
        self._parked.add(task)
        self.in_flight -= 1
        self._give_back(size)
        if self._is_paused:
            self.regulate()
        try:
            yield
        finally:
            self.in_flight += 1
            # It is answered next, with the size that it came with.
            self._give_back(-size)
            self._parked.discard(task)

    def regulate(self) -> None:
        """Read from the client only while it reads its answers and waits for few of them."""
        has_room = not self._bytes or self._all.bytes <= self._all.bytes_max
        if not has_room:
            self._all.without_room.add(self)
        is_paused = (
            not has_room
            or self._all.is_draining
            or self.in_flight >= FRAMES_IN_FLIGHT_MAX
            or not self.is_read
            or self.trust.is_waiting
        )
        if is_paused == self._is_paused or not self.is_open or self._transport.is_closing():
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close it after the answers that are on their way."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close it now.  What it holds is free at once, not when the loop says that it is lost."""
        self._drop()
        self._transport.abort()

    def go_on(self) -> None:
        """The wait after a wrong signature is over."""
        if self.is_open:
            self._begin_all(b"")

    # ---- inside

    def _ended(self, requests: int, size: int) -> None:
        """Requests of this size altogether are no longer in flight."""
        self.in_flight -= requests
        self._answered += requests
        self._give_back(size)

    def _give_back(self, size: int) -> None:
        """So many bytes of requests are free; those of a lost connection are already."""
        if self.is_open:
            self._bytes -= size
            self._all.give_back(size)

    def _flush(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if out and self.is_open:
            if self.is_read:
                self.last_seen_s = self._loop.time()
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _refuse(self, refusal: GrpcRefusal, data: bytes) -> None:
        out, is_over = refusal.feed(data)
        self._transport.write(out)
        if is_over:
            self._transport.close()
        self._hold(refusal.held_bytes)
        self._all.keep_room(self)

    def _hold(self, held: int) -> None:
        self._all.bytes += held - self.held
        self.held = held

    def _drop(self) -> None:
        """Free the bytes of frames that are not whole, also if a task still has the connection."""
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self._refusal = None
        self._all.give_back(self.held)
        self.held = 0
