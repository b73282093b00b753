"""Answers a gRPC client that has come to the wrong port, so that its user reads which one is right.

Enough of HTTP/2 for that, and no more: settings, and one frame of headers that ends the call.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

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
