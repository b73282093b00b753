"""Bytes <-> commands.

A frame, all numbers big-endian:

    i32  length   of all that follows
    i8   spelling of the header: 0 JSON, 1 binary ("ROCKETMQ")
    u24  length of the header
         header
         body     the rest

The decoder takes bytes as they come and gives commands.  It keeps only the beginning of a frame
that is not complete, and never makes room for bytes that have not come: a length is only a claim.

Reading a header is lenient where RocketMQ's own server is: JSON numbers among the ext fields become
text, unknown keys and blanks do not matter, bytes that are not UTF-8 become U+FFFD.  Writing is
strict, because clients are not: ext values are always text, and there is no blank in the JSON.
A header that cannot be read is a FrameError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring as quoted
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from rmqlite.kernel.compiled import only_in_c
from rmqlite.kernel.words.limits import INT32_MAX
from rmqlite.protocols.remoting.bytes.command import (
    SERVER_LANGUAGE,
    SERVER_VERSION,
    Command,
    FrameError,
)
from rmqlite.protocols.remoting.bytes.fields import (
    EXT_FIELDS_MAX,
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
)

LANGUAGES: Final = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY"),
    *("OTHER", "HTTP", "GO", "PHP", "OMS", "RUST"),
)
_LANGUAGE_NUMBERS: Final = {name: number for number, name in enumerate(LANGUAGES)}
_OTHER: Final = _LANGUAGE_NUMBERS["OTHER"]
_new: Final = tuple.__new__
_FIXED: Final = Struct(">hBhiii")
"""Code, language, version, opaque, flag, length of the remark."""
_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
ALL: Final = -1
_START: Final = Struct(">iI")
"""Length, and the mark: spelling and length of the header."""
_LENGTH_BYTES: Final = 4
_MARK_BYTES: Final = 4
_BINARY: Final = 1
_HEADER_BITS: Final = 24
_HEADER_MASK: Final = (1 << _HEADER_BITS) - 1


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


# Numbers with a fraction stay the text that they were.
# raw_decode() without its wrapper: at a text that is no JSON it raises StopIteration.
_decoder: Final[Any] = json.JSONDecoder(parse_float=str, parse_constant=_no_constant, strict=False)
_read_json: Final = _decoder.scan_once


def read_json_header(header: bytes | memoryview, body: bytes) -> Command:
    """Raises FrameError."""
    text = str(header, "utf-8", "replace")
    if text[:1] != "{":
        text = text.lstrip()
    try:
        tree, end = _read_json(text, 0)
    except (ValueError, RecursionError, StopIteration):
        raise FrameError("the header is not JSON") from None
    if tree.__class__ is not dict or (end != len(text) and text[end:].strip()):
        raise FrameError("the header is not one JSON object")
    get = tree.get
    ext = get("extFields")
    ext = _texts(ext) if ext else {}
    code, opaque, flag = get("code", 0), get("opaque", 0), get("flag", 0)
    version = get("version", 0)
    if not (code.__class__ is opaque.__class__ is flag.__class__ is version.__class__ is int):
        code, opaque, flag, version = map(_number, (code, opaque, flag, version))
    if not (min(code, opaque, flag) >= -INT32_MAX - 1 and max(code, opaque, flag) <= INT32_MAX):
        raise FrameError("code, opaque and flag are 32-bit numbers")
    language, remark = get("language"), get("remark")
    remark = _sound(str(remark)) if remark else ""
    language = language if language.__class__ is str else ""
    # Half of what a call of the class costs.
    return _new(Command, (code, opaque, ext, body, flag, remark, language, version, False))


def _texts(ext: Any) -> dict[str, str]:
    """The ext fields as text.  A field that is null is absent."""
    if ext.__class__ is not dict or len(ext) > EXT_FIELDS_MAX:
        raise FrameError(f"extFields is an object with at most {EXT_FIELDS_MAX} fields")
    texts: dict[str, str] = ext
    # One join finds both what is no text and what is not ASCII, for less than a loop costs.
    try:
        joined = "".join(texts.values())
    except TypeError:
        texts = {name: _text(value) for name, value in ext.items() if value is not None}
        joined = "".join(texts.values())
    if not joined.isascii():
        texts = {name: _sound(value) for name, value in texts.items()}
    return texts


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sound(text: str) -> str:
    """Half a character has no UTF-8 form; Java's server stores a question mark for it."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _number(value: Any) -> int:
    """A number of the header, which may be a text, as it may be for RocketMQ's server."""
    if value is None:
        return 0
    try:
        return int(value)
    except (TypeError, ValueError):
        raise FrameError("code, opaque, flag and version are numbers") from None


