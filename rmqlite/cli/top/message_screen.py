"""One message: its history event by event, and the record of one event in full."""

from __future__ import annotations

import textwrap
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from rmqlite.cli.output.grid import Line
from rmqlite.cli.output.terminal import printable
from rmqlite.cli.status import why
from rmqlite.cli.top.app import Frame
from rmqlite.cli.top.widgets import Lines, Rows, TextPage
from rmqlite.client import DeadLetter, FoundMessage, History, HistoryEvent
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.views.history import Surroundings, heading, outcome, place_text, shown
from rmqlite.views.messages import BodyView, inflated_view, message_facts
from rmqlite.views.numbers import instant_text
from rmqlite.views.tables import Column, Table, TableRow, Tone, cell, row

_WHAT_LEAST: Final = 64
_WHERE_LEAST: Final = 24
_BODY_CHARS_MAX: Final = 64 * 1024
_BODY_LINES_MAX: Final = 5_000
_EVENTS: Final = (
    Column("TIME"),
    Column("WHAT", is_short=True, least=_WHAT_LEAST),
    Column("WHERE", is_short=True, rank=1, least=_WHERE_LEAST),
)


def events_table(history: History | None, why_not: str, now_ms: int) -> Table:
    """A row for each sentence of each event; why_not: the text shown while there is no history.

    event_of() finds the event of a row.
    """
    if history is None:
        return Table("history", _EVENTS, (), why_not)
    rows: list[TableRow] = []
    for number, each in enumerate(shown(history)):
        about = (instant_text(each.event.at_ms, now_ms), cell(place_text(each.event), "dim"))
        for n, sentence in enumerate(each.sentences):
            time, place = ("", "") if n else about
            rows.append(row(f"{number}.{n}", time, cell(sentence, each.tone), place))
    cut = ", older ones are left out" if history.is_cut else ""
    title = f"history: {heading(history)}{cut}"
    return Table(title, _EVENTS, tuple(rows), "the log has no record of this message")


def event_of(history: History, key: str) -> HistoryEvent:
    """The event of a table's row."""
    return history.events[int(key.partition(".")[0])]


def outcome_lines(history: History | None, around: Surroundings, width: int) -> list[Line]:
    """What the message waits for, or how it ended."""
    sentences = outcome(history, around) if history else ()
    lines = [line for each in sentences for line in textwrap.wrap(printable(each), max(1, width))]
    return [(Tone(line, "head"),) for line in lines]


def shown_body(message: StoredMessage, form: str) -> BodyView:
    return inflated_view(message, form, chars_max=_BODY_CHARS_MAX, lines_max=_BODY_LINES_MAX)


def message_lines(message: StoredMessage, body: BodyView) -> list[Line]:
    """Every field, every property, and the body; not wrapped."""
    return [
        *_aligned(message_facts(message)),
        (),
        (Tone("properties", "head"),),
        *_aligned(sorted(message.properties.items())),
        (),
        (Tone(body.heading(), "head"),),
        *[(Tone(line),) for line in body.lines],
    ]


def _aligned(fields: list[tuple[str, str]]) -> list[Line]:
    names = [printable(name) for name, _ in fields]
    width = max([len(name) for name in names], default=0)
    return [
        (Tone(f"{name:<{width}}  ", "dim"), Tone(printable(value)))
        for name, (_, value) in zip(names, fields, strict=True)
    ]


class MessageScreen(Frame):
    """Shows the message of a letter; and beside its history a record, at first the letter's own."""

    CSS = "MessageScreen #first { max-height: 60%; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", show=False),
        Binding("b", "form", show=False),
    ]

    def __init__(self, letter: DeadLetter) -> None:
        super().__init__()
        self._letter = letter
        self._record_id = letter.offset_message_id
        self._history: History | None = None
        self._why_no_history = "asking"
        self._message: StoredMessage | None = None
        self._form = ""
        self._event_rows = Rows(id="first")
        self._outcome = Lines()
        self._record = TextPage()

    def content(self) -> ComposeResult:
        yield self._event_rows
        yield self._outcome
        yield self._record

    @property
    def letter(self) -> DeadLetter:
        return self._letter

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        of_retry = (("n", "now"), ("c", "cancel"))
        of_dead = (("R", "redrive"), ("P", "publish"))
        repair = of_retry if self._letter.due_ms else of_dead
        return (("enter", "event"), ("tab", "record"), ("b", "body"), *repair, ("esc", "back"))

    def on_mount(self) -> None:
        self._record.show("record", [(Tone("asking", "dim"),)])
        self.reload()

    def reload(self) -> None:
        # A message may have no message id.
        wanted = self._letter.message_id or self._letter.offset_message_id
        self.top.call(lambda admin: admin.dead_letters.history(wanted), self._take_history)
        self._ask_record()

    def _ask_record(self) -> None:
        wanted = self._record_id

        def taken(found: FoundMessage | RmqliteError) -> None:
            if wanted == self._record_id:
                self._take_record(found)

        self.top.call(lambda admin: admin.message_at(wanted), taken)

    def _take_history(self, history: History | RmqliteError) -> None:
        if isinstance(history, RmqliteError):
            self._why_no_history = f"not known: {why(history)}"
        else:
            self._history = history
        self.draw()

    def _take_record(self, found: FoundMessage | RmqliteError) -> None:
        if isinstance(found, RmqliteError):
            self._message = None
            self._show_record([(Tone(why(found), "warn"),)])
            return
        self._message = found.message
        self._show_message(found.message)

    def _show_message(self, message: StoredMessage) -> None:
        self._show_record(message_lines(message, shown_body(message, self._form)))

    def _show_record(self, lines: list[Line]) -> None:
        self._record.show(f"record {printable(self._record_id)}", lines)

    def draw_content(self, now_s: float, width: int) -> None:
        picture = self.top.picture
        now_ms = picture.now_ms(now_s)
        self._event_rows.show(events_table(self._history, self._why_no_history, now_ms))
        around = Surroundings(now_ms, picture.described)
        self._outcome.show(*outcome_lines(self._history, around, width))

    def on_rows_opened(self, message: Rows.Opened) -> None:
        if self._history is not None:
            self._record_id = event_of(self._history, message.key).offset_message_id
            self._ask_record()

    def action_form(self) -> None:
        if self._message is not None:
            body = shown_body(self._message, self._form)
            self._form = body.next_form
            self._show_message(self._message)
