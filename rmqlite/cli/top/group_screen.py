"""One group: its dead letters, retries, queues and members; it asks only for the visible tab.

Retries and dead letters are listed page by page, with a filter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from rmqlite.cli.output.grid import Line, cut
from rmqlite.cli.output.terminal import printable
from rmqlite.cli.status import Picture, why
from rmqlite.cli.top.app import Frame
from rmqlite.cli.top.message_screen import MessageScreen
from rmqlite.cli.top.widgets import Lines, Prompt, Rows
from rmqlite.client import (
    AdminClient,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
)
from rmqlite.features.failure_kinds import failure_kind
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.views.groups import members_table, progress_table
from rmqlite.views.messages import attempt_text, origin_text, reason_line
from rmqlite.views.numbers import counted, instant_text, span_text, until_text
from rmqlite.views.tables import DIM, NOTHING, Column, Table, Tone, cell, row, table

PAGE_LETTERS: Final = 100
LOADED_MAX: Final = 2_000
"""The most letters loaded of a list; a filter finds the others."""
_FIELDS: Final = ("topic", "tag", "key")
FILTER_HELP: Final = "topic=T tag=T key=K id=ID kind=KIND, other words: part of the reason"
_REASON_LEAST: Final = 30
"""The width of a reason that is more useful than a key or a tag."""
_MESSAGE: Final = (
    Column("TOPIC", is_short=True),
    Column("KEYS", is_short=True, rank=3),
    Column("TAG", is_short=True, rank=4),
    Column("REASON", is_short=True, least=_REASON_LEAST),
)
_RETRIES: Final = (Column("NEXT"), Column("ATTEMPT", right=True), *_MESSAGE)
_DEAD: Final = (
    Column("DIED"),
    Column("TRIES", right=True),
    *_MESSAGE,
    Column("REDRIVEN", is_short=True, rank=5),
)
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


def filter_of(text: str) -> DeadLetterFilter:
    """The filter of a typed text: name=value for a field, other words are part of the reason.

    A kind of reasons has blanks: it is all that follows kind=.
    """
    text, _, kind = f" {text}".partition(" kind=")
    fields: dict[str, Any] = {"failure_kind": failure_kind(kind)} if kind.strip() else {}
    ids, reason = [], []
    for word in text.split():
        name, _, value = word.partition("=")
        if value and name in _FIELDS:
            fields[name] = value
        elif value and name == "id":
            ids.append(value)
        else:
            reason.append(word)
    return DeadLetterFilter(reason=" ".join(reason), ids=tuple(ids), **fields)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The letters of a list so far.

    query: the next page, None at the end.  at_s: the time of the first page, or of the last failed
    call; 0: not yet.  error: of the last call, empty after a success.
    """

    query: DeadLettersQuery | None
    letters: tuple[DeadLetter, ...] = ()
    looked_at: int = 0
    pages: int = 0
    at_s: float = 0.0
    error: str = ""

    def taken(self, page: DeadLetterPage, at_s: float) -> Loaded:
        """This list with one more page."""
        letters = self.letters + page.letters
        query = self.query
        if query is not None:
            query = replace(query, cursor=page.cursor) if page.cursor else None
        looked_at = self.looked_at + page.looked_at
        return Loaded(query, letters, looked_at, self.pages + 1, self.at_s or at_s)

    def failed(self, error: RmqliteError, at_s: float) -> Loaded:
        return replace(self, error=why(error), at_s=at_s)

    @property
    def is_full(self) -> bool:
        return len(self.letters) >= LOADED_MAX


def first_query(group: str, wanted: str, *, newest_first: bool) -> DeadLettersQuery:
    return DeadLettersQuery(
        group, filter_of(wanted), newest_first=newest_first, max_letters=PAGE_LETTERS
    )


def group_line(picture: Picture, group: str, width: int) -> Line:
    """The group in one line."""
    figures = picture.figures(group)
    status = picture.described.get(group)
    parts = [Tone(printable(group), "head")]
    for count, name, tone in (
        (figures.lag, "lag", "bad" if figures.is_silent else ""),
        (figures.due, "due", ""),
        (figures.members, "", "warn" if figures.members == 0 else ""),
        (figures.waiting, "retries", ""),
        (figures.dead, "dead", "warn" if figures.dead else ""),
        (figures.new_dead or None, "new", "bad"),
    ):
        if count is not None:
            text = f"{name} {count:,}" if name else counted(count, "member")
            parts.append(Tone(f"  {text}", tone))
    if figures.oldest_ms:
        parts.insert(2, Tone(f"  oldest {span_text(figures.oldest_ms)}", parts[1].tone))
    if status is not None:
        policy = printable(status.info.retry_policy)
        parts.append(
            Tone(f"  at most {counted(status.info.max_reconsume_times, 'retry')} {policy}", "dim")
        )
    return cut(tuple(parts), width)


def reasons_line(dead: DeadLetterGroup | None, width: int) -> Line:
    """The reasons of dead letters, the most frequent first."""
    if dead is None or not dead.reasons:
        return ()
    parts = [Tone("reasons", "dim")]
    for each in dead.reasons:
        parts.append(Tone(f"  {each.count:,} "))
        parts.append(Tone(printable(each.reason) or "(none given)"))
    if dead.rest_letters:
        parts.append(Tone(f"  {dead.rest_letters:,} others"))
    return cut(tuple(parts), width)


def retries_table(loaded: Loaded, of_group: int | None, now_ms: int, wanted: str) -> Table:
    """Due retries first, then waiting ones in due order; of_group: attempts before one is dead."""
    rows = [
        row(
            letter_key(each),
            until_text(each.due_ms, now_ms) if each.due_ms > now_ms else "due",
            attempt_text(each, of_group),
            *_about(each),
        )
        for each in loaded.letters
    ]
    return table(_title("retries", loaded, wanted, "in due order"), _RETRIES, rows, _empty(loaded))


def dead_table(loaded: Loaded, now_ms: int, wanted: str, *, newest_first: bool) -> Table:
    rows = []
    for each in loaded.letters:
        died = instant_text(each.last_failure_ms, now_ms)
        values = (died, each.delivery_attempts, *_about(each), each.redriven_by or NOTHING)
        tone = DIM if each.redriven_by else ""
        rows.append(row(letter_key(each), *[cell(value, tone) for value in values]))
    order = "the newest first" if newest_first else "the oldest first"
    return table(_title("dead letters", loaded, wanted, order), _DEAD, rows, _empty(loaded))


def _about(letter: DeadLetter) -> tuple[str, ...]:
    """The cells of _MESSAGE."""
    found = (origin_text(letter), " ".join(letter.keys), letter.tags)
    return (
        *[each or NOTHING for each in found],
        reason_line(letter.reason) if letter.reason else NOTHING,
    )


def letter_key(letter: DeadLetter) -> str:
    """The key by which a cursor finds a letter again."""
    return f"{letter.topic}/{letter.queue_id}/{letter.queue_offset}/{letter.physical_offset}"


def _title(what: str, loaded: Loaded, wanted: str, order: str) -> str:
    more = "" if loaded.query is None else " so far"
    about = f", filtered by {printable(wanted)!r}" if wanted else ""
    error = f", old: {loaded.error}" if loaded.error and loaded.letters else ""
    return f"{what}: {len(loaded.letters):,}{more}{about}, {order}{error}"


def _empty(loaded: Loaded) -> str:
    if loaded.error:
        return f"not known: {loaded.error}"
    if loaded.query is None:
        return "none"
    return f"looking, at {loaded.looked_at:,} so far" if loaded.looked_at else "asking"


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
