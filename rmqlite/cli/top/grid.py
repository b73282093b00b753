"""Tables as lines of text that fit a width: columns shrink, then disappear; a line never wraps.

This module uses no terminal.  It escapes the text of every cell, so that no text of a client
reaches a screen unescaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size

from rmqlite.cli.output.terminal import cell_text, printable

GAP: Final = 2
"""Columns of a terminal between two columns of a table."""
ELLIPSIS: Final = "…"
NOTHING: Final = "-"
"""The cell of a missing value; a ranked column with only such cells is left out."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some text of a line in one tone: good, warn, bad, dim, head, or none."""

    text: str
    tone: str = ""


Line = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """right: aligned to the right.  is_short: may be shortened, down to least and its own name.
    rank: without room the column with the highest rank above 0 disappears first.
    """

    name: str
    right: bool = False
    is_short: bool = False
    rank: int = 0
    least: int = 6


@dataclass(frozen=True, slots=True)
class Row:
    """key: the cursor finds the row by it after rows moved."""

    key: str
    cells: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """empty: the text shown without rows."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    empty: str = "none"


def cell(value: object, tone: str = "") -> Part:
    """The cell of a value; numbers are grouped in thousands, text is escaped."""
    return Part(cell_text(value), tone)


def row(key: str, *values: object) -> Row:
    """A row; each value is a Part already, or becomes one."""
    return Row(key, tuple([v if isinstance(v, Part) else cell(v) for v in values]))


def shortened(text: str, width: int) -> str:
    """The beginning of a text that fits, with an ellipsis if it was cut."""
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    return set_cell_size(text, width - 1).rstrip() + ELLIPSIS


def widths(table: Table, width: int) -> tuple[int, ...]:
    """The width of each column in a line of this width; 0: the column is left out."""
    columns = table.columns
    found = [cell_len(column.name) for column in columns]
    for each in table.rows:
        for n, part in enumerate(each.cells):
            if len(part.text) > found[n] or not part.text.isascii():
                found[n] = max(found[n], cell_len(part.text))
    for n, column in enumerate(columns):
        if column.rank and table.rows and all([r.cells[n].text == NOTHING for r in table.rows]):
            found[n] = 0
    found = [min(size, width) if columns[n].is_short else size for n, size in enumerate(found)]
    while _total(found) > width:
        shrinkable = [n for n, c in enumerate(columns) if c.is_short and found[n] > _least(c)]
        droppable = [n for n, c in enumerate(columns) if c.rank and found[n]]
        if shrinkable:
            found[max(shrinkable, key=lambda n: found[n])] -= 1
        elif droppable:
            found[max(droppable, key=lambda n: columns[n].rank)] = 0
        else:
            break
    return tuple(found)


def _least(column: Column) -> int:
    return max(column.least, cell_len(column.name))


def _total(found: Sequence[int]) -> int:
    shown = [n for n in found if n]
    return sum(shown) + GAP * max(0, len(shown) - 1)


def head(table: Table, sizes: Sequence[int]) -> Line:
    """The columns' names."""
    names = [Part(column.name, "head") for column in table.columns]
    return aligned(names, table.columns, sizes)


def aligned(cells: Sequence[Part], columns: Sequence[Column], sizes: Sequence[int]) -> Line:
    """The cells of one line, each in its width."""
    parts: list[Part] = []
    for part, column, size in zip(cells, columns, sizes, strict=True):
        if not size:
            continue
        if parts:
            parts.append(Part(" " * GAP))
        text = shortened(part.text, size)
        space = " " * (size - cell_len(text))
        parts.append(Part(space + text if column.right else text + space, part.tone))
    return tuple(parts)


def title(text: str, width: int) -> Line:
    """A rule over the whole width with a title in it."""
    shown = shortened(printable(text), max(0, width - 4))
    rule = "─" * max(0, width - cell_len(shown) - 3)
    return cut((Part("─ ", "dim"), Part(shown, "head"), Part(f" {rule}", "dim")), width)


def spread(left: Line, right: Line, width: int) -> Line:
    """A line with a left and a right end; the left one is cut first."""
    room = width - length(right) - (1 if right else 0)
    kept = cut(left, room)
    return (*kept, Part(" " * max(0, width - length(kept) - length(right))), *right)


def cut(line: Line, width: int) -> Line:
    """A line cut to a width, with an ellipsis if more than blanks is missing."""
    kept: list[Part] = []
    left = width
    for n, part in enumerate(line):
        size = cell_len(part.text)
        if size > left:
            rest = "".join([each.text for each in line[n:]]).rstrip()
            text = part.text if cell_len(rest) > left else rest
            return (*kept, Part(shortened(text, left), part.tone)) if left > 0 else tuple(kept)
        kept.append(part)
        left -= size
    return tuple(kept)


def length(line: Line) -> int:
    return sum([cell_len(part.text) for part in line])


def text_of(line: Line) -> str:
    """The text of a line without tones, for a file or a test."""
    return "".join([part.text for part in line]).rstrip()


def lines_of(table: Table, width: int) -> list[Line]:
    """A table in full: title, head, rows."""
    lines = [title(table.title, width)]
    if not table.rows:
        return [*lines, (Part(shortened(printable(table.empty), width), "dim"),)]
    sizes = widths(table, width)
    rows = [aligned(each.cells, table.columns, sizes) for each in table.rows]
    return lines + [cut(line, width) for line in (head(table, sizes), *rows)]


def wrapped(text: str, width: int) -> list[str]:
    """One line of printable text in pieces that fit; nothing is left out."""
    width = max(2, width)
    if cell_len(text) <= width:
        return [text]
    if text.isascii():
        return [text[n : n + width] for n in range(0, len(text), width)]
    pieces, piece, size = [], "", 0
    for character in text:
        wide = cell_len(character)
        if size + wide > width:
            pieces.append(piece)
            piece, size = "", 0
        piece += character
        size += wide
    return [*pieces, piece]
