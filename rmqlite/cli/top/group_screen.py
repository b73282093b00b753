"""One group: its dead letters, retries, queues and members; it asks only for the visible tab."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from rmqlite.cli.top.app import Frame
from rmqlite.cli.top.message_lists import (
    FILTER_HELP,
    Loaded,
    dead_table,
    first_query,
    group_line,
    letter_key,
    reasons_line,
    retries_table,
)
from rmqlite.cli.top.message_screen import MessageScreen
from rmqlite.cli.top.widgets import Lines, Prompt, Rows
from rmqlite.client import AdminClient, DeadLetter, DeadLetterPage, DeadLettersQuery
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.views.groups import members_table, progress_table
from rmqlite.views.tables import Table, Tone

TABS: Final = ("dead letters", "retries", "queues", "members")
_LISTS: Final = TABS[:2]
_KEYS: Final = {
    TABS[0]: (
        *(("enter", "message"), ("/", "filter"), ("s", "order")),
        *(("R", "redrive"), ("P", "publish")),
    ),
    TABS[1]: (("enter", "message"), ("/", "filter"), ("n", "now"), ("c", "cancel")),
}
_RELOAD_EVERY_S: Final = 5.0
_NEAR_THE_END: Final = 20
"""With fewer rows than this below the cursor the screen asks for the next page."""
_PAGES_AT_ONCE_MAX: Final = 50
"""After this many pages without a match the user has to ask for more."""


class GroupScreen(Frame):
    CSS = "GroupScreen #first { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        *[Binding(f"{n + 1}", f"tab({n})", show=False) for n in range(len(TABS))],
        Binding("right", "turn_tab(1)", show=False),
        Binding("left", "turn_tab(-1)", show=False),
        Binding("escape,backspace", "app.pop_screen", show=False),
        Binding("slash", "filter", show=False),
        Binding("s", "order", show=False),
    ]

    def __init__(self, group: str) -> None:
        super().__init__()
        self.group = group
        self._tab = 0
        self._wanted = ""
        self._newest_first = True
        self._loaded: dict[str, Loaded] = {}
        self._about = Lines()
        self._rows = Rows(id="first")
        self._prompt = Prompt(FILTER_HELP)
        self._asking: Loaded | None = None
        """The list to which the page under way will be added."""

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        return (("1-4", "lists"), *_KEYS.get(self._shown, ()), ("esc", "back"))

    def content(self) -> ComposeResult:
        yield self._about
        yield self._rows
        yield self._prompt

    def on_mount(self) -> None:
        figures = self.top.picture.figures(self.group)
        if not figures.dead:
            self._tab = 1 if figures.waiting or figures.due else 2
        self.reload()

    # ---- drawing

    def draw_content(self, now_s: float, width: int) -> None:
        picture = self.top.picture
        tabs = [
            Tone(f"[{n + 1} {name}] ", "head")
            if n == self._tab
            else Tone(f" {n + 1} {name}  ", "dim")
            for n, name in enumerate(TABS)
        ]
        lines = [group_line(picture, self.group, width), tuple(tabs)]
        if self._shown == TABS[0]:
            reasons = reasons_line((picture.dead or {}).get(self.group), width)
            lines += [reasons] if reasons else []
        self._about.show(*lines)
        if picture.status is not None:
            self._rows.show(self._table(picture.now_ms(now_s)))
        loaded = self._loaded.get(self._shown)
        if loaded and loaded.pages <= 1 and not self._asking and not self.top.is_paused:
            # Refresh a list of one page; a longer one would move under its reader.
            age_s = self.top.elapsed() - loaded.at_s
            if loaded.at_s and age_s >= max(_RELOAD_EVERY_S, self.top.interval_s):
                self._load(self._fresh(), is_first=True)

    def _table(self, now_ms: int) -> Table:
        status = self.top.picture.described.get(self.group)
        loaded = self._loaded.get(self._shown, self._fresh())
        if self._shown == "dead letters":
            return dead_table(loaded, now_ms, self._wanted, newest_first=self._newest_first)
        if self._shown == "retries":
            of_group = status.info.max_reconsume_times + 1 if status else None
            return retries_table(loaded, of_group, now_ms, self._wanted)
        if self._shown == "queues":
            return progress_table(status.progress if status else (), now_ms)
        return members_table(status.members if status else (), now_ms)

    @property
    def _shown(self) -> str:
        return TABS[self._tab]

    # ---- pages

    def reload(self) -> None:
        """Load the visible list from its first page."""
        if self._shown in _LISTS:
            self._load(self._fresh(), is_first=True)

    def _fresh(self) -> Loaded:
        newest_first = self._newest_first and self._shown == TABS[0]
        return Loaded(first_query(self.group, self._wanted, newest_first=newest_first))

    def _load(self, loaded: Loaded, *, is_first: bool = False) -> None:
        """Load the next page of a list; the old rows stay until it arrives."""
        if loaded.query is None or loaded.is_full or (self._asking and not is_first):
            return
        if not self.is_attached:
            return  # The screen is closed.
        name = self._shown
        self._asking = loaded

        def asked(query: DeadLettersQuery, admin: AdminClient) -> DeadLetterPage:
            letters = admin.dead_letters
            return letters.list_dead(query) if name == TABS[0] else letters.list_retries(query)

        self.top.call(partial(asked, loaded.query), partial(self._take, name, loaded))

    def _take(self, name: str, loaded: Loaded, page: DeadLetterPage | RmqliteError) -> None:
        if self._asking is not loaded:
            return  # Meanwhile the user asked for another list.
        self._asking = None
        now_s = self.top.elapsed()
        if isinstance(page, RmqliteError):
            before = self._loaded.get(name, loaded)
            self._loaded[name] = before.failed(page, now_s)
            self.draw()
            return
        loaded = loaded.taken(page, now_s)
        self._loaded[name] = loaded
        if not page.letters and loaded.pages < _PAGES_AT_ONCE_MAX and name == self._shown:
            self._load(loaded)
        self.draw()

    def on_rows_moved(self, message: Rows.Moved) -> None:
        loaded = self._loaded.get(self._shown)
        if loaded and self._shown in _LISTS and message.left < _NEAR_THE_END:
            self._load(loaded)

    # ---- keys

    def action_tab(self, tab: int) -> None:
        self._tab = tab
        self._asking = None
        self.reload()
        self.draw()

    def action_turn_tab(self, by: int) -> None:
        self.action_tab((self._tab + by) % len(TABS))

    def action_order(self) -> None:
        self._newest_first = not self._newest_first
        self._again()

    def action_filter(self) -> None:
        if self._shown in _LISTS:
            self._prompt.open(self._wanted)

    def on_prompt_wanted(self, message: Prompt.Wanted) -> None:
        self._wanted = message.text
        self._again()

    def on_prompt_closed(self) -> None:
        self._rows.focus()

    def _again(self) -> None:
        self._loaded.clear()
        self.reload()
        self.draw()

    def on_rows_opened(self) -> None:
        letter = self.letter
        if letter is not None:
            self.app.push_screen(MessageScreen(letter))

    @property
    def letter(self) -> DeadLetter | None:
        key = self._rows.key
        loaded = self._loaded.get(self._shown)
        letters = loaded.letters if loaded else ()
        return next((each for each in letters if letter_key(each) == key), None)
