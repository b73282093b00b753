"""The dialogs over a screen: a question, the help, and the repairs of one failed message."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from rmqlite.cli.output.grid import Line
from rmqlite.cli.output.terminal import printable
from rmqlite.cli.top.widgets import Lines
from rmqlite.client import AdminClient, ChangedId, DeadLetter, DeadLetterFilter, RedriveSpec
from rmqlite.kernel.words.names import is_system_group, retry_topic
from rmqlite.views.jobs import readers_text
from rmqlite.views.messages import origin_text
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


@dataclass(frozen=True, slots=True)
class Repair:
    """do: makes the call, and returns a sentence about the outcome.

    look: asks the broker for a sentence that belongs to the question; it changes nothing.
    """

    question: str
    do: Callable[[AdminClient], str]
    look: Callable[[AdminClient], str] | None = None


def redrive(letter: DeadLetter) -> Repair:
    """Send a dead letter back to its group; the question says if it was redriven before."""
    # No group has failed a dead letter of the schedule.
    group = "" if is_system_group(letter.group) else f"group {letter.group} only"
    where = group or letter.origin_topic or "its topic"
    return _redrive(letter, f"Send {_named(letter)} again to {where}?")


def publish(letter: DeadLetter) -> Repair:
    """Publish a dead letter to its original topic; the question names who will get it."""
    topic = letter.claimed_topic or letter.origin_topic
    return _redrive(
        letter, f"Publish {_named(letter)} to topic {origin_text(letter)}, for everybody?", topic
    )


def _redrive(letter: DeadLetter, question: str, to_topic: str = "") -> Repair:
    again = bool(letter.redriven_by)
    before = f" It was redriven before, by job {letter.redriven_by}." if again else ""
    wanted = DeadLetterFilter(ids=(letter.offset_message_id,))
    spec = RedriveSpec(letter.group, wanted, to_topic, again=again)

    def do(admin: AdminClient) -> str:
        return f"redrive job {admin.redrives.start(spec).job_id} started"

    def look(admin: AdminClient) -> str:
        return f"It is read by {readers_text(admin.redrives.preview(spec).topics)}."

    return Repair(f"{question}{before}", do, look if to_topic else None)


def retry_now(letter: DeadLetter) -> Repair:
    """Give a retry that waits to its group at once."""

    def do(admin: AdminClient) -> str:
        topic = retry_topic(letter.group)
        return _outcome(admin.schedule.fire(letter.message_id, topic=topic), "given now")

    return Repair(f"Give {_named(letter)} to {letter.group} now?", do)


def cancel(letter: DeadLetter) -> Repair:
    """Cancel a waiting retry."""

    def do(admin: AdminClient) -> str:
        topic = retry_topic(letter.group)
        return _outcome(admin.schedule.cancel(letter.message_id, topic=topic), "cancelled")

    question = f"Cancel the retry of {_named(letter)}? {letter.group} never gets it."
    return Repair(question, do)


def _named(letter: DeadLetter) -> str:
    """The letter's id, and its keys, which mean more to a person."""
    keys = f" ({' '.join(letter.keys)})" if letter.keys else ""
    return f"message {letter.message_id}{keys}"


def _outcome(changed: tuple[ChangedId, ...], done: str) -> str:
    (answer,) = changed
    if answer.count:
        return f"{answer.message_id}: {done}"
    return f"{answer.message_id}: {answer.outcome.name.lower().replace('_', ' ')}"


REPAIRS: Final[dict[str, Callable[[DeadLetter], Repair]]] = {
    "redrive": redrive,
    "publish": publish,
    "now": retry_now,
    "cancel": cancel,
}
"""redrive and publish are for dead letters, the others are for waiting retries."""
