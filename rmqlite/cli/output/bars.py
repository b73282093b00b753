"""Bars that fill the width of a terminal, in steps of an eighth of a column."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Final

from rich.text import Text

from rmqlite.cli.output.terminal import out

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_HEAD: Final = ("DUE IN", "CLOCK", "MESSAGES")
_GAP: Final = "  "
_BAR_COLUMNS_MIN: Final = 10


def print_bars(title: str, rows: Sequence[tuple[str, str, int]]) -> None:
    """A title, then for each row its span, its clock time, its count, and the count as a bar.

    The first row counts the overdue messages.
    """
    counts = [f"{count:,}" for *_, count in rows]
    span_width = max([len(_HEAD[0]), *[len(span) for span, *_ in rows]])
    clock_width = max([len(_HEAD[1]), *[len(clock) for _, clock, _ in rows]])
    count_width = max([len(_HEAD[2]), *[len(count) for count in counts]])
    used = span_width + clock_width + count_width + 3 * len(_GAP)
    width = max(_BAR_COLUMNS_MIN, shutil.get_terminal_size().columns - used)
    most = max([count for *_, count in rows])
    console = out()
    console.print(Text(title))
    head = (_HEAD[0].ljust(span_width), _HEAD[1].ljust(clock_width), _HEAD[2].rjust(count_width))
    console.print(Text(_GAP.join(head), style="bold"))
    for number, (span, clock, count) in enumerate(rows):
        cells = (
            span.ljust(span_width),
            clock.ljust(clock_width),
            counts[number].rjust(count_width),
        )
        line = Text(_GAP.join(cells))
        if count:
            line.append(_GAP + bar(count, most, width), style="yellow" if number == 0 else "cyan")
        console.print(line)


def bar(count: int, most: int, width: int) -> str:
    """A bar of count, where `most` takes the whole width; a bar is never empty."""
    if not _can_print(_EIGHTHS):
        return "#" * max(1, count * width // most)
    eighths = max(1, count * width * 8 // most)
    whole, part = divmod(eighths, 8)
    return _EIGHTHS[-1] * whole + _EIGHTHS[part].strip()


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
