"""Bodies that a producer compressed, as RocketMQ's clients do with long ones.

The broker stores and forwards a body unchanged; only this module inflates one, for a consumer or
for a person who looks.  Send-back names a record by its physical offset, so a retry or a dead
letter keeps the bytes that were sent.  The bits of the sys flag are RocketMQ's (reference §1.2).
LZ4 and ZSTD need the packages of an extra; they are imported when the first such body comes.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from rmqlite.kernel.words.errors import (
    ExtraMissing,
    MessageTooLarge,
    NotSupported,
    Refused,
)
from rmqlite.kernel.words.message import StoredMessage

INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024
"""One kilobyte can inflate to a megabyte, and a consumer has many threads."""
BEGIN_BYTES: Final = 4 * 1024
"""So much of a body is inflated before it is accepted: 10 us, or 500 us for a hostile one."""
COMPRESSED: Final = 0x1
CODEC: Final = 0x700
COMPRESSION_BITS: Final = COMPRESSED | CODEC
EXTRA: Final = 'pip install "rmqlite[compression]"'
_ZSTD_WINDOW_LOG_MAX: Final = 26
"""A decoder of ZSTD reserves its window first: 64 MiB, as much as a body may have."""
_LZ4_RATIO_MAX: Final = 256
"""The format of LZ4 makes no byte longer than 255."""


def is_compressed(message: StoredMessage) -> bool:
    return bool(message.sys_flag & COMPRESSED)


class Readable(NamedTuple):
    """A body for a person.

    body: inflated, or as it is stored.  is_whole: False if more bytes would follow.  note: what
    was done, or why the body is shown as it is stored; "" for a body that nobody compressed.
    """

    body: bytes
    is_whole: bool
    note: str


def inflated(message: StoredMessage) -> StoredMessage:
    """The message with its real body, and a sys flag that no longer says "compressed".

    Raises ExtraMissing if the codec's package is not installed, NotSupported for an unknown
    codec, MessageTooLarge over INFLATED_BYTES_MAX, Refused for a body that is no whole stream
    of its codec; each names the message.
    """
    if not message.sys_flag & COMPRESSED:
        return message
    plain_flag = message.sys_flag & ~COMPRESSION_BITS
    # An empty body that is marked as compressed stays empty, as in RocketMQ's clients.
    body = _inflated(message) if message.body else b""
    return replace(message, body=body, sys_flag=plain_flag)


def readable(body: bytes, sys_flag: int, bytes_max: int = INFLATED_BYTES_MAX) -> Readable:
    """The first bytes_max bytes that the producer sent; never raises.

    A body that cannot be inflated, or that is longer than INFLATED_BYTES_MAX where all of it is
    wanted, is returned as it is stored, with a note.
    """
    if not sys_flag & COMPRESSED or not body:
        return Readable(body, True, "")
    name = _codec_name(sys_flag)
    try:
        part = _first_bytes(body, sys_flag, bytes_max)
    except _Unreadable as error:
        return Readable(body, True, f"compressed with {name}, shown as it is stored: {error}")
    is_whole = len(part) <= bytes_max
    if not is_whole and bytes_max == INFLATED_BYTES_MAX:
        why = f"it inflates to more than {INFLATED_BYTES_MAX:,} bytes"
        return Readable(body, True, f"compressed with {name}, shown as it is stored: {why}")
    return Readable(part[:bytes_max], is_whole, f"inflated from {len(body):,} bytes of {name}")


def why_unreadable(body: bytes, sys_flag: int) -> str:
    """Why RocketMQ's clients could not inflate a compressed body; "" if they probably can.

    Only its first BEGIN_BYTES are inflated; without the package of a codec, only the first four
    bytes are looked at.
    """
    begin = body[:BEGIN_BYTES]
    try:
        _first_bytes(begin, sys_flag, BEGIN_BYTES)
    except _EndsEarly as error:
        return str(error) if len(begin) == len(body) else ""
    except _PackageMissing:
        name, magic = _codec_name(sys_flag), _MAGIC[sys_flag & CODEC]
        return "" if body.startswith(magic) else f"a stream of {name} begins with {magic.hex()}"
    except _Unreadable as error:
        return f"{_codec_name(sys_flag)}: {error}"
    return ""


class _Unreadable(Exception):
    """Why a body cannot be inflated."""


class _EndsEarly(_Unreadable):
    """More bytes should follow."""

    def __init__(self) -> None:
        super().__init__("the stream ends too early")


class _PackageMissing(_Unreadable):
    """package: what is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"it needs {package}: {EXTRA}")
        self.package = package


