"""rmqlite status: what is wrong with a broker, its counts and its levels; and how `top` sees them.

A round asks few questions, only for visible data, and is one value: an error is an answer, too.
A picture is the latest answers, with their age and what to ask next.  It computes the figures that
need several rounds: rates, and dead letters since the first one.  Seconds are elapsed_s(); the
broker's time is its own clock and stands still while it does not answer.
"""

from __future__ import annotations

import enum
import sys
import textwrap
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rmqlite.cli.broker_view import CALL_MS_MAX
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.output.documents import prints
from rmqlite.cli.output.terminal import print_json, print_lines, print_table, print_view
from rmqlite.client import DeadLetterGroup, GroupStatus, RedriveJob
from rmqlite.kernel.requests.broker import BrokerStatus
from rmqlite.kernel.requests.groups import GroupInfo
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import RmqliteError, Unavailable
from rmqlite.kernel.words.visible import printable
from rmqlite.views.broker import RateRows, cluster_tables, troubles
from rmqlite.views.groups import GroupFigures, group_figures, waiting_by_topic
from rmqlite.views.levels import levels_table
from rmqlite.views.numbers import counts_text, span_text
from rmqlite.views.tables import BAD, WARN, Subject, Tone

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

T = TypeVar("T")

GROUPS_A_ROUND: Final = 16
"""With more groups than this, each round asks for some of them, in turns."""
SILENT_AFTER_S: Final = 2.0
"""A round that takes longer is reported."""
_JOB_SHOWN_MS: Final = 60_000
"""A redrive that has ended stays for a minute."""
_UNKNOWN: Final = "UNIMPLEMENTED"
"""gRPC's code for a call that an older broker does not have."""
_LINE_CHARS: Final = 80


