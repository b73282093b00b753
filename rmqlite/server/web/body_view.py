"""A body as a page shows it: text, indented JSON, or byte by byte; never all of a huge one."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from rmqlite.message import StoredMessage
from rmqlite.visible import dump, is_json, json_lines

SHOWN_BYTES_MAX: Final = 24 << 10
HEX_BYTES_MAX: Final = 16 << 10
VIEWS: Final = ("text", "json", "hex")
COMPRESSED: Final = 0x1
_CODEC: Final = 0x700
_ZLIB: Final = (0x000, 0x300)
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
    pretty = None if text is None or len(body) > SHOWN_BYTES_MAX else _set_out(text)
    can_be = tuple([*["text"] * (text is not None), *["json"] * (pretty is not None), "hex"])
    view = wanted if wanted in can_be else _fitting(text, pretty)
    limit = HEX_BYTES_MAX if view == "hex" else SHOWN_BYTES_MAX
    shown = min(len(body), limit)
    if view == "json":
        content = pretty or ""
    elif view == "text":
        content = text or ""
    else:
        content = "\n".join(dump(body[:limit]))
    is_cut = not is_whole or len(body) > limit
    return BodyView(view, can_be, content, len(message.body), shown, is_cut, note)


def _set_out(text: str) -> str | None:
    """JSON with a line for each value; None when it is no JSON object or list."""
    return "\n".join(json_lines(text)) if is_json(text) else None


def _fitting(text: str | None, pretty: str | None) -> str:
    """The view that tells most at a glance."""
    if pretty is not None:
        return "json"
    look = (text or "")[:_LOOK_CHARS]
    unseen = sum([not each.isprintable() and not each.isspace() for each in look])
    return "hex" if text is None or unseen * 10 > len(look) else "text"


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
