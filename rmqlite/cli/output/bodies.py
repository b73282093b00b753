"""A body for a person to read: text, indented JSON, or a hex dump.

The terminal interprets none of it; a long body is cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Final

from rmqlite.cli.output.terminal import printable
from rmqlite.visible import dump, is_json, json_lines

SHOWN_LINES_MAX: Final = 60
SHOWN_CHARS_MAX: Final = 4_000
"""The part of a body that is shown without --full: some screens."""
_INVISIBLE_SHARE: Final = 0.2
"""A body with a larger share is shown in hex: it is a binary format that happens to be UTF-8."""


def shown(body: bytes, *, as_hex: bool = False, full: bool = False) -> tuple[str, list[str]]:
    """The kind of a body, and the lines to print; full: all of them.

    The kind says if lines were left out.
    """
    kind, lines = _lines(body, as_hex=as_hex, full=full)
    if full:
        return kind, list(lines)
    kept: list[str] = []
    left = SHOWN_CHARS_MAX
    for line in islice(lines, SHOWN_LINES_MAX):
        if len(line) > left:
            kept.append(f"{line[: max(0, left)]}…")
            break
        kept.append(line)
        left -= len(line) + 1
    else:
        if next(lines, None) is None:
            return kind, kept
    return f"{kind}, the beginning; --full shows all", kept


def _lines(body: bytes, *, as_hex: bool, full: bool) -> tuple[str, Iterator[str]]:
    text = None if as_hex else _text(body)
    if text is None:
        return "hex", dump(body)
    if is_json(text):
        return "JSON", map(_escaped, json_lines(text))
    if not full:
        # Escaping never removes a character, so the part that is cut later need not be escaped.
        text = text[: 2 * SHOWN_CHARS_MAX]
    return "text", _text_lines(text)


def _text_lines(text: str) -> Iterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        yield printable(line.removesuffix("\r"))


def _text(body: bytes) -> str | None:
    """The body as text; None if a person cannot read it."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    if text.isprintable():
        return text
    invisible = sum([not c.isprintable() and c not in "\n\r\t" for c in text])
    return text if invisible <= len(text) * _INVISIBLE_SHARE else None


def _escaped(line: str) -> str:
    """Invisible characters as JSON itself writes them, so that the line stays JSON."""
    if line.isprintable():
        return line
    return "".join([c if c.isprintable() else _json_escape(c) for c in line])


def _json_escape(character: str) -> str:
    # json.dumps() leaves DEL as it is.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
