"""How output looks: tables and bars for people, JSON for programs, one line for an error.

Text from a message, a client or a file is printed escaped: a terminal never interprets a byte that
somebody else chose.  A table is as wide as its content, so that no id is wrapped or cut; it has no
colours and lines, so it looks the same in a pipe.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rmqlite.cli.output.grid import aligned, head, widths
from rmqlite.cli.output.grid import shortened as shortened
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.visible import printable as printable
from rmqlite.views.tables import BAD, DIM, GOOD, WARN, Column, Table
from rmqlite.views.tables import row as view_row

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_HEAD: Final = ("DUE IN", "CLOCK", "MESSAGES")
_GAP: Final = "  "
_BAR_COLUMNS_MIN: Final = 10
STYLES: Final = {
    "": "",
    GOOD: "green",
    WARN: "yellow",
    BAD: "red",
    DIM: "dim",
    "head": "bold",
}
"""How a terminal draws a tone."""
_WIDTH_MAX: Final = 100_000
"""Wider than any table, so that rich gives every column the width of its content."""


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


def body_text(body: bytes) -> tuple[str, str]:
    """A body as ("utf-8", its text), or ("hex", its bytes in hex)."""
    try:
        return "utf-8", body.decode()
    except UnicodeDecodeError:
        return "hex", body.hex()


def to_tree(value: Any) -> Any:
    """A value for JSON, with its field names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, (list, tuple)):
        return [to_tree(each) for each in value]
    return value


def print_json(value: Any) -> None:
    """Print one document, ASCII only: no byte of a message reaches the terminal unescaped."""
    sys.stdout.write(json.dumps(to_tree(value), indent=2, default=str) + "\n")


def print_json_line(value: Any) -> None:
    """Print one document on one line, at once, for a stream of documents."""
    sys.stdout.write(json.dumps(to_tree(value)) + "\n")
    sys.stdout.flush()


def print_json_array(values: Iterable[Any]) -> None:
    """Print a list as one document, item by item as they come."""
    separator = "["
    for value in values:
        sys.stdout.write(f"{separator}\n  {json.dumps(to_tree(value))}")
        separator = ","
    sys.stdout.write("[]\n" if separator == "[" else "\n]\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table; numbers are aligned to the right and grouped in thousands."""
    listed = [list(row) for row in rows]
    shown = [
        Column(name, right=_is_numeric([row[index] for row in listed]))
        for index, name in enumerate(columns)
    ]
    _print_rows(Table(title, tuple(shown), tuple([view_row("", *each) for each in listed])))


def print_view(view: Table) -> None:
    """Print a table with its title, or what it says without rows."""
    if not view.rows:
        note(view.empty)
    else:
        _print_rows(view)


def _print_rows(view: Table) -> None:
    console = out()
    sizes = widths(view, shutil.get_terminal_size().columns if console.is_terminal else _WIDTH_MAX)
    if view.title:
        console.print()
        console.print(Text(printable(view.title), style="bold"))
    rows = [aligned(row.cells, view.columns, sizes) for row in view.rows]
    for line in (head(view, sizes), *rows):
        text = Text.assemble(*[(part.text, STYLES[part.tone]) for part in line])
        text.rstrip()
        console.print(text)


def print_columns(columns: Mapping[str, Sequence[object]], title: str = "") -> None:
    """The same for columns by their names, each with a value for every row."""
    print_table(tuple(columns), zip(*columns.values(), strict=True), title)


def print_tall_table(
    columns: Sequence[str], rows: Sequence[tuple[Sequence[str], str | Sequence[str]]]
) -> None:
    """Print columns for short values, and below each row, indented, one or more long lines."""
    listed = [(row, (below,) if isinstance(below, str) else below) for row, below in rows]
    cells = [columns, *[row for row, _ in listed]]
    widths = [max([cell_len(each[n]) for each in cells]) for n in range(len(columns))]
    console = out()
    if console.is_terminal:
        console.print(Text(_aligned(columns, widths), style="bold"))
        for row, below in listed:
            console.print(Text(_aligned(row, widths)))
            for line in below:
                console.print(Text(f"  {line}", style="dim"))
        return
    # Without styles this is many times faster: a pipe may get a hundred thousand rows.
    sys.stdout.write(_aligned(columns, widths) + "\n")
    for row, below in listed:
        sys.stdout.write(_aligned(row, widths) + "\n")
        sys.stdout.writelines(f"  {line}\n" for line in below)


def numbers(head: str, values: Sequence[int]) -> list[str]:
    """A column of numbers for such a table, head first, aligned to the right."""
    texts = [head, *[f"{value:,}" for value in values]]
    width = max(map(len, texts))
    return [text.rjust(width) for text in texts]


def fitted(text: str, indent: int = 2) -> str:
    """Text cut to the rest of a terminal's line; whole if the output is no terminal."""
    if not sys.stdout.isatty():
        return text
    return shortened(text, max(10, shutil.get_terminal_size().columns - indent))


def wrapped(text: str, indent: int = 2) -> list[str]:
    """Text in lines of a terminal's width, later lines indented; whole without a terminal."""
    if not sys.stdout.isatty():
        return [text]
    words = text.lstrip()
    begin = text[: len(text) - len(words)]
    width = shutil.get_terminal_size().columns
    return textwrap.wrap(
        words,
        max(20, width),
        initial_indent=begin,
        subsequent_indent=begin + " " * indent,
        break_on_hyphens=False,
    ) or [text]


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [f"{cell}{' ' * (n - cell_len(cell))}" for cell, n in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def _is_numeric(cells: Sequence[object]) -> bool:
    given = [cell for cell in cells if cell is not None]
    return bool(given) and all([type(cell) in (int, float) for cell in given])


def out() -> Console:
    """The standard output, for tables; with colours only on a terminal."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = _WIDTH_MAX
    return console


def progress_console() -> Console:
    """The standard error, for progress, so that the output has only the result."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def print_lines(lines: Iterable[str]) -> None:
    """Print each sentence on a line of its own."""
    sys.stdout.write("".join([printable(line) + "\n" for line in lines]))


def note(sentence: str) -> None:
    """Print a sentence on standard error."""
    sys.stderr.write(printable(sentence) + "\n")


def can_ask() -> bool:
    """Is there a terminal for a question and its answer?"""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_confirmed(question: str, otherwise: str = "nothing was changed") -> bool:
    """Ask on standard error; only y or yes confirms, after another answer comes `otherwise`."""
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        sys.stderr.write("\n")
    is_yes = answer.strip().lower() in ("y", "yes")
    if not is_yes:
        note(otherwise)
    return is_yes


def error_line(error: RmqliteError) -> str:
    """An error on one line: what is wrong, then the rule if the sentence lacks it."""
    sentence = str(error)
    # The sentence of a wrong value has the rule's parts, with the value between.
    is_in = all(part in sentence for part in re.split(": |; ", error.rule or ""))
    rule = "" if is_in else f" ({error.rule})"
    return printable(f"error: {sentence}{rule}")
