"""The widgets: lines, a table with a cursor, a page that scrolls, and a line for a filter.

They draw only parts of text in tones: they never parse markup, and the last step before the screen
escapes text once more.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from rmqlite.cli.output.grid import Line, aligned, cut, head, length, title, widths, wrapped
from rmqlite.cli.output.terminal import printable, shortened
from rmqlite.views.tables import Table, Tone

TONES: Final = ("good", "warn", "bad", "dim", "head", "line")
_PROMPT_CHARS_MAX: Final = 200
_ABOVE_ROWS: Final = 2
"""Lines of a table above its rows: the title and the names of the columns."""


class Drawn(Widget):
    """Draws lines; its tones are the theme's colours."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"tone--{tone}" for tone in TONES} | {"tone--cursor"}
    DEFAULT_CSS = """
    Drawn .tone--good { color: $text-success; }
    Drawn .tone--warn { color: $text-warning; text-style: bold; }
    Drawn .tone--bad { color: $text-error; text-style: bold; }
    Drawn .tone--dim { color: $text-muted; }
    Drawn .tone--head { text-style: bold; }
    Drawn .tone--line { color: $text-primary; }
    Drawn .tone--cursor { background: $primary 40%; text-style: bold; }
    Drawn:nocolor .tone--cursor { text-style: bold reverse; }
    """

    def strip(self, line: Line, *, is_cursor: bool = False) -> Strip:
        """A line over the whole width."""
        width = self.size.width
        plain = self.rich_style
        cursor = self.get_component_rich_style("tone--cursor") if is_cursor else Style.null()
        segments = []
        for part in cut(line, width):
            style = self.get_component_rich_style(f"tone--{part.tone}") if part.tone else plain
            segments.append(Segment(printable(part.text), style + cursor))
        return Strip(segments).adjust_cell_length(width, plain + cursor)


class Lines(Drawn):
    """Some lines; the widget is as high as they are."""

    DEFAULT_CSS = "Lines { height: auto; width: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()

    def show(self, *lines: Line) -> None:
        if lines != self._lines:
            is_other_height = len(lines) != len(self._lines)
            self._lines = lines
            self.refresh(layout=is_other_height)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        del container, viewport, width
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        return self.strip(self._lines[y] if y < len(self._lines) else ())


class Scrolled(Drawn, can_focus=True):
    """Draws more lines than it has room for: keys move in them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("pagedown,ctrl+f,space", "turn(1)", show=False),
        Binding("pageup,ctrl+b", "turn(-1)", show=False),
        Binding("home,g", "edge(0)", show=False),
        Binding("end,G", "edge(-1)", show=False),
    ]

    _at = 0
    """The line that keys move: the cursor's, or the uppermost one."""

    @abstractmethod
    def _go(self, at: int) -> None:
        """Move to this line, or the nearest one that is there."""

    @property
    @abstractmethod
    def _shown(self) -> int:
        """How many of the lines there is room for."""

    def action_move(self, by: int) -> None:
        self._go(self._at + by)

    def action_turn(self, by: int) -> None:
        self._go(self._at + by * max(1, self._shown))

    def action_edge(self, end: int) -> None:
        self._go(0 if end == 0 else sys.maxsize)

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()


