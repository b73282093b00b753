"""One message: its life hop by hop, and the record of one hop in full."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from rmqlite.cli.terminal import printable
from rmqlite.cli.top.body_view import best_form, body_of, next_form
from rmqlite.cli.top.frames import Frame
from rmqlite.cli.top.grid import Line, Part
from rmqlite.cli.top.life_view import hops_table, message_lines
from rmqlite.cli.top.widgets import Page, Rows
from rmqlite.errors import RmqliteError
from rmqlite.letter_requests import Life
from rmqlite.message import StoredMessage
from rmqlite.requests import FoundMessage


class MessageScreen(Frame):
    CSS = "MessageScreen #first { max-height: 40%; }"
    KEYS = (
        ("enter", "hop's record"),
        ("b", "body's form"),
        ("tab", "to the record"),
        ("r", "refresh"),
        ("esc", "back"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", show=False),
        Binding("b", "form", show=False),
    ]

    def __init__(self, message_id: str, offset_message_id: str) -> None:
        super().__init__()
        self._message_id = message_id
        self._record_id = offset_message_id
        self._life: Life | None = None
        self._why_no_life = "asking"
        self._message: StoredMessage | None = None
        self._form = ""

    def content(self) -> ComposeResult:
        yield Rows(id="first")
        yield Page(id="record")

    def on_mount(self) -> None:
        self.query_one(Page).show("record", [(Part("asking", "dim"),)])
        self.reload()

    def reload(self) -> None:
        # A message that RocketMQ's clients sent may have no id of its own.
        wanted = self._message_id or self._record_id
        self.top.call(lambda admin: admin.letters.life(wanted), self._take_life)
        self._ask_record()

    def _ask_record(self) -> None:
        wanted = self._record_id

        def taken(found: FoundMessage | RmqliteError) -> None:
            if wanted == self._record_id:
                self._take_record(found)

        self.top.call(lambda admin: admin.message_at(wanted), taken)

    def _take_life(self, life: Life | RmqliteError) -> None:
        if isinstance(life, RmqliteError):
            self._why_no_life = f"not known: {printable(str(life))}"
        else:
            self._life = life
        self.draw()

    def _take_record(self, found: FoundMessage | RmqliteError) -> None:
        if isinstance(found, RmqliteError):
            self._message = None
            self._show_record([(Part(printable(str(found)), "warn"),)])
            return
        self._message = found.message
        self._form = self._form or best_form(body_of(found.message))
        self._show_record(message_lines(found.message, self._form))

    def _show_record(self, lines: list[Line]) -> None:
        self.query_one(Page).show(f"record {printable(self._record_id)}", lines)

    def draw_content(self, now_s: float, width: int) -> None:
        del width
        picture = self.top.picture
        now_ms = picture.now_ms(now_s) if picture.status else 0
        self.query_one("#first", Rows).show(hops_table(self._life, self._why_no_life, now_ms))

    def on_rows_opened(self, message: Rows.Opened) -> None:
        if self._life is not None:
            self._record_id = self._life.hops[int(message.key)].offset_message_id
            self._form = ""
            self._ask_record()

    def action_form(self) -> None:
        if self._message is not None:
            self._form = next_form(self._form)
            self._show_record(message_lines(self._message, self._form))
