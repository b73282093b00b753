"""What a worker and the broker write to each other, over a pair of Unix sockets.

    frame = length (u32, of all that follows), kind (u8), number of the call (u64), content

    worker -> broker                              broker -> worker
    READY                                         START      what to listen on, as JSON
    CALL      who calls what, perhaps a request   READ       the next request is wanted
    MESSAGE   a request                           MESSAGE    an answer of several
    END       no request comes any more           RESULT     status, perhaps the only answer
    WRITTEN   an answer is on its way             KEYS       new TLS keys, as JSON
    TAKEN     a call is over, with its answer     CLOSE      connections to close, as JSON
    GONE      a call ended without its result     DRAIN      take no more calls, then end
    PONG                                          PING

The content of MESSAGE is the message as it travels in gRPC, so nothing here knows any call.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, TypeAlias, cast

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]
HEAD_BYTES_MAX: Final = 1 << 20
"""The most bytes of a frame beside its message: gRPC takes 16 KiB of metadata."""
ANSWER_BYTES_MAX: Final = (1 << 31) - 1
"""The longest message of protobuf."""
_HEADER: Final = Struct("<IBQ")
_NUMBERED: Final = _HEADER.size - 4
_CALL: Final = Struct("<dIB")
_RESULT: Final = Struct("<HBII")
_BINARY: Final = "-bin"
"""How the names of metadata end whose values are bytes."""
NO_DEADLINE: Final = -1.0


class Kind(IntEnum):
    READY = 1
    CALL = 2
    MESSAGE = 3
    END = 4
    WRITTEN = 5
    TAKEN = 6
    GONE = 7
    PONG = 8
    START = 9
    READ = 10
    RESULT = 11
    KEYS = 12
    CLOSE = 13
    DRAIN = 14
    PING = 15


KINDS: Final = {int(kind): kind for kind in Kind}


class FrameInvalid(Exception):
    """The other process does not keep to the format."""


class Began(NamedTuple):
    """A call that begins.  left_s: until its deadline.  first: its first request, if it is here."""

    path: str
    peer: str
    left_s: float | None
    metadata: Metadata
    first: bytes | None

    def to_bytes(self) -> bytes:
        head = _joined((self.path, self.peer), self.metadata)
        left_s = NO_DEADLINE if self.left_s is None else max(0.0, self.left_s)
        begin = _CALL.pack(left_s, len(head), self.first is not None)
        return b"".join((begin, head, self.first or b""))


class Result(NamedTuple):
    """How a call ends.  answer: its only one.  is_watched: TAKEN is wanted."""

    code: int = 0
    details: str = ""
    trailing: Metadata = ()
    answer: bytes | None = None
    is_watched: bool = False

    def to_bytes(self) -> bytes:
        flags = self.is_watched | (self.answer is not None) << 1
        head = self.details.encode("utf-8", "replace")
        trailing = _joined((), self.trailing)
        begin = _RESULT.pack(self.code, flags, len(head), len(trailing))
        return b"".join((begin, head, trailing, self.answer or b""))


def read_call(content: bytes) -> Began:
    left_s, size, has_first = _CALL.unpack_from(content)
    end = _CALL.size + size
    path, peer, *rest = content[_CALL.size : end].decode("utf-8", "surrogatepass").split("\0")
    first = content[end:] if has_first else None
    return Began(path, peer, None if left_s < 0 else left_s, _pairs(rest), first)


def read_result(content: bytes) -> Result:
    code, flags, details, trailing = _RESULT.unpack_from(content)
    begin, middle = _RESULT.size, _RESULT.size + details
    end = middle + trailing
    text = content[middle:end].decode("utf-8", "surrogatepass")
    return Result(
        code,
        content[begin:middle].decode(),
        _pairs(text.split("\0")) if text else (),
        content[end:] if flags & 2 else None,
        bool(flags & 1),
    )


def _joined(texts: Iterable[str], metadata: Metadata) -> bytes:
    parts = [*texts]
    for key, value in metadata:
        # No text of gRPC's metadata has a zero byte.
        parts += key, value if isinstance(value, str) else base64.b64encode(value).decode()
    return "\0".join(parts).encode("utf-8", "surrogatepass")


def _pairs(texts: list[str]) -> Metadata:
    return tuple(
        [
            (key, base64.b64decode(value) if key.endswith(_BINARY) else value)
            for key, value in zip(texts[::2], texts[1::2], strict=True)
        ]
    )


class Frames(asyncio.Protocol):
    """One end of the pair.  All frames of one turn of the loop are written at its end."""

    def __init__(self, message_bytes_max: int) -> None:
        self._frame_bytes_max = message_bytes_max + HEAD_BYTES_MAX
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._in = bytearray()

    def take_frame(self, kind: Kind, call: int, content: bytes) -> None:
        """A frame has come."""
        raise NotImplementedError

    def broken(self, reason: str) -> None:
        """The other process does not keep to the format; nothing more of it is read."""
        raise NotImplementedError

    def send_frame(self, kind: Kind, call: int = 0, content: bytes = b"") -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(_HEADER.pack(_NUMBERED + len(content), kind, call))
        if content:
            self._out.append(content)

    @property
    def waiting_bytes(self) -> int:
        """How many bytes the other process has not read."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an assert: uvloop's is of no class of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._take_all(data)
        except (FrameInvalid, ValueError, struct_error) as error:
            self.cut_off()
            self.broken(f"{type(error).__name__}: {error}")

    def cut_off(self) -> None:
        """Close this end at once."""
        if self._transport is not None:
            self._transport.abort()

    def _take_all(self, data: bytes) -> None:
        """Raises FrameInvalid, ValueError, struct.error."""
        buffer, at = self._in, 0
        buffer += data
        while len(buffer) - at >= _HEADER.size:
            size, number, call = _HEADER.unpack_from(buffer, at)
            kind = KINDS.get(number)
            if kind is None or not _NUMBERED <= size <= self._frame_bytes_max + _NUMBERED:
                raise FrameInvalid(f"kind {number} with {size} bytes")
            end = at + 4 + size
            if end > len(buffer):
                break
            content = bytes(memoryview(buffer)[at + _HEADER.size : end])
            at = end
            self.take_frame(kind, call, content)
        del buffer[:at]

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))
