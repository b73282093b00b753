"""One connection: bytes become requests, answers become bytes.

All frames that arrive together are begun together, and all answers of one turn of the loop are
written together.  A client that does not read its answers, or has too many requests without an
answer, is not read from until that changes.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from rmqlite.errors import Unavailable
from rmqlite.message import host_text, pack_host
from rmqlite.server.faces.remoting.grpc_refusal import PREFACE, GrpcRefusal
from rmqlite.wire.remoting.command import Command, server_request
from rmqlite.wire.remoting.frame import FrameDecoder, encode
from rmqlite.wire.remoting.limits import FRAME_BYTES_MAX

FRAMES_IN_FLIGHT_MAX: Final = 1_024
"""A connection with so many requests without an answer is not read from."""
UNREAD_BYTES_MAX: Final = 1 << 20
"""A client that has so many bytes of answers to read gets no more records until it has read."""
ASKED_MAX: Final = 1_024
"""How many requests of the broker a client may leave without an answer."""
_GRPC_BEGINS: Final = PREFACE[:4]

log = logging.getLogger(__name__)


class NotAnswered(Unavailable):
    """A client did not answer a request of the broker, or is gone."""

    code = "not-answered"
    response_code = 207


class Handling(Protocol):
    """What a connection calls."""

    def begin(self, connection: Connection, command: Command) -> None:
        """Begin a request; connection.answer() is called for each one."""
        ...

    def gone(self, connection: Connection) -> None:
        """The connection has ended."""
        ...


@dataclass(slots=True)
class Connections:
    """All connections of the face.  grpc_hint: where clients of rmqlite.v1 have to go."""

    handling: Handling
    connections_max: int
    bytes_max: int
    grpc_hint: str
    open: set[Connection] = field(default_factory=set)
    bytes: int = 0
    """Bytes of requests that are not answered, and of frames that are not complete."""

    def made(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self)


class Connection(asyncio.Protocol):
    """A client's connection.  born_host: its packed address, which stored messages keep."""

    def __init__(self, connections: Connections) -> None:
        self._all = connections
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._out: list[bytes] = []
        self._held = 0
        self._asked: dict[int, asyncio.Future[Command]] = {}
        self._opaque = 0
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._is_paused = False
        self._is_first = True
        self._refusal: GrpcRefusal | None = None
        self.in_flight = 0
        self.last_seen_s = self._loop.time()
        self.address = ""
        self.born_host = b""
        self.is_open = False

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._all.open) >= self._all.connections_max:
            self._transport.abort()
            return
        host, port, *_ = self._transport.get_extra_info("peername")
        host = host.partition("%")[0]
        self.address = host_text(host, port)
        self.born_host = pack_host(self.address)
        self._transport.set_write_buffer_limits(UNREAD_BYTES_MAX)
        self.is_open = True
        self._all.open.add(self)

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
        commands = self._decoder.feed(data)
        self._count_held()
        for command in commands:
            if command.is_answer:
                asked = self._asked.pop(command.opaque, None)
                if asked is not None and not asked.done():
                    asked.set_result(command)
                continue
            self.in_flight += 1
            self._all.bytes += len(command.body)
            self._all.handling.begin(self, command)
        if self._decoder.error is not None:
            log.info(
                "a connection is closed client=%s reason=%s", self.address, self._decoder.error
            )
            self.close()
        elif self._all.bytes > self._all.bytes_max and self._held:
            log.warning("a connection is closed, maxBytesInFlight is full client=%s", self.address)
            self.abort()
        else:
            self._regulate()

    def pause_writing(self) -> None:
        self._may_write.clear()
        self._regulate()

    def resume_writing(self) -> None:
        self._may_write.set()
        self._regulate()

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._all.open.discard(self)
        self._all.bytes -= self._held
        self._held = 0
        self._may_write.set()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(NotAnswered(f"the client {self.address} is gone"))
        self._asked.clear()
        self._all.handling.gone(self)

    # ---- the face's side

    def answer(self, request: Command, frame: bytes | None) -> None:
        """End a request.  frame: None if it gets no answer."""
        self.in_flight -= 1
        self._all.bytes -= len(request.body)
        if frame is not None and not request.is_one_way:
            self.write(frame)
        if self._is_paused:
            self._regulate()

    def write(self, frame: bytes) -> None:
        """Send a frame at the end of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def tell(self, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        """Send a request to which the client gives no answer."""
        if self.is_open:
            self._opaque += 1
            self.write(encode(server_request(code, self._opaque, ext, body, is_one_way=True)))

    async def ask(self, code: int, ext: dict[str, str], body: bytes, seconds: float) -> Command:
        """Send a request and return the client's answer.  Raises NotAnswered."""
        if not self.is_open or len(self._asked) >= ASKED_MAX:
            raise NotAnswered(f"the client {self.address} does not answer")
        self._opaque += 1
        opaque = self._opaque
        asked: asyncio.Future[Command] = self._loop.create_future()
        self._asked[opaque] = asked
        self.write(encode(server_request(code, opaque, ext, body, is_one_way=False)))
        try:
            async with asyncio.timeout(seconds):
                return await asked
        except TimeoutError:
            sentence = f"the client {self.address} did not answer within {seconds:g} s"
            raise NotAnswered(sentence) from None
        finally:
            self._asked.pop(opaque, None)

    @property
    def is_read(self) -> bool:
        """Has the client read most of its answers?"""
        return self._may_write.is_set()

    async def readable(self) -> None:
        """Return when the client has read most of its answers."""
        while not self._may_write.is_set():
            await self._may_write.wait()

    def close(self) -> None:
        """Close it after the answers that are on their way."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # ---- inside

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self.is_open:
            self.last_seen_s = self._loop.time()
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _refuse(self, refusal: GrpcRefusal, data: bytes) -> None:
        out, is_over = refusal.feed(data)
        self._transport.write(out)
        if is_over:
            self._transport.close()

    def _count_held(self) -> None:
        held = self._decoder.held_bytes
        self._all.bytes += held - self._held
        self._held = held

    def _regulate(self) -> None:
        """Read from the client only while it reads its answers and waits for few of them."""
        too_many = self.in_flight >= FRAMES_IN_FLIGHT_MAX or not self._may_write.is_set()
        too_many |= self.in_flight > 0 and self._all.bytes > self._all.bytes_max
        if too_many == self._is_paused or self._transport.is_closing():
            return
        self._is_paused = too_many
        if too_many:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
