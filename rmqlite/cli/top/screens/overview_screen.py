"""The first screen: rates, levels, groups, redrives."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from rmqlite.cli.top import overview
from rmqlite.cli.top.prompt import Prompt
from rmqlite.cli.top.screens.frames import TALL, Frame
from rmqlite.cli.top.widgets import Lines, Rows

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
_SORTS = tuple(overview.SORTS)


class Overview(Frame):
    """The groups have the focus, because enter opens a group."""

    CSS = """
    Overview #rates { margin-bottom: 1; }
    Overview #first { height: 1fr; }
    Overview.-wide #tables { layout: horizontal; }
    Overview.-wide #levels { margin-right: 2; }
    Overview #jobs { max-height: 6; }
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
        self._rates.show(*overview.rate_lines(picture, width, height))
        all_levels = is_tall if self._all_levels is None else self._all_levels
        levels, groups = self._levels, self._groups
        levels.show(overview.levels_table(picture, now_s, all_levels=all_levels))
        groups.show(overview.groups_table(picture, sort=self._sort, wanted=self._wanted))
        room = self._tables.size.height
        if width < _WIDE:
            # Levels get the room that groups leave, and at least half of it.
            room = max(room // 2, room - groups.height_wanted)
        levels.styles.max_height = max(_LEVELS_LINES_MIN, room)
        self._jobs.display = bool(overview.shown_jobs(picture))
        self._jobs.show(overview.jobs_table(picture))

    def on_rows_opened(self, message: Rows.Opened) -> None:
        if message.rows is self._groups:
            self.top.open_group(message.key)
        elif message.rows is self._jobs:
            jobs = {job.job_id: job for job in self.top.picture.jobs}
            self.top.open_group(jobs[message.key].spec.group)

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
