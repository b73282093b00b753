"""One message: its life hop by hop, and the record of one hop in full."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from rmqlite.cli.output.terminal import printable
from rmqlite.cli.retry.life_text import Around
from rmqlite.cli.top.grid import Line, Part
from rmqlite.cli.top.screens.body_view import FORMS, next_form
from rmqlite.cli.top.screens.frames import Frame
from rmqlite.cli.top.screens.life_view import hop_of, hops_table, message_lines, outcome_lines
from rmqlite.cli.top.troubles import why
from rmqlite.cli.top.widgets import Lines, Page, Rows
from rmqlite.errors import RmqliteError
from rmqlite.message import StoredMessage
from rmqlite.requests.dead_letters import DeadLetter, History
from rmqlite.requests.messages import FoundMessage


class MessageScreen(Frame):
    """Shows the message of a letter; and beside its life a record, at first the letter's own."""

    CSS = "MessageScreen #first { max-height: 60%; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", show=False),
        Binding("b", "form", show=False),
    ]

    def __init__(self, letter: DeadLetter) -> None:
        super().__init__()
        self._letter = letter
        self._record_id = letter.offset_message_id
        self._life: History | None = None
        self._why_no_life = "asking"
        self._message: StoredMessage | None = None
        self._form = FORMS[0]
        self._hops = Rows(id="first")
        self._outcome = Lines()
        self._record = Page()

    def content(self) -> ComposeResult:
        yield self._hops
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
        return (("enter", "hop"), ("tab", "record"), ("b", "body"), *repair, ("esc", "back"))

    def on_mount(self) -> None:
        self._record.show("record", [(Part("asking", "dim"),)])
        self.reload()

    def reload(self) -> None:
        # A message may have no message id.
        wanted = self._letter.message_id or self._letter.offset_message_id
        self.top.call(lambda admin: admin.letters.life(wanted), self._take_life)
        self._ask_record()

    def _ask_record(self) -> None:
        wanted = self._record_id

        def taken(found: FoundMessage | RmqliteError) -> None:
            if wanted == self._record_id:
                self._take_record(found)

        self.top.call(lambda admin: admin.message_at(wanted), taken)

    def _take_life(self, life: History | RmqliteError) -> None:
        if isinstance(life, RmqliteError):
            self._why_no_life = f"not known: {why(life)}"
        else:
            self._life = life
        self.draw()

    def _take_record(self, found: FoundMessage | RmqliteError) -> None:
        if isinstance(found, RmqliteError):
            self._message = None
            self._show_record([(Part(why(found), "warn"),)])
            return
        self._message = found.message
        self._show_record(message_lines(found.message, self._form))

    def _show_record(self, lines: list[Line]) -> None:
        self._record.show(f"record {printable(self._record_id)}", lines)

    def draw_content(self, now_s: float, width: int) -> None:
        picture = self.top.picture
        now_ms = picture.now_ms(now_s) if picture.status else 0
        self._hops.show(hops_table(self._life, self._why_no_life, now_ms))
        around = Around(now_ms, picture.described)
        self._outcome.show(*outcome_lines(self._life, around, width))

    def on_rows_opened(self, message: Rows.Opened) -> None:
        if self._life is not None:
            self._record_id = hop_of(self._life, message.key).offset_message_id
            self._ask_record()

    def action_form(self) -> None:
        if self._message is not None:
            self._form = next_form(self._form)
            self._show_record(message_lines(self._message, self._form))
