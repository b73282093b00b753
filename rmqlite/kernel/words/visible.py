"""Makes text from messages, clients and files visible: control characters are shown, not obeyed.

Such text goes through here on its way to a terminal or a page.  JSON is not decoded: only the
blanks between its tokens change, so that every number, every escape, a key that comes twice
and the order of the keys stay as they were sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

ECHO_CHARS_MAX: Final = 128
"""How much of a value an error repeats: a value may be as long as a request."""
_DUMPED_BYTES: Final = 16
# Possessive: otherwise a string of four megabytes fills the memory with places to go back to.
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++')
_OPENING: Final = frozenset("{[")
_CLOSING: Final = frozenset("}]")
_INDENT: Final = "  "
_DEPTH_MAX: Final = 100
"""Deeper lines are indented no further."""


def printable(text: str) -> str:
    """The text, with invisible characters such as controls written as \\x1b or \\u202e."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else _escaped(c) for c in text])


def encodable(text: str) -> str:
    """The text with ? for what no encoding can carry, such as half an emoji of a cut JSON text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def text_of_error(error: BaseException) -> str | None:
    """The encodable text of anybody's error; None if its own code fails to make one."""
    try:
        return encodable(str(error))
    except BaseException:  # the user's __str__ is the user's code, and may raise anything
        return None


def shortened(value: object) -> str:
    """A value as an error repeats it: of a long value only the beginning, and its length."""
    text = str(value)
    if len(text) <= ECHO_CHARS_MAX:
        return text
    return f"{text[:ECHO_CHARS_MAX]}… ({len(text):,} characters)"


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A question for the known word that is spelled nearly so, in any case; else otherwise."""
    by_lower_case = {each.lower(): each for each in sorted(known)}
    near = get_close_matches(word.lower(), by_lower_case, n=1)
    return f"; did you mean {by_lower_case[near[0]]}?" if near else otherwise


def _escaped(character: str) -> str:
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character) or (
        f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"
    )


def is_json(text: str) -> bool:
    """Is it a JSON object or array?  A bare number or word counts as text."""
    if text.lstrip()[:1] not in _OPENING:
        return False
    try:
        # The numbers stay text: Python refuses to convert a huge one.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is Python's, not JSON's")


def json_lines(text: str) -> Iterator[str]:
    """The tokens of a JSON text, one value per line."""
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


def dump(body: bytes) -> Iterator[str]:
    """Lines of sixteen bytes: offset, bytes in hex, and the same bytes as ASCII or dots."""
    for at in range(0, len(body), _DUMPED_BYTES):
        part = body[at : at + _DUMPED_BYTES]
        left, right = part[:8].hex(" "), part[8:].hex(" ")
        plain = "".join([chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part])
        yield f"{at:08x}  {left:<23}  {right:<23}  |{plain}|"
