"""Tables as lines of text, as a screen of a width draws them."""

from __future__ import annotations

from rmqlite.cli.output.grid import Line, aligned, cut, head, shortened, title, widths
from rmqlite.cli.output.terminal import printable
from rmqlite.views.tables import Table, Tone


def text_of(line: Line) -> str:
    """The text of a line without tones."""
    return "".join([part.text for part in line]).rstrip()


def lines_of(table: Table, width: int) -> list[Line]:
    """A table in full: title, head, rows."""
    lines = [title(table.title, width)]
    if not table.rows:
        return [*lines, (Tone(shortened(printable(table.empty), width), "dim"),)]
    sizes = widths(table, width)
    rows = [aligned(each.cells, table.columns, sizes) for each in table.rows]
    return lines + [cut(line, width) for line in (head(table, sizes), *rows)]
