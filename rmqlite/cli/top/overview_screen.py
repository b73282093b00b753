"""The first screen: rates, levels, groups, redrives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from rmqlite.cli.output.grid import Line, cut
from rmqlite.cli.status import Picture
from rmqlite.cli.top.app import TALL, Frame
from rmqlite.cli.top.group_screen import GroupScreen
from rmqlite.cli.top.widgets import Lines, Prompt, Rows
from rmqlite.views.groups import SORTS, groups_table
from rmqlite.views.jobs import redrives_table
from rmqlite.views.levels import levels_table
from rmqlite.views.numbers import COUNTED, rate_text
from rmqlite.views.tables import Tone

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_CHART_LINES = 5
_WIDE = 150
"""A terminal with this many columns has room for levels and groups side by side."""
_LEVELS_LINES_MIN = 3
_KEYS = (
    ("enter", "group"),
    ("/", "filter"),
    ("s", "sort"),
    ("l", "levels"),
    ("p", "pause"),
    ("q", "quit"),
)
_SORTS = tuple(SORTS)


def rate_lines(picture: Picture, width: int, height: int) -> list[Line]:
    """The rates per second, each with a chart of its last minutes."""
    size = max(12, (width - 2 * (len(COUNTED) - 1)) // len(COUNTED))
    lines: list[list[Tone]] = [[] for _ in range(height + 1)]
    for name in COUNTED:
        tone = "bad" if name == "dead" and picture.rates.now(name) else ""
        label, rate = f"{name}/s ".upper(), rate_text(picture.rates.now(name))
        gap = Tone("  " if lines[0] else "")
        rest = max(0, size - len(label) - len(rate))
        lines[0] += [gap, Tone(label, "dim"), Tone(rate + " " * rest, tone or "head")]
        for line, text in zip(
            lines[1:], chart(picture.rates.history[name], size, height), strict=True
        ):
            line += [gap, Tone(text, tone or "line")]
    return [cut(tuple(line), width) for line in lines]


def chart(rates: Iterable[float | None], width: int, height: int) -> list[str]:
    """The last rates as blocks, from the top down; the highest takes the whole height.

    A step without a rate is blank, one without messages a thin line.
    """
    shown = list(rates)[-width:] if width > 0 else []
    most = max([each for each in shown if each is not None], default=0.0)
    eighths = [_eighths(each, most, height) for each in shown]
    return [
        "".join([_BLOCKS[max(0, min(8, each - 8 * line))] for each in eighths]).rjust(width)
        for line in reversed(range(height))
    ]


def _eighths(rate: float | None, most: float, height: int) -> int:
    if rate is None:
        return 0
    if rate <= 0:
        return 1
    # Any rate above 0 differs from the line of 0.
    return max(2, int(rate / most * 8 * height))


class OverviewScreen(Frame):
    """The groups have the focus, because enter opens a group."""

    CSS = """
    OverviewScreen #rates { margin-bottom: 1; }
    OverviewScreen #first { height: 1fr; }
    OverviewScreen.-wide #tables { layout: horizontal; }
    OverviewScreen.-wide #levels { margin-right: 2; }
    OverviewScreen #jobs { max-height: 6; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", show=False),
        Binding("s", "sort", show=False),
        Binding("l", "levels", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._sort = _SORTS[0]
        self._wanted = ""
        self._all_levels: bool | None = None
        self._rates = Lines(id="rates")
        self._tables = Container(id="tables")
        self._levels = Rows(id="levels")
        self._groups = Rows(id="first")
        self._jobs = Rows(id="jobs")
        self._prompt = Prompt("part of a group's name")

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        return _KEYS

    def content(self) -> ComposeResult:
        yield self._rates
        with self._tables:
            yield self._levels
            yield self._groups
        yield self._jobs
        yield self._prompt

    def draw_content(self, now_s: float, width: int) -> None:
        picture = self.top.picture
        self.set_class(width >= _WIDE, "-wide")
        is_tall = self.app.size.height >= TALL
        height = _CHART_LINES if is_tall else 1
        self._rates.show(*rate_lines(picture, width, height))
        all_levels = is_tall if self._all_levels is None else self._all_levels
        levels, groups = self._levels, self._groups
        levels.show(levels_table(picture.status, picture.now_ms(now_s), all_levels=all_levels))
        groups.show(groups_table(picture.groups(), sort=self._sort, wanted=self._wanted))
        room = self._tables.size.height
        if width < _WIDE:
            # Levels get the room that groups leave, and at least half of it.
            room = max(room // 2, room - groups.height_wanted)
        levels.styles.max_height = max(_LEVELS_LINES_MIN, room)
        jobs = picture.shown_jobs()
        self._jobs.display = bool(jobs)
        self._jobs.show(redrives_table(jobs))

    def on_rows_opened(self, message: Rows.Opened) -> None:
        if message.rows is self._groups:
            self._open(message.key)
        elif message.rows is self._jobs:
            jobs = {job.job_id: job for job in self.top.picture.jobs}
            self._open(jobs[message.key].spec.group)

    def _open(self, group: str) -> None:
        self.app.push_screen(GroupScreen(group))
        self.top.ask_round()

    def action_sort(self) -> None:
        self._sort = _SORTS[(_SORTS.index(self._sort) + 1) % len(_SORTS)]
        self.draw()

    def action_levels(self) -> None:
        is_tall = self.app.size.height >= TALL
        self._all_levels = not (is_tall if self._all_levels is None else self._all_levels)
        self.draw()

    def action_filter(self) -> None:
        self._prompt.open(self._wanted)

    def on_prompt_wanted(self, message: Prompt.Wanted) -> None:
        self._wanted = message.text
        self.draw()

    def on_prompt_closed(self) -> None:
        self._groups.focus()
