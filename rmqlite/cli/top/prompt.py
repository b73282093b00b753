"""A line at the bottom in which a user types a filter."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

_CHARS_MAX = 200


class Prompt(Input):
    """Hidden until open(); enter applies the text, escape keeps the old filter."""

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
        super().__init__(placeholder=placeholder, max_length=_CHARS_MAX, compact=True)

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