@prints(lambda: BrokerStatus)
def status(endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """Show what is wrong with the broker, its counts, and its delay levels.

    Wrong are open dead letters, groups with messages and no member, groups that have finished
    nothing for 5 minutes, late levels, a full disk.
    """
    from rmqlite.client import AdminClient

    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        if as_json:
            print_json(admin.broker_status())
            return
        picture = whole_picture(admin)
    print_picture(picture)


def print_picture(picture: Picture) -> None:
    """The broker, what is wrong with it, its counts and its levels."""
    answer = picture.status
    assert answer is not None, "whole_picture() has raised otherwise"
    print_table(
        ("BROKER", "VERSION", "UP", "POLLS", "DISK"),
        [
            (
                answer.broker_name,
                answer.version,
                span_text(answer.now_ms - answer.started_at_ms),
                answer.parked_polls,
                f"{answer.disk_used_ratio:.0%}",
            )
        ],
    )
    troubles = picture.troubles()
    for trouble in troubles:
        sys.stdout.write(f"warning: {trouble.text}\n")
        if trouble.about is Subject.GROUPS and len(trouble.names) > 1:
            print_lines(_filled(", ".join([printable(name) for name in trouble.names])))
    if not troubles:
        sys.stdout.write("all is well\n")
    counts = textwrap.fill(counts_text(answer), _LINE_CHARS, subsequent_indent="  ")
    sys.stdout.write(counts + "\n")
    for each in (levels_table(answer), *cluster_tables(answer)):
        print_view(each)


def _filled(text: str) -> list[str]:
    return textwrap.wrap(
        text, _LINE_CHARS, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


class StatusCalls(enum.Enum):
    """The calls of a round, each of which may fail alone."""

    GROUPS = "groups"
    PENDING = "pending counts"
    DEAD = "dead letters"
    JOBS = "redrive jobs"


EVERY_S: Final = {
    StatusCalls.GROUPS: 2.0,
    StatusCalls.PENDING: 2.0,
    StatusCalls.DEAD: 5.0,
    StatusCalls.JOBS: 5.0,
}


@dataclass(frozen=True, slots=True)
class Questions:
    """A round always asks for the status.  describe: these groups in full."""

    parts: Collection[StatusCalls] = ()
    describe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusRound:
    """The answers to questions, or the errors instead; asked_at_s: its start."""

    asked_at_s: float
    answered_at_s: float
    status: BrokerStatus | RmqliteError
    parts: dict[StatusCalls, Any] = field(default_factory=dict)
    described: tuple[tuple[str, GroupStatus | RmqliteError], ...] = ()


def ask(
    admin: AdminClient, questions: Questions, elapsed: Callable[[], float] = elapsed_s
) -> StatusRound:
    """Ask one after the other; without a status nothing else is asked."""
    asked_at_s = elapsed()
    status = answered(admin.broker_status)
    # The counters belong to this moment, however long the rest takes.
    answered_at_s = elapsed()
    if isinstance(status, RmqliteError):
        return StatusRound(asked_at_s, answered_at_s, status)
    calls: dict[StatusCalls, Callable[[], Any]] = {
        StatusCalls.GROUPS: admin.list_groups,
        StatusCalls.PENDING: admin.schedule.count_pending,
        StatusCalls.DEAD: admin.dead_letters.groups,
        StatusCalls.JOBS: admin.redrives.jobs,
    }
    parts = {part: answered(call) for part, call in calls.items() if part in questions.parts}
    described: list[tuple[str, GroupStatus | RmqliteError]] = []
    for group in questions.describe:
        answer = _described(admin, group)
        described.append((group, answer))
        if isinstance(answer, Unavailable):
            # Each of the other calls would wait as long.
            break
    return StatusRound(asked_at_s, answered_at_s, status, parts, tuple(described))


def answered(call: Callable[[], T]) -> T | RmqliteError:
    """The result of a call, or the error that it raises."""
    try:
        return call()
    except RmqliteError as error:
        return error


def _described(admin: AdminClient, group: str) -> GroupStatus | RmqliteError:
    return answered(lambda: admin.group(group))


def why(error: RmqliteError) -> str:
    """An error for a person; a broker older than this tool does not have all calls."""
    is_unknown = str(error).startswith(_UNKNOWN)
    return "the broker is too old for this" if is_unknown else printable(str(error))


class Picture:
    """Used only by the main thread."""

    def __init__(self) -> None:
        self.status: BrokerStatus | None = None
        self.rates = RateRows()
        self.jobs: tuple[RedriveJob, ...] = ()
        self.described: dict[str, GroupStatus] = {}
        self.dead: dict[str, DeadLetterGroup] | None = None
        self.errors: dict[StatusCalls, RmqliteError] = {}
        self.unreachable: RmqliteError | None = None
        self.answered_at_s = 0.0
        self._infos: dict[str, GroupInfo] | None = None
        self._waiting: dict[str, int] | None = None
        self._died_before: dict[str, int] = {}
        self._groups: tuple[GroupFigures, ...] | None = None
        self._asked_s: dict[StatusCalls | str, float] = {}
        self._answered_s: dict[StatusCalls, float] = {}

    # ---- questions

    def questions(self, now_s: float, *, group: str = "", is_overview: bool = True) -> Questions:
        """The due questions: for the overview, for one group, or only the status."""
        if group:
            return Questions(self._due(now_s, StatusCalls.PENDING, StatusCalls.DEAD), (group,))
        if not is_overview:
            return Questions()
        due = self._due(now_s, *StatusCalls)
        if any([not job.is_over for job in self.jobs]):
            due.add(StatusCalls.JOBS)
        return Questions(due, self._longest_unasked())

    @property
    def lacks_figures(self) -> bool:
        """Is there a group without figures that was never asked for?"""
        return any([name not in self._asked_s for name in self._infos or ()])

    def _due(self, now_s: float, *parts: StatusCalls) -> set[StatusCalls]:
        return {
            part
            for part in parts
            if (asked_s := self._asked_s.get(part)) is None
            or now_s - asked_s >= EVERY_S[part] - 0.05
        }

    def _longest_unasked(self) -> tuple[str, ...]:
        known = sorted(self._infos or (), key=lambda name: (self._asked_s.get(name, 0.0), name))
        return tuple(known[:GROUPS_A_ROUND])

    # ---- answers

    def take(self, answers: StatusRound) -> None:
        """Take the answers of a round; a failed call leaves the old answer."""
        if isinstance(answers.status, RmqliteError):
            self.unreachable = answers.status
            self.rates.gap()
            return
        self.unreachable = None
        self._groups = None
        self.status = answers.status
        self.answered_at_s = answers.answered_at_s
        self.rates.take(answers.status)
        for name, described in answers.described:
            self._asked_s[name] = answers.asked_at_s
            if not isinstance(described, RmqliteError):
                self.described[name] = described
        for part, answer in answers.parts.items():
            self._asked_s[part] = answers.asked_at_s
            if isinstance(answer, RmqliteError):
                self.errors[part] = answer
                continue
            self.errors.pop(part, None)
            self._answered_s[part] = answers.asked_at_s
            self._take_part(part, answer)

    def _take_part(self, part: StatusCalls, answer: Any) -> None:
        if part is StatusCalls.GROUPS:
            self._infos = {info.group: info for info in answer}
            self.described = {g: s for g, s in self.described.items() if g in self._infos}
        elif part is StatusCalls.PENDING:
            self._waiting = waiting_by_topic(answer)
        elif part is StatusCalls.DEAD:
            is_first = self.dead is None
            self.dead = {each.group: each for each in answer}
            if is_first:
                self._died_before = {each.group: _died(each) for each in answer}
        else:
            self.jobs = answer

    # ---- the latest answers

    def age_s(self, now_s: float) -> float:
        """The age of the status that is shown."""
        return max(0.0, now_s - self.answered_at_s)

    def now_ms(self, now_s: float) -> int:
        """The broker's clock; while it does not answer, the clock of its last answer."""
        if self.status is None:
            return 0
        if self.unreachable:
            return self.status.now_ms
        return self.status.now_ms + int(self.age_s(now_s) * 1000)

    def groups(self) -> tuple[GroupFigures, ...]:
        """Every group that is known, sorted by name."""
        if self._groups is None:
            names = {*(self._infos or ()), *(self.dead or ())}
            self._groups = tuple([self.figures(name) for name in sorted(names)])
        return self._groups

    def figures(self, group: str) -> GroupFigures:
        """The figures of one group, as far as they are known."""
        new_dead = None
        if self.dead is not None:
            found = self.dead.get(group)
            # Retention removes the oldest dead letters, which then are not counted any more.
            before = self._died_before.get(group, 0)
            new_dead = max(0, _died(found) - before) if found else 0
        return group_figures(group, self.described.get(group), self._waiting, self.dead, new_dead)

    def shown_jobs(self) -> list[RedriveJob]:
        """Running and paused redrives, and those that have just ended."""
        since_ms = self.status.now_ms - _JOB_SHOWN_MS if self.status else 0
        return [job for job in self.jobs if not job.is_over or job.ended_at_ms >= since_ms]

    # ---- troubles

    def connection_trouble(self, now_s: float, waiting_since_s: float) -> Tone | None:
        """That of a silent broker; waiting_since_s: start of the open round, 0: none."""
        age = span_text(int(self.age_s(now_s)) * 1000)
        if self.unreachable is not None:
            # gRPC's text has the whole path; its end is the reason.
            reason = printable(str(self.unreachable).rsplit(": ", 1)[-1])
            return Tone(f"no answer for {age} ({reason}), this is how it was then", BAD)
        if waiting_since_s and now_s - waiting_since_s >= SILENT_AFTER_S:
            return Tone(f"no answer for {age}, still waiting for one", WARN)
        return None

    def troubles(self) -> list[Tone]:
        """All but that of the connection; empty if all is well."""
        if self.status is None:
            return []
        found = troubles(self.status, self.groups(), self.jobs, self.rates.dead_lately)
        return [*found, *self._unanswered()]

    def _unanswered(self) -> list[Tone]:
        """The calls that the broker did not answer, grouped by reason."""
        reasons: dict[str, list[str]] = {}
        for part, error in self.errors.items():
            answered_s = self._answered_s.get(part)
            age = "not known"
            if answered_s is not None:
                age = f"{span_text(int(self.answered_at_s - answered_s) * 1000)} old"
            reasons.setdefault(why(error), []).append(f"{part.value} {age}")
        return [Tone(f"{', '.join(parts)}: {reason}", WARN) for reason, parts in reasons.items()]


def _died(group: DeadLetterGroup) -> int:
    return group.letters + group.purged


def whole_picture(admin: AdminClient) -> Picture:
    """A picture with the figures of every group.  Raises what a broker without an answer raises."""
    picture = Picture()
    while picture.status is None or picture.lacks_figures:
        answers = ask(admin, picture.questions(elapsed_s()))
        if isinstance(answers.status, RmqliteError):
            raise answers.status
        picture.take(answers)
    return picture
