"""What somebody else wrote, made visible: a control character is shown, never obeyed.

Text of messages, clients and files goes through here on its way to a terminal or a page.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control, format and other invisible characters written as \\x1b or \\u202e."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else _escaped(c) for c in text])


def _escaped(character: str) -> str:
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character) or (
        f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"
    )
