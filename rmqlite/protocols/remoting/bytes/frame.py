"""Bytes <-> commands.

A frame, all numbers big-endian:

    i32  length   of all that follows
    i8   spelling of the header: 0 JSON, 1 binary
    u24  length of the header
         header
         body     the rest

The decoder takes bytes as they come and gives commands.  It keeps only the beginning of a frame
that is not complete, and never makes room for bytes that have not come: a length is only a claim.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from rmqlite.kernel.compiled import only_in_c
from rmqlite.protocols.remoting.bytes.command import (
    SERVER_LANGUAGE,
    SERVER_VERSION,
    Command,
    FrameError,
)
from rmqlite.protocols.remoting.bytes.header import (
    read_binary_header,
    read_json_header,
    write_binary_header,
    write_json_header,
)
from rmqlite.protocols.remoting.bytes.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX

ALL: Final = -1
_START: Final = Struct(">iI")
"""Length, and the mark: spelling and length of the header."""
_LENGTH_BYTES: Final = 4
_MARK_BYTES: Final = 4
_BINARY: Final = 1
_HEADER_BITS: Final = 24
_HEADER_MASK: Final = (1 << _HEADER_BITS) - 1


class FrameDecoder:
    """What has come on one connection and is not yet a whole frame.

    error: why the connection must be closed, once bytes have come that are no frame.  The
    commands before them are good; nothing after them is read.
    """

    __slots__ = ("_frame_bytes_max", "_held", "_needed", "error")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = min(frame_bytes_max, FRAME_BYTES_MAX)
        self._held = bytearray()
        self._needed = _LENGTH_BYTES
        self.error: FrameError | None = None

    @property
    def held_bytes(self) -> int:
        """How much memory is kept: the bytes that are left, and at most as much again."""
        return self._held.__alloc__() if self._held else 0

    def feed(self, data: bytes, most: int = ALL) -> list[Command]:
        """The commands that these bytes complete, in order.

        most: how many of them; the other frames are kept, and come with the next call.
        """
        commands: list[Command] = []
        held = self._held
        if self.error is not None:
            return commands
        if held:
            held += data
            if len(held) < self._needed:
                return commands
        try:
            if not held:
                at = self._read(data, commands, most)
                held += data[at:]
                return commands
            with memoryview(held) as view:
                at = self._read(view, commands, most)
        except FrameError as error:
            # A new one: what led to this one still views the bytes.
            self.error = FrameError(*error.args)
            self._held = bytearray()
            return commands
        del held[:at]
        return commands

    def _read(self, view: bytes | memoryview, commands: list[Command], most: int) -> int:
        """Append the whole frames' commands; where the first incomplete frame begins.

        The compiled form reads ordinary frames in a third of the time.
        """
        limits = (self._frame_bytes_max, HEADER_BYTES_MAX)
        at, end = 0, -1
        while at != end:
            found = read_frames(view, at, commands, most, *limits, Command)
            end = at = at if found is None else found
            if len(commands) != most:
                at = self._read_one(view, at, commands)
        self._needed = self._check_length(view[at:])
        return at

    def _read_one(self, view: bytes | memoryview, at: int, commands: list[Command]) -> int:
        """Append the command of the frame that begins there, if it is whole; where it ends then."""
        if len(view) - at < _LENGTH_BYTES + _MARK_BYTES:
            return at
        length, mark = _START.unpack_from(view, at)
        header_bytes = mark & _HEADER_MASK
        if not _MARK_BYTES + header_bytes <= length <= self._frame_bytes_max:
            raise FrameError(f"a frame of {length} bytes with a header of {header_bytes}")
        if header_bytes > HEADER_BYTES_MAX:
            raise FrameError(f"a header of {header_bytes} bytes")
        if mark >> _HEADER_BITS > _BINARY:
            raise FrameError(f"a header spelt in way {mark >> _HEADER_BITS}")
        end: int = at + _LENGTH_BYTES + length
        if end > len(view):
            return at
        begin = at + _LENGTH_BYTES + _MARK_BYTES
        body_at = begin + header_bytes
        read = read_binary_header if mark >> _HEADER_BITS else read_json_header
        commands.append(read(view[begin:body_at], bytes(view[body_at:end])))
        return end

    def _check_length(self, rest: bytes | memoryview) -> int:
        """How many bytes the incomplete frame needs before another look at it is worth it."""
        if len(rest) < _LENGTH_BYTES:
            return _LENGTH_BYTES
        length = int.from_bytes(rest[:_LENGTH_BYTES], "big", signed=True)
        if not _MARK_BYTES <= length <= self._frame_bytes_max:
            raise FrameError(f"a frame of {length} bytes")
        if len(rest) < _LENGTH_BYTES + _MARK_BYTES:
            return _LENGTH_BYTES + _MARK_BYTES
        return _LENGTH_BYTES + length


read_frames: Final = only_in_c("read_frames")
"""(data, at, commands, most, longest frame, longest header, Command) -> where it stopped.

It appends the Commands of the whole frames from a place on, until there are most of them.  It stops
at the end, or at a frame that is not whole, or whose header is out of the ordinary.
"""


def encode(command: Command) -> bytes:
    """The whole frame."""
    return encode_start(command, len(command.body)) + command.body


def encode_start(command: Command, body_bytes: int) -> bytes:
    """The frame without its body, which the caller writes next: records go out uncopied."""
    if command.is_binary:
        header = write_binary_header(command)
        mark = _BINARY << _HEADER_BITS | len(header)
    else:
        header = write_json_header(command)
        mark = len(header)
    return _START.pack(_MARK_BYTES + len(header) + body_bytes, mark) + header


def encode_sent(
    request: Command,
    code: int,
    msg_id: str,
    queue_id: int,
    queue_offset: int,
    recall_handle: str = "",
) -> bytes:
    """The frame that answers a send whose message is stored.

    It is what encode() makes of sending.SEND_MESSAGE.answer.write(SendAnswer(…)), for a quarter
    of the time: it saves 3 to 5 microseconds for each message.
    """
    if request.is_binary:
        ext = {
            "queueId": str(queue_id),
            "TRACE_ON": "true",
            "MSG_REGION": "DefaultRegion",
            "msgId": msg_id,
            "queueOffset": str(queue_offset),
        }
        if recall_handle:
            ext["recallHandle"] = recall_handle
        return encode(request.answer(code, ext))
    recall = f',"recallHandle":"{recall_handle}"' if recall_handle else ""
    header = (
        f'{{"code":{code},"extFields":{{"queueId":"{queue_id}","TRACE_ON":"true",'
        f'"MSG_REGION":"DefaultRegion","msgId":"{msg_id}","queueOffset":"{queue_offset}"{recall}}},'
        f'"flag":1,"language":"{SERVER_LANGUAGE}","opaque":{request.opaque},'
        f'"serializeTypeCurrentRPC":"JSON","version":{SERVER_VERSION}}}'
    ).encode("ascii")
    return _START.pack(_MARK_BYTES + len(header), len(header)) + header
