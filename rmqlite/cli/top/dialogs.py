"""The dialogs over a screen: a question, and the help."""

from __future__ import annotations

import textwrap
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from rmqlite.cli.output.grid import Line
from rmqlite.cli.output.terminal import printable
from rmqlite.cli.top.widgets import Lines
from rmqlite.views.tables import Tone

_TEXT_COLUMNS: Final = 60
_HELP: Final = (
    ("everywhere", ""),
    ("  arrows, j k", "move; page up/down, space, g, G as well"),
    ("  tab", "to the next table"),
    ("  enter, esc", "into a row, and back"),
    ("  p", "pause: ask the broker nothing"),
    ("  r", "ask now"),
    ("  + -", "ask less often, more often"),
    ("  t", "dark or light"),
    ("  q", "quit"),
    ("overview", ""),
    ("  / s", "filter and sort the groups"),
    ("  l", "all levels, or those in use"),
    ("group", ""),
    ("  1 2 3 4", "dead letters, retries, queues, members"),
    ("  /", "filter: topic= tag= key= id=, other words: the reason"),
    ("  s", "dead letters: the oldest or the newest first"),
    ("  R", "redrive the dead letter, back to its group"),
    ("  P", "publish it to its topic, for every group that reads it"),
    ("  n c", "give the retry now, cancel it"),
    ("message", ""),
    ("  enter", "show the record of this event"),
    ("  b", "body as JSON, text or hex"),
)


class Confirm(ModalScreen[bool]):
    """A question; only y means yes."""

    DEFAULT_CSS = """
    Confirm { align: center middle; }
    Confirm Vertical { width: 66; max-width: 100%; height: auto; padding: 0 2; }
    Confirm Vertical { border: round $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,escape,enter", "answer(False)", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = printable(question)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Lines()

    def on_mount(self) -> None:
        question = [(Tone(line),) for line in textwrap.wrap(self._question, _TEXT_COLUMNS)]
        answers: Line = (Tone("y", "head"), Tone(" yes    "), Tone("n", "head"), Tone(" no"))
        self.query_one(Lines).show(*question, (), answers)

    def action_answer(self, is_yes: bool) -> None:
        self.dismiss(is_yes)


class Help(ModalScreen[None]):
    """The keys."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help Vertical { width: 78; max-width: 100%; height: auto; padding: 0 1; }
    Help Vertical { border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,space,question_mark,f1", "dismiss", show=False)
    ]

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Lines()

    def on_mount(self) -> None:
        self.query_one(Lines).show(
            *[
                (Tone(f"{key:<16}", "" if meaning else "head"), Tone(meaning, "dim"))
                for key, meaning in _HELP
            ]
        )
