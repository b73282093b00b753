"""A body as lines that a person can read: formatted, as plain text, or in hex.

The terminal interprets none of it; a large body is cut.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from rmqlite.cli.output.bodies import shown
from rmqlite.cli.output.terminal import printable
from rmqlite.visible import dump

FORMS: Final = ("set out", "as text", "in hex")
SHOWN_BYTES_MAX: Final = 64 * 1024
SET_OUT_BYTES_MAX: Final = 256 * 1024
"""A larger body is formatted only for some screens: all of it would take too long."""
SHOWN_LINES_MAX: Final = 5_000


def next_form(form: str) -> str:
    return FORMS[(FORMS.index(form) + 1) % len(FORMS)]


def body_lines(body: bytes, form: str, note: str = "") -> list[str]:
    """A line with the kind and size of the body, and the note; then the body, not wrapped."""
    size = "1 byte" if len(body) == 1 else f"{len(body):,} bytes"
    part = body[:SHOWN_BYTES_MAX]
    if form == "set out":
        is_small = len(body) <= SET_OUT_BYTES_MAX
        form, lines = shown(body if is_small else part, full=is_small)
        form, part = form.partition(",")[0], body if is_small else part
        is_cut = not is_small or len(lines) > SHOWN_LINES_MAX
        lines = lines[:SHOWN_LINES_MAX]
    elif form == "in hex":
        lines, is_cut = list(islice(dump(part), SHOWN_LINES_MAX)), len(part) < len(body)
    else:
        text = part.decode(errors="backslashreplace").split("\n")
        lines = [printable(line) for line in text[:SHOWN_LINES_MAX]]
        is_cut = len(part) < len(body) or len(text) > len(lines)
    about = ["body", size, *[note] * bool(note), form, *["the beginning"] * is_cut]
    return [", ".join(about), *lines]
