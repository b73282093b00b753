"""The application: asks the broker in rounds, in a thread, and draws its screens from the answers.

At most one round is under way, however slow the broker is, and the screen waits for none.  Other
calls of a screen go through call(), which brings the answer back to the screen's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.message import Message

from rmqlite.cli.top.picture import Picture
from rmqlite.cli.top.questions import Round, answered, ask
from rmqlite.cli.top.repairs import Repair
from rmqlite.cli.top.screens.dialogs import Confirm, Help
from rmqlite.cli.top.screens.frames import Frame, Top
from rmqlite.cli.top.screens.group_screen import GroupScreen
from rmqlite.cli.top.screens.message_screen import MessageScreen
from rmqlite.cli.top.screens.overview_screen import Overview
from rmqlite.client import AdminClient
from rmqlite.clock import elapsed_s
from rmqlite.errors import RmqliteError
from rmqlite.requests.dead_letters import DeadLetter

INTERVALS_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_TICK_S: Final = 0.5
_SAID_S: Final = 8.0


class TopApp(Top):
    """picture: the latest answers.  is_paused: no round starts by itself."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { layout: vertical; overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c,ctrl+q", "quit", priority=True, show=False),
        Binding("p", "pause", show=False),
        Binding("r", "refresh_now", show=False),
        Binding("plus,equals_sign", "slower(1)", show=False),
        Binding("minus", "slower(-1)", show=False),
        Binding("t", "other_theme", show=False),
        Binding("question_mark,f1", "help", show=False),
    ]

    class Answered(Message):
        """A round came back."""

        def __init__(self, answers: Round) -> None:
            super().__init__()
            self.answers = answers

    class Returned(Message):
        """A call came back; done gets its result or its error."""

        def __init__(self, done: Callable[[Any], None], outcome: Any) -> None:
            super().__init__()
            self.done = done
            self.outcome = outcome

    def __init__(
        self,
        admin: AdminClient,
        endpoint: str,
        *,
        interval_s: float = 2.0,
        is_light: bool = False,
        elapsed: Callable[[], float] = elapsed_s,
    ) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.picture = Picture()
        self.interval_s = interval_s
        self.is_paused = False
        self.said = ""
        self.elapsed = elapsed
        self.asked_since_s = 0.0
        self._admin = admin
        self._is_light = is_light
        self._said_at_s = 0.0
        self._next_s = 0.0

    def on_mount(self) -> None:
        self.theme = "textual-light" if self._is_light else "textual-dark"
        self.push_screen(Overview())
        self.set_interval(_TICK_S, self.tick)
        self.ask_round()

    def on_unmount(self) -> None:
        # Ends the calls under way, so that leaving waits for no broker.
        self._admin.close()

    # ---- rounds

    def tick(self) -> None:
        """Ask if a round is due, and redraw everything that shows time."""
        if not self.is_paused and self.elapsed() >= self._next_s:
            self.ask_round()
        if self.said and self.elapsed() - self._said_at_s > _SAID_S:
            self.said = ""
        self.redraw()

    def ask_round(self) -> None:
        """One round, unless one is under way."""
        if self.asked_since_s:
            return
        now_s = self.elapsed()
        self.asked_since_s = now_s
        self._next_s = now_s + self.interval_s - 0.05
        frame = self._frame()
        questions = self.picture.questions(
            now_s, group=frame.group if frame else "", is_overview=isinstance(frame, Overview)
        )

        def work() -> None:
            self.post_message(self.Answered(ask(self._admin, questions, self.elapsed)))

        self.run_worker(work, thread=True, group="rounds")

    def on_top_app_answered(self, message: Answered) -> None:
        self.asked_since_s = 0.0
        self.picture.take(message.answers)
        if isinstance(self._frame(), Overview) and self.picture.lacks_figures:
            self.ask_round()
        self.redraw()

    def redraw(self) -> None:
        frame = self._frame()
        if frame is not None and frame.is_mounted:
            frame.draw()

    def _frame(self) -> Frame | None:
        """The uppermost screen with data of the broker."""
        frames = [screen for screen in self.screen_stack if isinstance(screen, Frame)]
        return frames[-1] if frames else None

    # ---- what screens ask for

    def call(self, asked: Callable[[AdminClient], Any], done: Callable[[Any], None]) -> None:
        def work() -> None:
            self.post_message(self.Returned(done, answered(partial(asked, self._admin))))

        self.run_worker(work, thread=True, group="calls")

    def on_top_app_returned(self, message: Returned) -> None:
        message.done(message.outcome)

    def say(self, sentence: str) -> None:
        self.said, self._said_at_s = sentence, self.elapsed()
        self.redraw()

    def open_group(self, group: str) -> None:
        self.push_screen(GroupScreen(group))
        self.ask_round()

    def open_message(self, letter: DeadLetter) -> None:
        self.push_screen(MessageScreen(letter))

    def repair(self, repair: Repair, done: Callable[[], None]) -> None:
        def answered_by_broker(outcome: str | RmqliteError) -> None:
            self.say(f"error: {outcome}" if isinstance(outcome, RmqliteError) else outcome)
            done()

        def confirmed(is_yes: bool | None) -> None:
            if is_yes:
                self.say("asked for it")
                self.call(repair.do, answered_by_broker)

        def looked(sentence: str | RmqliteError) -> None:
            if isinstance(sentence, RmqliteError):
                self.say(f"error: {sentence}")
            else:
                self.push_screen(Confirm(f"{repair.question} {sentence}".strip()), confirmed)

        if repair.look is None:
            looked("")
        else:
            self.call(repair.look, looked)

    # ---- keys

    def action_pause(self) -> None:
        self.is_paused = not self.is_paused
        if not self.is_paused:
            self.ask_round()
        self.redraw()

    def action_refresh_now(self) -> None:
        self.ask_round()
        frame = self._frame()
        if frame is not None:
            frame.reload()

    def action_slower(self, step: int) -> None:
        others = [each for each in INTERVALS_S if (each - self.interval_s) * step > 0]
        self.interval_s = min(
            others, key=lambda s: abs(s - self.interval_s), default=self.interval_s
        )
        self.say(f"every {self.interval_s:g} s")

    def action_other_theme(self) -> None:
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_help(self) -> None:
        if not isinstance(self.screen, Help):
            self.push_screen(Help())
