"""Shows a body as text, indented JSON or hex; only the beginning of a long one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqlite.compression import readable
from rmqlite.message import StoredMessage
from rmqlite.visible import dump, is_json, json_lines

SHOWN_BYTES_MAX: Final = 24 << 10
HEX_BYTES_MAX: Final = 16 << 10
VIEWS: Final = ("text", "json", "hex")
_LOOK_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True)
class BodyView:
    """view: how the body is shown.  can_be: all views that fit it.  size: its bytes, as stored.

    shown: the bytes that are shown.  is_cut: there are more.  note: how it was decompressed, or
    why it was not.
    """

    view: str
    can_be: tuple[str, ...]
    text: str
    size: int
    shown: int
    is_cut: bool
    note: str


def body_view(message: StoredMessage, wanted: str) -> BodyView:
    """The body in the wanted view; in the best one if that is "" or does not fit."""
    body, is_whole, note = readable(message.body, message.sys_flag, SHOWN_BYTES_MAX)
    is_small = is_whole and len(body) <= SHOWN_BYTES_MAX
    text = _as_text(body[:SHOWN_BYTES_MAX], is_small)
    pretty = None if text is None or not is_small else _set_out(text)
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
    """JSON with a line for each value; None if the text is no JSON object or list."""
    return "\n".join(json_lines(text)) if is_json(text) else None


def _fitting(text: str | None, pretty: str | None) -> str:
    """The view that is easiest to read: JSON, text, or hex if many characters are unprintable."""
    if pretty is not None:
        return "json"
    look = (text or "")[:_LOOK_CHARS]
    unseen = sum([not each.isprintable() and not each.isspace() for each in look])
    return "hex" if text is None or unseen * 10 > len(look) else "text"


def _as_text(body: bytes, is_whole: bool) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        # A text that is cut within a character is still text.
        if not is_whole and error.start >= len(body) - 3:
            return body[: error.start].decode()
        return None
