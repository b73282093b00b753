"""The application and the frame of its screens: asks the broker in rounds, in a thread, and draws.

At most one round is under way, however slow the broker is, and the screen waits for none.  Other
calls of a screen go through call(), which brings the answer back to the screen's thread.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from rmqlite.cli.output.grid import Line, cut, spread
from rmqlite.cli.output.terminal import printable, shortened
from rmqlite.cli.status import Picture, StatusRound, answered, ask
from rmqlite.cli.top.dialogs import REPAIRS, Confirm, Help, Repair
from rmqlite.cli.top.widgets import Lines
from rmqlite.client import AdminClient, DeadLetter
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.views.numbers import size_text, span_text, time_text
from rmqlite.views.tables import BAD, Tone

_NAME_MAX: Final = 24

TALL: Final = 40
"""A terminal with this many lines has room for charts and more troubles."""
_TROUBLES_TALL: Final = 4
INTERVALS_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_TICK_S: Final = 0.5
_NOTICE_S: Final = 8.0


class TopApp(App[None]):
    """picture: the latest answers.  is_paused: no round starts by itself.

    first: makes the first screen.  notice: shown for some seconds in place of the keys.
    asked_since_s: the start of the round under way; 0 without one.
    """

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

        def __init__(self, answers: StatusRound) -> None:
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
        first: Callable[[], Frame],
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
        self.notice = ""
        self.elapsed = elapsed
        self.asked_since_s = 0.0
        self._admin = admin
        self._make_first = first
        self._first: Frame | None = None
        self._is_light = is_light
        self._noticed_at_s = 0.0
        self._next_s = 0.0

    def on_mount(self) -> None:
        self.theme = "textual-light" if self._is_light else "textual-dark"
        self._first = self._make_first()
        self.push_screen(self._first)
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
        if self.notice and self.elapsed() - self._noticed_at_s > _NOTICE_S:
            self.notice = ""
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
            now_s, group=frame.group if frame else "", is_overview=frame is self._first
        )

        def work() -> None:
            self.post_message(self.Answered(ask(self._admin, questions, self.elapsed)))

        self.run_worker(work, thread=True, group="rounds")

    def on_top_app_answered(self, message: Answered) -> None:
        self.asked_since_s = 0.0
        self.picture.take(message.answers)
        if self._frame() is self._first and self.picture.lacks_figures:
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
        """Ask in a thread; done gets the answer or the error, in the thread of the screens."""

        def work() -> None:
            self.post_message(self.Returned(done, answered(partial(asked, self._admin))))

        self.run_worker(work, thread=True, group="calls")

    def on_top_app_returned(self, message: Returned) -> None:
        message.done(message.outcome)

    def show_notice(self, sentence: str) -> None:
        """Show a sentence for some seconds."""
        self.notice, self._noticed_at_s = sentence, self.elapsed()
        self.redraw()

    def repair(self, repair: Repair, done: Callable[[], None]) -> None:
        """Ask, then do the repair; done: called afterwards."""

        def answered_by_broker(outcome: str | RmqliteError) -> None:
            self.show_notice(f"error: {outcome}" if isinstance(outcome, RmqliteError) else outcome)
            done()

        def confirmed(is_yes: bool | None) -> None:
            if is_yes:
                self.show_notice("asked for it")
                self.call(repair.do, answered_by_broker)

        def looked(sentence: str | RmqliteError) -> None:
            if isinstance(sentence, RmqliteError):
                self.show_notice(f"error: {sentence}")
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
        self.show_notice(f"every {self.interval_s:g} s")

    def action_other_theme(self) -> None:
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_help(self) -> None:
        if not isinstance(self.screen, Help):
            self.push_screen(Help())


class Frame(Screen[None]):
    """A screen: the header, the verdict, its own widgets, and the line of keys.

    group: the group that the screen shows, if it shows one.
    """

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
    def top(self) -> TopApp:
        top = self.app
        assert isinstance(top, TopApp)
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
            header(top.picture, top.endpoint, now_s, width),
            *verdict(
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
            self.top.show_notice("it is due already, the group has it next")
            return
        if what == "publish" and not letter.origin_topic:
            self.top.show_notice("its original topic is not known")
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
        if top.notice:
            return cut((Tone(top.notice, "head"),), width)
        parts: list[Tone] = []
        for key, meaning in (*self.keys, ("+-", f"{top.interval_s:g} s")):
            parts += [Tone(f"{key} ", "head"), Tone(f"{meaning}  ", "dim")]
        return cut((*parts, Tone("? ", "head"), Tone("help", "dim")), width)


def header(picture: Picture, endpoint: str, now_s: float, width: int) -> Line:
    """The broker's name, its uptime and its clock."""
    name: Line = (Tone("rmqlite top  ", "head"),)
    status = picture.status
    if status is None:
        return cut((*name, Tone(printable(endpoint))), width)
    now_ms = picture.now_ms(now_s)
    broker = shortened(printable(status.broker_name), _NAME_MAX)
    words = [
        f"{broker} {printable(status.version)}",
        f"up {span_text((now_ms - status.started_at_ms) // 1000 * 1000)}",
        f"{printable(endpoint)}",
    ]
    disk_tone = "bad" if status.is_disk_full else ""
    disk = Tone(f"  disk {status.disk_used_ratio:.0%}", disk_tone)
    archives = [
        Tone(f"  archive {size_text(each.behind_bytes)} behind", "bad" if each.trouble else "")
        for each in status.archives
    ]
    copies = [
        Tone(f"  {each.role} {size_text(each.behind_bytes)} behind", "bad" if each.trouble else "")
        for each in status.replication
    ]
    line = (*name, Tone("  ".join(words)), disk, *archives, *copies)
    return spread(line, (Tone(time_text(now_ms)[11:19], "dim"),), width)


def verdict(
    picture: Picture,
    now_s: float,
    waiting_since_s: float,
    *,
    is_paused: bool,
    width: int,
    lines: int = 1,
) -> list[Line]:
    """The troubles in at most this many lines, the worst first; the last line has all the rest."""
    end: Line = ()
    if is_paused:
        end = (Tone(f"PAUSED, {span_text(int(picture.age_s(now_s)) * 1000)} old", "warn"),)
    connection = picture.connection_trouble(now_s, waiting_since_s)
    found = [connection] if connection else []
    found += picture.troubles()
    parts = [Tone(f"{_mark(each)} {each.text}", each.tone) for each in found]
    if not parts:
        is_known = picture.status is not None
        parts = [Tone("● well", "good") if is_known else Tone("… asking", "dim")]
    first = [(each,) for each in parts[: lines - 1]]
    rest = tuple([part for each in parts[lines - 1 :] for part in (each, Tone("  "))])
    shown = [*first, rest] if rest else first
    return [spread(shown[0], end, width), *[cut(line, width) for line in shown[1:]]]


def _mark(trouble: Tone) -> str:
    return "✖" if trouble.tone == BAD else "▲"
