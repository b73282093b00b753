"""A client of HTTP/2 that does what no library would: odd headers, no window, resets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from struct import Struct, pack
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4
CANCEL: Final = 8
INITIAL_WINDOW: Final = 4
"""A setting: how much may be sent on a new stream."""
_FRAME: Final = Struct(">HBBBI")


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    length = len(payload)
    return _FRAME.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def headers(path: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """Of a call of gRPC; each as a literal that nobody remembers."""
    pairs = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *more,
    )
    return b"".join([b"\0" + _text(name) + _text(value) for name, value in pairs])


def _text(raw: bytes) -> bytes:
    """A length of up to 16,510 needs at most three bytes."""
    rest = len(raw) - 127
    if rest < 0:
        return bytes([len(raw)]) + raw
    if rest < 128:
        return bytes([127, rest]) + raw
    return bytes([127, rest & 127 | 128, rest >> 7]) + raw


def message(data: bytes) -> bytes:
    """A message of gRPC."""
    return pack(">BI", 0, len(data)) + data


class Http2:
    """One connection; window: what the other side may send on each stream at first."""

    def __init__(self, port: int, window: int = (1 << 16) - 1, seconds: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), seconds)
        self._held = b""
        self._stream = -1
        settings = frame(SETTINGS, 0, 0, pack(">HI", INITIAL_WINDOW, window))
        self.send(PREFACE + settings)

    def __enter__(self) -> Http2:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def call(self, path: str | bytes, data: bytes | None, *more: tuple[bytes, bytes]) -> int:
        """Begin a call with this request, or with none yet; its stream."""
        out, stream = self.calling(path, data, *more)
        self.send(out)
        return stream

    def calling(
        self, path: str | bytes, data: bytes | None, *more: tuple[bytes, bytes]
    ) -> tuple[bytes, int]:
        """The bytes of call(), to be sent with others."""
        self._stream += 2
        raw = path.encode() if isinstance(path, str) else path
        out = frame(HEADERS, END_HEADERS, self._stream, headers(raw, *more))
        if data is not None:
            out += frame(DATA, END_STREAM, self._stream, message(data))
        return out, self._stream

    def frames(self) -> Iterator[Frame]:
        """What comes, until the connection ends; settings and pings are answered."""
        while True:
            while len(self._held) >= _FRAME.size:
                high, low, kind, flags, stream = _FRAME.unpack_from(self._held)
                end = _FRAME.size + (high << 8 | low)
                if len(self._held) < end:
                    break
                payload, self._held = self._held[_FRAME.size : end], self._held[end:]
                if kind in (SETTINGS, PING) and not flags & ACK:
                    self.send(frame(kind, ACK, 0, payload if kind == PING else b""))
                yield Frame(kind, flags, stream, payload)
            if not (more := self.socket.recv(1 << 16)):
                return
            self._held += more

    def answer(self, stream: int) -> bytes:
        """All bytes of data on a stream, until it ends."""
        found = b""
        for each in self.frames():
            if each.stream == stream:
                found += each.payload if each.kind == DATA else b""
                if each.kind == RESET or each.flags & END_STREAM:
                    return found
        raise EOFError("the connection has ended")
