"""One worker as the broker sees it: its process, the pair of sockets, and the calls it relays."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from typing import Final

from rmqlite.protocols.shared.tls import Pem
from rmqlite.protocols.workers.frames import Began, FrameInvalid, Frames, Kind, read_call
from rmqlite.protocols.workers.relayed import Beginning, RelayedCall

UNREAD_BYTES_MAX: Final = 16 << 20
"""How many bytes of requests, beside those that a handler has asked for, may wait in the broker."""
log = logging.getLogger(__name__)


class WorkerLink(Frames):
    """message_bytes_max: of a request.  waiting_bytes_max: of what the worker has not read."""

    def __init__(
        self,
        beginning: Beginning,
        *,
        calls_max: int,
        message_bytes_max: int,
        waiting_bytes_max: int,
    ) -> None:
        super().__init__(message_bytes_max)
        self._beginning = beginning
        self._calls_max = calls_max
        self._waiting_bytes_max = waiting_bytes_max
        self._unread_bytes_max = UNREAD_BYTES_MAX + 20 * message_bytes_max
        self._unread = 0
        self._calls: dict[int, RelayedCall] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self.ready = asyncio.Event()
        self.lost = asyncio.Event()
        self.keys: Pem | None = None
        """The last TLS keys that it was sent."""
        self.unanswered = 0
        """How many pings in a row it has not answered."""

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def answers(self) -> bool:
        return self.ready.is_set() and not self.lost.is_set()

    async def start_process(self) -> None:
        """Start the process.  Raises OSError."""
        own, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await asyncio.to_thread(_started, theirs)
                own.setblocking(False)
                await self._loop.connect_accepted_socket(lambda: self, own)
            except BaseException:
                own.close()
                self.kill()
                raise

    def ping(self) -> None:
        self.unanswered += 1
        self.send_frame(Kind.PING)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        self.cut_off()

    async def reap(self) -> None:
        """Wait for the end of a process that is killed or ends."""
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)

    def send_frame(self, kind: Kind, call: int = 0, content: bytes = b"") -> None:
        if self.lost.is_set():
            return
        super().send_frame(kind, call, content)
        if self.waiting_bytes > self._waiting_bytes_max:
            self.broken(f"{self.waiting_bytes} bytes wait for it")

    # ---- frames of the worker

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._beginning.begin_some()

    def take_frame(self, kind: Kind, call: int, content: bytes) -> None:
        if kind is Kind.CALL:
            self._begin(call, read_call(content))
        elif call:
            self._count(len(content))
            found = self._calls.get(call)
            if found is not None:
                found.take_frame(kind, content)
            else:
                self.taken(len(content))
        elif kind is Kind.PONG:
            self.unanswered = 0
        elif kind is Kind.READY:
            self.ready.set()
        else:
            raise FrameInvalid(f"{kind.name} from a worker")

    def _begin(self, number: int, began: Began) -> None:
        if len(self._calls) >= self._calls_max or number in self._calls:
            raise FrameInvalid(f"call {number} beside {len(self._calls)}")
        call = self._calls[number] = RelayedCall(self, number, began)
        self._count(call.size)
        self._beginning.add_call(call)

    def _count(self, size: int) -> None:
        self._unread += size
        if self._unread > self._unread_bytes_max:
            raise FrameInvalid(f"{self._unread} bytes of requests wait")

    def taken(self, size: int) -> None:
        self._unread -= size

    def forget(self, number: int) -> None:
        self._calls.pop(number, None)

    def broken(self, reason: str) -> None:
        log.error("a gRPC worker is killed pid=%d reason=%s", self.pid, reason)
        self.kill()

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost.set()
        for call in [*self._calls.values()]:
            call.end_call()


def _started(theirs: socket.socket) -> subprocess.Popen[bytes]:
    number = theirs.fileno()
    command = [sys.executable, "-m", "rmqlite.protocols.workers.worker", str(number)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=[number], start_new_session=True
    )