class Rows(Scrolled, can_focus=True):
    """A table with a cursor that stays on its row when rows move.

    The cursor is visible while the table has the focus; the table is as high as its rows, within
    its style.
    """

    DEFAULT_CSS = "Rows { height: auto; width: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", show=False)]

    class Opened(Message):
        """Enter on a row."""

        def __init__(self, rows: Rows, key: str) -> None:
            super().__init__()
            self.rows = rows
            self.key = key

    class Moved(Message):
        """The cursor is on another row; left: the number of rows below it."""

        def __init__(self, rows: Rows, left: int) -> None:
            super().__init__()
            self.rows = rows
            self.left = left

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.table = Table("", (), ())
        self._top = 0
        self._sizes: tuple[int, ...] = ()
        self._sized_for = (self.table, 0)

    def show(self, table: Table) -> None:
        """Show another state of the same table; the cursor follows its row."""
        if table == self.table:
            return
        key = self.key
        is_other_height = len(table.rows) != len(self.table.rows)
        self.table = table
        keys = [each.key for each in table.rows]
        # A cursor on the first row stays there: new rows appear at the top.
        if self._at and key in keys:
            self._at = keys.index(key)
        self._at = max(0, min(self._at, len(keys) - 1))
        self._scroll_to_cursor()
        self.refresh(layout=is_other_height)

    @property
    def key(self) -> str:
        """The key of the row under the cursor; empty without rows."""
        rows = self.table.rows
        return rows[self._at].key if self._at < len(rows) else ""

    @property
    def left(self) -> int:
        """How many rows are below the cursor."""
        return len(self.table.rows) - self._at - 1

    def action_open(self) -> None:
        if self.key:
            self.post_message(self.Opened(self, self.key))

    @property
    def _shown(self) -> int:
        return max(0, self.size.height - _ABOVE_ROWS)

    def _go(self, at: int) -> None:
        self._at = max(0, min(at, len(self.table.rows) - 1))
        self._scroll_to_cursor()
        self.refresh()
        self.post_message(self.Moved(self, self.left))

    def _scroll_to_cursor(self) -> None:
        shown = max(1, self._shown)
        self._top = max(0, min(self._top, self._at, len(self.table.rows) - shown))
        self._top = max(self._top, self._at - shown + 1)

    @property
    def _widths(self) -> tuple[int, ...]:
        # Every line needs the widths, and they need every cell, so they are cached.
        table, width = self._sized_for
        if table is not self.table or width != self.size.width:
            self._sized_for = (self.table, self.size.width)
            self._sizes = widths(*self._sized_for)
        return self._sizes

    def on_resize(self) -> None:
        self._scroll_to_cursor()
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        del container, viewport, width
        return self.height_wanted

    @property
    def height_wanted(self) -> int:
        """The height with all rows."""
        return max(1, len(self.table.rows)) + (_ABOVE_ROWS if self.table.rows else 1)

    def render_line(self, y: int) -> Strip:
        table = self.table
        if y == 0:
            return self.strip(title(self._title(), self.size.width))
        if not table.rows:
            empty = (Tone(shortened(printable(table.empty), self.size.width), "dim"),)
            return self.strip(empty if y == 1 else ())
        if y == 1:
            return self.strip(head(table, self._widths))
        number = y - _ABOVE_ROWS + self._top
        if number >= len(table.rows):
            return self.strip(())
        line = aligned(table.rows[number].cells, table.columns, self._widths)
        return self.strip(line, is_cursor=self.has_focus and number == self._at)

    def _title(self) -> str:
        count = len(self.table.rows)
        if count <= self._shown:
            return self.table.title
        return f"{self.table.title} [{self._top + 1:,}-{self._top + self._shown:,} of {count:,}]"


class TextPage(Scrolled, can_focus=True):
    """Lines that are wrapped, and scroll."""

    DEFAULT_CSS = "TextPage { height: 1fr; width: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._heading = ""
        self._whole: Sequence[Line] = ()
        self._lines: list[Line] = []

    def show(self, name: str, lines: Sequence[Line]) -> None:
        """Show other content, from its top."""
        self._heading, self._whole, self._at = name, lines, 0
        self._wrap()

    @property
    def _shown(self) -> int:
        return max(1, self.size.height - 1)

    def _go(self, at: int) -> None:
        self._at = max(0, min(at, len(self._lines) - self._shown))
        self.refresh()

    def _wrap(self) -> None:
        self._lines = [each for line in self._whole for each in wrapped_line(line, self.size.width)]
        self._go(self._at)

    def on_resize(self) -> None:
        self._wrap()

    def render_line(self, y: int) -> Strip:
        if y == 0:
            return self.strip(title(self._title(), self.size.width))
        number = y - 1 + self._at
        return self.strip(self._lines[number] if number < len(self._lines) else ())

    def _title(self) -> str:
        count = len(self._lines)
        mark = " ◂" if self.has_focus else ""
        if count <= self._shown:
            return self._heading + mark
        last = min(count, self._at + self._shown)
        return f"{self._heading} [{self._at + 1:,}-{last:,} of {count:,}]{mark}"


def wrapped_line(line: Line, width: int) -> list[Line]:
    """A line wrapped to a width; later pieces are indented below the last part's beginning."""
    if length(line) <= width or not line:
        return [line]
    *before, last = line
    indent = length(tuple(before))
    if indent > width // 2:
        text = "".join([part.text for part in line])
        return [(Tone(piece, last.tone),) for piece in wrapped(text, width)]
    first, *rest = wrapped(last.text, width - indent)
    return [(*before, Tone(first, last.tone))] + [
        (Tone(" " * indent), Tone(piece, last.tone)) for piece in rest
    ]


class Prompt(Input):
    """A line in which a user types a filter, hidden until open().

    Enter applies the text, escape leaves the old filter.
    """

    DEFAULT_CSS = """
    Prompt { height: 1; border: none; padding: 0; display: none; }
    Prompt:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False)]

    class Wanted(Message):
        """The new filter."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Closed(Message):
        """The prompt is hidden again."""

    def __init__(self, placeholder: str) -> None:
        super().__init__(placeholder=placeholder, max_length=_PROMPT_CHARS_MAX, compact=True)

    def open(self, text: str) -> None:
        self.value = text
        self.display = True
        self.focus()

    def action_give_up(self) -> None:
        self._close()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Wanted(event.value.strip()))
        self._close()

    def _close(self) -> None:
        self.display = False
        self.post_message(self.Closed())