class _CodecUnknown(_Unreadable):
    """No RocketMQ client has this codec."""


def _inflated(message: StoredMessage) -> bytes:
    named = _named(message)
    try:
        body = _first_bytes(message.body, message.sys_flag, INFLATED_BYTES_MAX)
    except _PackageMissing as error:
        raise ExtraMissing(f"{error.package} for the body of {named}", "none", EXTRA) from error
    except _CodecUnknown as error:
        name, rule = _codec_name(message.sys_flag), "compress it with zlib, LZ4 or ZSTD"
        sentence = f"the body of {named} is compressed with {name}: {rule}"
        raise NotSupported(sentence, field="body", value=name, rule=rule) from error
    except _Unreadable as error:
        sentence = f"the body of {named} cannot be inflated: {error}"
        rule = f"a whole stream of {_codec_name(message.sys_flag)}"
        raise Refused(sentence, field="body", value=message.message_id, rule=rule) from error
    if len(body) > INFLATED_BYTES_MAX:
        rule = f"at most {INFLATED_BYTES_MAX} bytes when inflated: {named}"
        raise MessageTooLarge("body", f"more than {INFLATED_BYTES_MAX}", rule)
    return body


def _named(message: StoredMessage) -> str:
    where = f"{message.topic} queue {message.queue_id} offset {message.queue_offset}"
    return f"message {message.message_id} ({where})"


# ---- codecs: each returns at most bytes_max + 1 bytes, and raises _Unreadable


def _zlib(body: bytes, bytes_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        part = stream.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise _Unreadable(str(error)) from error
    return _checked(part, bytes_max, is_ended=stream.eof)


def _lz4(body: bytes, bytes_max: int) -> bytes:
    try:
        from lz4.frame import LZ4FrameDecompressor
    except ImportError as error:
        raise _PackageMissing("lz4") from error
    stream = LZ4FrameDecompressor()
    try:
        # The decompressor reserves as many bytes as it may return.
        part = stream.decompress(body, min(bytes_max, _LZ4_RATIO_MAX * len(body)) + 1)
    except RuntimeError as error:
        raise _Unreadable(str(error)) from error
    return _checked(part, bytes_max, is_ended=stream.eof)


def _zstd(body: bytes, bytes_max: int) -> bytes:
    try:
        if sys.version_info >= (3, 14):
            from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
        else:
            from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
    except ImportError as error:
        raise _PackageMissing("backports.zstd") from error
    window: dict[int, int] = {DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX}
    stream = ZstdDecompressor(options=window)
    try:
        part = stream.decompress(body, bytes_max + 1)
    except ZstdError as error:
        raise _Unreadable(str(error)) from error
    return _checked(part, bytes_max, is_ended=stream.eof)


def _checked(part: bytes, bytes_max: int, *, is_ended: bool) -> bytes:
    if len(part) <= bytes_max and not is_ended:
        raise _EndsEarly
    return part


_CODECS: Final[dict[int, tuple[str, Callable[[bytes, int], bytes]]]] = {
    # Clients before 4.9.4 have no other codec and set no codec bits.
    0x000: ("zlib", _zlib),
    0x100: ("LZ4", _lz4),
    0x200: ("ZSTD", _zstd),
    0x300: ("zlib", _zlib),
}

_MAGIC: Final = {0x100: bytes.fromhex("04224d18"), 0x200: bytes.fromhex("28b52ffd")}


def _first_bytes(body: bytes, sys_flag: int, bytes_max: int) -> bytes:
    if sys_flag & CODEC not in _CODECS:
        raise _CodecUnknown("rmqlite does not know this codec")
    return _CODECS[sys_flag & CODEC][1](body, bytes_max)


def _codec_name(sys_flag: int) -> str:
    codec = sys_flag & CODEC
    return _CODECS[codec][0] if codec in _CODECS else f"codec {codec:#x}"
