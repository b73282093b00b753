"""The parts of every screen of `top`: the header, the verdict, and the line of keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from rmqlite.cli.top import overview
from rmqlite.cli.top.grid import Line, Part, cut
from rmqlite.cli.top.picture import Picture
from rmqlite.cli.top.repairs import REPAIRS, Repair
from rmqlite.cli.top.widgets import Lines
from rmqlite.client import AdminClient
from rmqlite.requests.dead_letters import DeadLetter

TALL: Final = 40
"""A terminal with this many lines has room for charts and more troubles."""
_TROUBLES_TALL: Final = 4


class Top(App[None]):
    """The application as a screen sees it; picture: the answers of the last round."""

    endpoint: str
    picture: Picture
    interval_s: float
    is_paused: bool
    said: str
    """Shown for some seconds in place of the keys."""
    asked_since_s: float
    """The start of the round under way; 0 without one."""
    elapsed: Callable[[], float]

    @abstractmethod
    def call(self, asked: Callable[[AdminClient], Any], done: Callable[[Any], None]) -> None:
        """Ask in a thread; done gets the answer or the error, in the thread of the screens."""

    @abstractmethod
    def say(self, sentence: str) -> None:
        """Show a sentence for some seconds."""

    @abstractmethod
    def open_group(self, group: str) -> None:
        """Show the screen of a group."""

    @abstractmethod
    def open_message(self, letter: DeadLetter) -> None:
        """Show the screen of a failed message."""

    @abstractmethod
    def repair(self, repair: Repair, done: Callable[[], None]) -> None:
        """Ask, then do the repair; done: called afterwards."""


class Frame(Screen[None]):
    """group: the group that the screen shows, if it shows one."""

    AUTO_FOCUS = "#first"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("R", "repair('redrive')", show=False),
        Binding("P", "repair('publish')", show=False),
        Binding("n", "repair('now')", show=False),
        Binding("c", "repair('cancel')", show=False),
    ]

    group = ""

    @property
    @abstractmethod
    def keys(self) -> tuple[tuple[str, str], ...]:
        """The keys that the bottom line shows."""

    @property
    def letter(self) -> DeadLetter | None:
        """The failed message under the cursor, if there is one."""
        return None

    @property
    def top(self) -> Top:
        top = self.app
        assert isinstance(top, Top)
        return top

    def __init__(self) -> None:
        super().__init__()
        # Keep these widgets, do not query them: a screen may be drawn while it comes or goes.
        self._header = Lines()
        self._bottom = Lines()

    def compose(self) -> ComposeResult:
        yield self._header
        yield from self.content()
        yield self._bottom

    @abstractmethod
    def content(self) -> ComposeResult:
        """The widgets between header and keys."""

    def draw(self) -> None:
        """Draw the latest answers."""
        top, width = self.top, self.app.size.width
        now_s = self.shown_s
        self._header.show(
            overview.header(top.picture, top.endpoint, now_s, width),
            *overview.verdict(
                top.picture,
                top.elapsed(),
                top.asked_since_s,
                is_paused=top.is_paused,
                width=width,
                lines=_TROUBLES_TALL if self.app.size.height >= TALL else 1,
            ),
        )
        self._bottom.show(self._keys(width))
        self.draw_content(now_s, width)

    @abstractmethod
    def draw_content(self, now_s: float, width: int) -> None:
        """Draw the latest answers between header and keys."""

    def reload(self) -> None:
        """Ask again for data that is not part of a round."""

    def action_repair(self, what: str) -> None:
        """Do a repair of the letter, if it exists for this kind of letter."""
        letter, picture = self.letter, self.top.picture
        is_retry = what in ("now", "cancel")
        if letter is None or picture.status is None or is_retry != bool(letter.due_ms):
            return
        if is_retry and letter.due_ms <= picture.now_ms(self.top.elapsed()):
            self.top.say("it is due already, the group has it next")
            return
        if what == "publish" and not letter.origin_topic:
            self.top.say("its original topic is not known")
            return
        self.top.repair(REPAIRS[what](letter), self.reload)

    @property
    def shown_s(self) -> float:
        """The moment that is shown; during a pause that of the last answer."""
        top = self.top
        return top.picture.answered_at_s if top.is_paused else top.elapsed()

    def on_mount(self) -> None:
        self.draw()

    def on_screen_resume(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def _keys(self, width: int) -> Line:
        top = self.top
        if top.said:
            return cut((Part(top.said, "head"),), width)
        parts: list[Part] = []
        for key, meaning in (*self.keys, ("+-", f"{top.interval_s:g} s")):
            parts += [Part(f"{key} ", "head"), Part(f"{meaning}  ", "dim")]
        return cut((*parts, Part("? ", "head"), Part("help", "dim")), width)
