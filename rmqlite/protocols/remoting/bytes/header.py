"""A frame's header in its two spellings, JSON and binary ("ROCKETMQ").

Reading is lenient where RocketMQ's own server is: JSON numbers among the ext fields become
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

from rmqlite.kernel.words.limits import INT32_MAX
from rmqlite.protocols.remoting.bytes.command import Command, FrameError
from rmqlite.protocols.remoting.bytes.limits import EXT_FIELDS_MAX

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
