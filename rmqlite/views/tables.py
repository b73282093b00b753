"""A table as plain values: a command prints it, a full screen fits it in, a page makes links of it.

The text of every cell is escaped here, so that no text of a client reaches a screen unescaped.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rmqlite.kernel.words.visible import printable

NOTHING: Final = "-"
"""The cell of a missing value; a ranked column with only such cells is left out."""
GOOD: Final = "good"
WARN: Final = "warn"
BAD: Final = "bad"
DIM: Final = "dim"


class Subject(enum.Enum):
    """What a text is about, so that a page can lead there."""

    DISK = "disk"
    LEVELS = "levels"
    DEAD_LETTERS = "dead letters"
    REASONS = "reasons"
    UNDELIVERABLE = "undeliverable"
    GROUPS = "groups"
    RETRIES = "retries"
    REDRIVE = "redrive"
    BULK = "bulk job"


@dataclass(frozen=True, slots=True)
class Tone:
    """Some text in one tone: good, warn, bad, dim, head, or none.

    about, names: the thing that it is about.  share: drawn as a bar before the text, 0 to 1.
    """

    text: str
    tone: str = ""
    about: Subject | None = None
    names: tuple[str, ...] = ()
    share: float | None = None


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
class TableRow:
    """key: names the row after rows have moved."""

    key: str
    cells: tuple[Tone, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """empty: the text shown without rows."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    empty: str = "none"


def table(
    title: str, columns: Sequence[Column], rows: Iterable[TableRow], empty: str = "none"
) -> Table:
    """A table without the ranked columns that no row has a value for."""
    rows = tuple(rows)
    shown = [
        n
        for n, column in enumerate(columns)
        if not (rows and column.rank and all([row.cells[n].text == NOTHING for row in rows]))
    ]
    return Table(
        title,
        tuple([columns[n] for n in shown]),
        tuple([TableRow(row.key, tuple([row.cells[n] for n in shown])) for row in rows]),
        empty,
    )


def cell_text(value: object) -> str:
    """The text of a value in a table; numbers are grouped in thousands."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return printable(str(value))


def cell(value: object, tone: str = "", about: Subject | None = None, *names: str) -> Tone:
    """The cell of a value; it leads to what it is about."""
    return Tone(cell_text(value), tone, about, names)


def row(key: str, *values: object) -> TableRow:
    """A row; each value is a Part already, or becomes one."""
    return TableRow(key, tuple([v if isinstance(v, Tone) else cell(v) for v in values]))
