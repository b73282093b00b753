"""A body as a page shows it: text, indented JSON, or byte by byte; never all of a huge one."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import Final

from rmqlite.message import StoredMessage

SHOWN_BYTES_MAX: Final = 24 << 10
HEX_BYTES_MAX: Final = 16 << 10
VIEWS: Final = ("text", "json", "hex")
COMPRESSED: Final = 0x1
_CODEC: Final = 0x700
_ZLIB: Final = (0x000, 0x300)
_ROW: Final = 16
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_DEPTH_MAX: Final = 100
_LOOK_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True)
class BodyView:
    """view: how it is shown.  can_be: the other ways.  size: in bytes, whole and as stored.

    is_cut: the rest is not shown.  note: what was done to it first, or could not be.
    """

    view: str
    can_be: tuple[str, ...]
    text: str
    size: int
    shown: int
    is_cut: bool
    note: str


def body_view(message: StoredMessage, wanted: str) -> BodyView:
    """The body in the view that is wanted; "" is the one that fits it best."""
    body, is_whole, note = _inflated(message)
    text = _as_text(body[:SHOWN_BYTES_MAX], is_whole and len(body) <= SHOWN_BYTES_MAX)
    pretty = None if text is None or len(body) > SHOWN_BYTES_MAX else indented(text)
    can_be = tuple([*["text"] * (text is not None), *["json"] * (pretty is not None), "hex"])
    view = wanted if wanted in can_be else _fitting(text, pretty)
    limit = HEX_BYTES_MAX if view == "hex" else SHOWN_BYTES_MAX
    shown = min(len(body), limit)
    if view == "json":
        content = pretty or ""
    elif view == "text":
        content = text or ""
    else:
        content = hexdump(body[:limit])
    is_cut = not is_whole or len(body) > limit
    return BodyView(view, can_be, content, len(message.body), shown, is_cut, note)


def indented(text: str) -> str | None:
    """JSON with a line for each value; None when it is no JSON object or list.

    Only blanks are changed: a reader that kept values would lose keys that come twice, and
    the way a number was written.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    depth, parts, tokens = 0, [], _TOKEN.findall(text)
    for number, token in enumerate(tokens):
        if token in "}]":
            depth -= 1
            is_empty = number > 0 and tokens[number - 1] in "{["
            parts.append(token if is_empty else _line(depth) + token)
        elif token in "{[":
            depth += 1
            is_empty = tokens[number + 1] in "}]"
            parts.append(token if is_empty else token + _line(depth))
        elif token == ",":
            parts.append("," + _line(depth))
        else:
            parts.append(": " if token == ":" else token)
    return "".join(parts)


def hexdump(data: bytes) -> str:
    """Sixteen bytes a line: where, in hex, and as ASCII."""
    lines = []
    for begin in range(0, len(data), _ROW):
        row = data[begin : begin + _ROW]
        hexed = row[:8].hex(" ") + "  " + row[8:].hex(" ")
        ascii_text = "".join([chr(byte) if 32 <= byte < 127 else "." for byte in row])
        lines.append(f"{begin:08x}  {hexed:<48}  {ascii_text}")
    return "\n".join(lines)


def _fitting(text: str | None, pretty: str | None) -> str:
    """The view that tells most at a glance."""
    if pretty is not None:
        return "json"
    look = (text or "")[:_LOOK_CHARS]
    unseen = sum([not each.isprintable() and not each.isspace() for each in look])
    return "hex" if text is None or unseen * 10 > len(look) else "text"


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, _DEPTH_MAX)


def _as_text(body: bytes, is_whole: bool) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        # Cut within a character is no reason not to be text.
        if not is_whole and error.start >= len(body) - 3:
            return body[: error.start].decode()
        return None


def _inflated(message: StoredMessage) -> tuple[bytes, bool, str]:
    """The body as its producer had it, is it whole, and a note; never more than is shown."""
    body = message.body
    if not message.sys_flag & COMPRESSED or not body:
        return body, True, ""
    if message.sys_flag & _CODEC not in _ZLIB:
        return body, True, "compressed with a codec other than zlib: shown as it is stored"
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(body, SHOWN_BYTES_MAX + 1)
    except zlib.error:
        return body, True, "marked as compressed, and is not: shown as it is stored"
    return inflated, stream.eof, f"inflated from {len(body):,} bytes"
