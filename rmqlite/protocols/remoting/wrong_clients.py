"""What clients cost that come wrongly: with wrong signatures, or speaking gRPC.

To check a signature takes the broker longer than it takes to send one again.  So after a wrong
one its connection waits: no frame is begun that has come already, and no more are read.  Each
further one in a row doubles the time; a right one ends it.  Whoever opens new connections instead
meets the limit of the host: beyond it, a new connection waits before its first request.

A gRPC client that has come to the wrong port is answered, so that its user reads which one is
right: with enough of HTTP/2 for that, and no more: settings, and one frame of headers that ends
the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Final

from rmqlite.features.accounts.gate.limits import Buckets
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.protocols.remoting.bytes.frame import ALL

PAUSE_S: Final = 0.01
"""After the first wrong signature."""
PAUSE_S_MAX: Final = 1.0
"""Less than the three seconds for which RocketMQ's clients wait for an answer."""
IN_A_ROW_MAX: Final = 7
"""From so many on the time no longer grows."""
FIRST_FRAMES_MAX: Final = 16
"""How many frames of a connection are taken together until one of them has a right signature.
After a wrong one they are taken one by one: what follows would be read for nothing."""
HOST_BURST: Final = 50
HOST_RATE: Final = 5.0
"""So many wrong signatures at once, and then a second, may come from a host before its new
connections wait: some clients of one machine whose secret has changed stay below."""
HOSTS_MAX: Final = 10_000
"""How many hosts are remembered; one that is forgotten begins again."""
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of an HTTP/2 client.  As a frame of remoting they would be far too long."""
BYTES_MAX: Final = 64 << 10
"""A client that sends more before its first call is not answered."""
_FRAME: Final = Struct(">HBBBI")
"""Length in 24 bits, type, flags, stream."""
_HEADERS: Final = 1
_SETTINGS: Final = 4
_LAST: Final = 0x04 | 0x01
"""Flags: the headers are complete, and so is the stream."""
_FAILED_PRECONDITION: Final = "9"


class WrongSignatures:
    """Those of all connections of a protocol."""

    def __init__(self, elapsed: Callable[[], float] = elapsed_s) -> None:
        self._elapsed = elapsed
        self._hosts = Buckets(HOST_RATE, HOST_BURST, HOSTS_MAX)

    def note(self, host: str, in_a_row: int) -> float:
        """Note a wrong signature, and how many its connection has brought in a row; the seconds
        that the connection waits."""
        self._hosts.take(host, 1, self._elapsed())
        return min(PAUSE_S_MAX, PAUSE_S * (1 << min(in_a_row - 1, IN_A_ROW_MAX)))

    def is_flooding(self, host: str) -> bool:
        """Do new connections of this host wait?"""
        return self._hosts.left(host, self._elapsed()) < 1


class Trust:
    """How far one connection is trusted.  go_on: called when it need not wait any longer.

    Only a wait holds go_on, which leads back to the connection: else nothing but the search for
    cycles, which is rare, would free a connection that has ended.
    """

    def __init__(self, signatures: WrongSignatures) -> None:
        self._signatures = signatures
        self._host = ""
        self._wrong = 0
        """Wrong signatures in a row."""
        self._timer: asyncio.TimerHandle | None = None
        self.frames_at_once = FIRST_FRAMES_MAX
        """How many frames are decoded together; ALL once a signature was right."""

    @property
    def is_waiting(self) -> bool:
        return self._timer is not None

    def begin(self, host: str, go_on: Callable[[], None]) -> None:
        """The connection is open."""
        self._host = host
        if self._signatures.is_flooding(host):
            self.frames_at_once = 1
            self._wait(PAUSE_S_MAX, go_on)

    def right(self) -> None:
        """A signature was right, or none is asked for."""
        self.frames_at_once = ALL
        self._wrong = 0

    def wrong(self, go_on: Callable[[], None]) -> None:
        """A signature was wrong."""
        self.frames_at_once = 1
        self._wrong += 1
        self._wait(self._signatures.note(self._host, self._wrong), go_on)

    def end(self) -> None:
        """The connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, seconds: float, go_on: Callable[[], None]) -> None:
        self.end()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._over, go_on)

    def _over(self, go_on: Callable[[], None]) -> None:
        self._timer = None
        go_on()


class GrpcRefusal:
    """One connection of a gRPC client."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._held = b""
        self._is_begun = False

    @property
    def held_bytes(self) -> int:
        """How many bytes are kept."""
        return len(self._held)

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """What to send now, and whether the connection may be closed after that."""
        if len(self._held) + len(data) > BYTES_MAX:
            self._held = b""
            return b"", True
        self._held += data
        if not self._is_begun:
            if len(self._held) < len(PREFACE):
                return b"", not PREFACE.startswith(self._held)
            self._held = self._held[len(PREFACE) :]
            self._is_begun = True
            begin, _ = self.feed(b"")
            return _frame(_SETTINGS, 0, 0, b"") + begin, bool(begin)
        while len(self._held) >= _FRAME.size:
            high, low, kind, _, stream = _FRAME.unpack_from(self._held)
            end = _FRAME.size + (high << 8 | low)
            if kind == _HEADERS:
                return _frame(_HEADERS, _LAST, stream, self._headers()), True
            if len(self._held) < end:
                break
            self._held = self._held[end:]
        return b"", False

    def _headers(self) -> bytes:
        pairs = {
            ":status": "200",
            "content-type": "application/grpc",
            "grpc-status": _FAILED_PRECONDITION,
            "grpc-message": self._text,
        }
        # Each as a literal with a new name, which the receiver's table does not keep.
        return b"".join([b"\0" + _literal(name) + _literal(text) for name, text in pairs.items()])


def _literal(text: str) -> bytes:
    raw = text.encode("ascii")
    assert len(raw) < 0x7F
    return bytes([len(raw)]) + raw


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    length = len(payload)
    return _FRAME.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload
