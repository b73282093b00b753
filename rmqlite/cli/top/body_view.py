"""A body as lines that a person can read: indented JSON, text, or bytes in hex.

Nothing in it is interpreted, however it came to be; of a large one the beginning is shown.
"""

from __future__ import annotations

import json
from typing import Final

from rmqlite.cli.message_text import inflated
from rmqlite.cli.terminal import printable
from rmqlite.message import StoredMessage

FORMS: Final = ("json", "text", "hex")
SHOWN_BYTES_MAX: Final = 64 * 1024
JSON_BYTES_MAX: Final = 256 * 1024
"""A larger body is not indented, which would take longer than somebody waits."""
_HEX_BYTES: Final = 16


def best_form(body: bytes) -> str:
    """In which form a body says most."""
    if _indented(body) is not None:
        return "json"
    try:
        body.decode()
    except UnicodeDecodeError:
        return "hex"
    return "text"


def next_form(form: str) -> str:
    return FORMS[(FORMS.index(form) + 1) % len(FORMS)]


def body_of(message: StoredMessage) -> bytes:
    """As its producer had it, or as it is kept where that cannot be had."""
    return inflated(message).body


def body_lines(body: bytes, form: str) -> list[str]:
    """A line that says what this is, then the body, not wrapped."""
    said = f"body, {len(body):,} bytes as {form}"
    indented = _indented(body) if form == "json" else None
    if form == "json" and indented is None:
        return [said, "(this is not JSON)" if len(body) <= JSON_BYTES_MAX else "(too large)"]
    if len(body) > SHOWN_BYTES_MAX and indented is None:
        said += f", the first {SHOWN_BYTES_MAX:,}"
    if form == "hex":
        return [said, *_hex_lines(body[:SHOWN_BYTES_MAX])]
    text = indented
    if text is None:
        text = body[:SHOWN_BYTES_MAX].decode(errors="backslashreplace")
    return [said, *[printable(line) for line in text.split("\n")]]


def _indented(body: bytes) -> str | None:
    """None where a body is no JSON document, or just a number or a word."""
    if body.lstrip()[:1] not in (b"{", b"[") or len(body) > JSON_BYTES_MAX:
        return None
    # Whoever sent it may have nested it as deep, or written numbers as long, as they liked.
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _hex_lines(body: bytes) -> list[str]:
    lines = []
    for start in range(0, len(body), _HEX_BYTES):
        part = body[start : start + _HEX_BYTES]
        shown = "".join([chr(b) if 32 <= b < 127 else "." for b in part])
        lines.append(f"{start:08x}  {part.hex(' '):<{3 * _HEX_BYTES - 1}}  {shown}")
    return lines
