"""A line at the bottom in which somebody writes what they look for."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

_CHARS_MAX = 200


class Prompt(Input):
    """Hidden until open(); enter takes what is written, escape leaves what was."""

    DEFAULT_CSS = """
    Prompt { height: 1; border: none; padding: 0; display: none; }
    Prompt:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False)]

    class Wanted(Message):
        """What is wanted now."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Closed(Message):
        """It is hidden again."""

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
