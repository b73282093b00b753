"""Makes text from messages, clients and files visible: control characters are shown, not obeyed.

Such text goes through here on its way to a terminal or a page.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

ECHO_CHARS_MAX: Final = 128
"""How much of a value an error repeats: a value may be as long as a request."""


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
