"""Tables as lines of text that fit a width: columns shrink, then disappear; a line never wraps.

This module uses no terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from rmqlite.kernel.words.visible import printable
from rmqlite.views.tables import Column, Table, Tone

GAP: Final = 2
"""Columns of a terminal between two columns of a table."""
_BAR_COLUMNS: Final = 12

Line = tuple[Tone, ...]


def cell_shown(part: Tone) -> str:
    """The text of a cell, behind the bar of its share."""
    if part.share is None:
        return part.text
    whole = int(part.share * _BAR_COLUMNS)
    return f"{'█' * whole}{'░' * (_BAR_COLUMNS - whole)} {part.text}"


def shortened(text: str, width: int) -> str:
    """A printable text cut to this many columns, with … at the cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def widths(table: Table, width: int) -> tuple[int, ...]:
    """The width of each column in a line of this width; 0: the column is left out."""
    columns = table.columns
    found = [cell_len(column.name) for column in columns]
    for each in table.rows:
        for n, part in enumerate(each.cells):
            text = cell_shown(part)
            if len(text) > found[n] or not text.isascii():
                found[n] = max(found[n], cell_len(text))
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
    names = [Tone(column.name, "head") for column in table.columns]
    return aligned(names, table.columns, sizes)


def aligned(cells: Sequence[Tone], columns: Sequence[Column], sizes: Sequence[int]) -> Line:
    """The cells of one line, each in its width."""
    parts: list[Tone] = []
    for part, column, size in zip(cells, columns, sizes, strict=True):
        if not size:
            continue
        if parts:
            parts.append(Tone(" " * GAP))
        text = shortened(cell_shown(part), size)
        space = " " * (size - cell_len(text))
        parts.append(Tone(space + text if column.right else text + space, part.tone))
    return tuple(parts)


def title(text: str, width: int) -> Line:
    """A rule over the whole width with a title in it."""
    shown = shortened(printable(text), max(0, width - 4))
    rule = "─" * max(0, width - cell_len(shown) - 3)
    return cut((Tone("─ ", "dim"), Tone(shown, "head"), Tone(f" {rule}", "dim")), width)


def spread(left: Line, right: Line, width: int) -> Line:
    """A line with a left and a right end; the left one is cut first."""
    room = width - length(right) - (1 if right else 0)
    parts = cut(left, room)
    return (*parts, Tone(" " * max(0, width - length(parts) - length(right))), *right)


def cut(line: Line, width: int) -> Line:
    """A line cut to a width, with an ellipsis if more than blanks is missing."""
    parts: list[Tone] = []
    left = width
    for n, part in enumerate(line):
        size = cell_len(part.text)
        if size > left:
            rest = "".join([each.text for each in line[n:]]).rstrip()
            text = part.text if cell_len(rest) > left else rest
            return (*parts, Tone(shortened(text, left), part.tone)) if left > 0 else tuple(parts)
        parts.append(part)
        left -= size
    return tuple(parts)


def length(line: Line) -> int:
    return sum([cell_len(part.text) for part in line])


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
