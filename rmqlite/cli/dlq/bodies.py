"""A body for a person to read: text, JSON set out in lines, or a hex dump.

Nothing of it is interpreted.  JSON is not decoded: its own tokens are set out anew, so that
every number, every escape and the order of the keys stay as they were sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from rmqlite.cli.terminal import printable

SHOWN_LINES_MAX: Final = 60
SHOWN_CHARS_MAX: Final = 4_000
"""What of a body is shown, unless all of it is asked for: some screens."""
_INVISIBLE_SHARE: Final = 0.2
"""A text with more of them is none: a binary format that happens to be UTF-8."""
_DUMPED_BYTES: Final = 16
# Possessive: a string of four megabytes leaves no trail to go back on.
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++')
_OPENING: Final = frozenset("{[")
_CLOSING: Final = frozenset("}]")
_INDENT: Final = "  "
_DEPTH_MAX: Final = 100
"""How deep lines are indented; one line per bracket of a deeper one would be no help."""


def shown(body: bytes, *, as_hex: bool = False, full: bool = False) -> tuple[str, list[str]]:
    """What kind of body it is, and the lines to print; full: all of them.

    The kind says how much was left out.
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
        # No character becomes none: what is cut later need not be escaped.
        text = text[: 2 * SHOWN_CHARS_MAX]
    return "text", _text_lines(text)


def _text_lines(text: str) -> Iterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        yield printable(line.removesuffix("\r"))


def _text(body: bytes) -> str | None:
    """The body as text; None if it is none that a person can read."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    if text.isprintable():
        return text
    invisible = sum([not c.isprintable() and c not in "\n\r\t" for c in text])
    return text if invisible <= len(text) * _INVISIBLE_SHARE else None


def is_json(text: str) -> bool:
    """Is it a JSON object or array?  A bare number or word is text."""
    if text.lstrip()[:1] not in _OPENING:
        return False
    try:
        # The numbers stay text: of a huge one Python would refuse to make a number.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is Python's, not JSON's")


def json_lines(text: str) -> Iterator[str]:
    """The tokens of a JSON text, a line for each value."""
    depth = 0
    line = ""
    before = ""
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in _CLOSING:
            depth -= 1
            if before not in _OPENING:
                yield line
                line = _indented(depth)
        elif before in _OPENING:
            yield line
            line = _indented(depth)
        line += f"{token} " if token == ":" else token
        if token in _OPENING:
            depth += 1
        elif token == ",":
            yield line
            line = _indented(depth)
        before = token
    yield line


def _indented(depth: int) -> str:
    return _INDENT * min(depth, _DEPTH_MAX)


def _escaped(line: str) -> str:
    """Invisible characters as JSON itself writes them, so that the line stays JSON."""
    if line.isprintable():
        return line
    return "".join([c if c.isprintable() else _json_escape(c) for c in line])


def _json_escape(character: str) -> str:
    # json.dumps() leaves DEL as it is.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def dump(body: bytes) -> Iterator[str]:
    """Offset, bytes in hex, and the ASCII among them, a line for sixteen bytes."""
    for at in range(0, len(body), _DUMPED_BYTES):
        part = body[at : at + _DUMPED_BYTES]
        left, right = part[:8].hex(" "), part[8:].hex(" ")
        plain = "".join([chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part])
        yield f"{at:08x}  {left:<23}  {right:<23}  |{plain}|"