def read_binary_header(header: bytes | memoryview, body: bytes) -> Command:
    """Raises FrameError."""
    raw = bytes(header)
    try:
        code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(raw)
        ext_at = _FIXED.size + remark_bytes
        if not _FIXED.size <= ext_at <= len(raw):
            raise FrameError("the remark is longer than the header")
        (ext_bytes,) = _INT.unpack_from(raw, ext_at)
        begin = ext_at + _INT.size
        if not begin <= begin + ext_bytes <= len(raw):
            raise FrameError("the ext fields are longer than the header")
        ext = _read_pairs(raw, begin, begin + ext_bytes)
    except StructError:
        raise FrameError("the header ends inside a field") from None
    remark = str(raw[_FIXED.size : ext_at], "utf-8", "replace")
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return Command(code, opaque, ext, body, flag, remark, name, version, True)


def _read_pairs(raw: bytes, at: int, end: int) -> dict[str, str]:
    """The ext fields in this part of a header."""
    ext: dict[str, str] = {}
    short, whole = _SHORT.unpack_from, _INT.unpack_from
    while at < end:
        (name_bytes,) = short(raw, at)
        name_at = at + 2
        name_end = name_at + name_bytes
        if name_bytes < 0:
            raise FrameError("a name of less than 0 bytes")
        (value_bytes,) = whole(raw, name_end)
        value_at = name_end + 4
        at = value_at + value_bytes
        if value_bytes < 0 or at > end:
            raise FrameError("an ext field is longer than the ext fields")
        name = str(raw[name_at:name_end], "utf-8", "replace")
        ext[name] = str(raw[value_at:at], "utf-8", "replace")
        if len(ext) > EXT_FIELDS_MAX:
            raise FrameError(f"more than {EXT_FIELDS_MAX} ext fields")
    return ext


def write_json_header(command: Command) -> bytes:
    """extFields is always there: the C++ client crashes at a send answer that has none."""
    pairs = ",".join([f"{quoted(name)}:{quoted(text)}" for name, text in command.ext.items()])
    remark = f'"remark":{quoted(command.remark)},' if command.remark else ""
    return (
        f'{{"code":{command.code},"extFields":{{{pairs}}},"flag":{command.flag},'
        f'"language":{quoted(command.language)},"opaque":{command.opaque},{remark}'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version}}}'
    ).encode("utf-8", "replace")


def write_binary_header(command: Command) -> bytes:
    remark = command.remark.encode("utf-8", "replace")
    pairs = _binary_pairs(command.ext)
    return b"".join(
        (
            _FIXED.pack(
                command.code,
                _LANGUAGE_NUMBERS.get(command.language, _OTHER),
                command.version,
                command.opaque,
                command.flag,
                len(remark),
            ),
            remark,
            _INT.pack(len(pairs)),
            pairs,
        )
    )


def _binary_pairs(ext: Mapping[str, str]) -> bytes:
    parts: list[bytes] = []
    for name, text in ext.items():
        key, value = name.encode("utf-8", "replace"), text.encode("utf-8", "replace")
        parts += (_SHORT.pack(len(key)), key, _INT.pack(len(value)), value)
    return b"".join(parts)


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
    more: Mapping[str, str] | None = None,
) -> bytes:
    """The frame that answers a send whose message is stored; more: fields that few answers have.

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
            **(more or {}),
        }
        return encode(request.answer(code, ext))
    rest = "," + json.dumps(more, separators=(",", ":"))[1:-1] if more else ""
    header = (
        f'{{"code":{code},"extFields":{{"queueId":"{queue_id}","TRACE_ON":"true",'
        f'"MSG_REGION":"DefaultRegion","msgId":"{msg_id}","queueOffset":"{queue_offset}"{rest}}},'
        f'"flag":1,"language":"{SERVER_LANGUAGE}","opaque":{request.opaque},'
        f'"serializeTypeCurrentRPC":"JSON","version":{SERVER_VERSION}}}'
    ).encode("ascii")
    return _START.pack(_MARK_BYTES + len(header), len(header)) + header
