"""The state of the broker as `top` shows it: the latest answers, and their age.

A picture takes rounds, returns the questions that are due next, and computes the figures that need
several rounds: rates, and dead letters since the first one.  Seconds are elapsed_s(); the broker's
time is its own clock and stands still while it does not answer.
"""

from __future__ import annotations

import enum
from typing import Final, TypeVar

from rmqlite.cli.top.questions import Questions, Round, ask
from rmqlite.cli.top.rates import Rates
from rmqlite.client import AdminClient
from rmqlite.clock import elapsed_s
from rmqlite.errors import RmqliteError
from rmqlite.requests.dead_letters import DeadLetterGroup
from rmqlite.requests.figures import BrokerStatus
from rmqlite.requests.groups import GroupInfo, GroupStatus
from rmqlite.requests.redrive import RedriveJob
from rmqlite.views.group_figures import GroupFigures, group_figures, waiting_by_topic

T = TypeVar("T")

GROUPS_A_ROUND: Final = 16
"""With more groups than this, each round asks for some of them, in turns."""
GROUPS_EVERY_S: Final = 2.0
DEAD_EVERY_S: Final = 5.0
JOBS_EVERY_S: Final = 5.0
SILENT_AFTER_S: Final = 2.0
"""A round that takes longer is reported."""


class Asked(enum.Enum):
    """The calls of a round, each of which may fail alone."""

    GROUPS = "groups"
    PENDING = "pending counts"
    DEAD = "dead letters"
    JOBS = "redrive jobs"


class Picture:
    """Used only by the main thread."""

    def __init__(self) -> None:
        self.status: BrokerStatus | None = None
        self.rates = Rates()
        self.jobs: tuple[RedriveJob, ...] = ()
        self.described: dict[str, GroupStatus] = {}
        self.dead: dict[str, DeadLetterGroup] | None = None
        self.errors: dict[Asked, RmqliteError] = {}
        self.unreachable: RmqliteError | None = None
        self.answered_at_s = 0.0
        self._infos: dict[str, GroupInfo] | None = None
        self._waiting: dict[str, int] | None = None
        self._died_before: dict[str, int] | None = None
        self._groups: tuple[GroupFigures, ...] | None = None
        self._asked_s: dict[Asked | str, float] = {}
        self._told_s: dict[Asked, float] = {}

    # ---- questions

    def questions(self, now_s: float, *, group: str = "", is_overview: bool = True) -> Questions:
        """The due questions: for the overview, for one group, or only the status."""
        if group:
            return Questions(
                describe=(group,),
                pending=self._is_due(Asked.PENDING, GROUPS_EVERY_S, now_s),
                dead=self._is_due(Asked.DEAD, DEAD_EVERY_S, now_s),
            )
        if not is_overview:
            return Questions()
        has_job = any([not job.is_over for job in self.jobs])
        return Questions(
            groups=self._is_due(Asked.GROUPS, GROUPS_EVERY_S, now_s),
            describe=self._longest_unasked(),
            pending=self._is_due(Asked.PENDING, GROUPS_EVERY_S, now_s),
            dead=self._is_due(Asked.DEAD, DEAD_EVERY_S, now_s),
            jobs=has_job or self._is_due(Asked.JOBS, JOBS_EVERY_S, now_s),
        )

    @property
    def lacks_figures(self) -> bool:
        """Is there a group without figures that was never asked for?"""
        return any([name not in self._asked_s for name in self._infos or ()])

    def _is_due(self, part: Asked, every_s: float, now_s: float) -> bool:
        asked_s = self._asked_s.get(part)
        return asked_s is None or now_s - asked_s >= every_s - 0.05

    def _longest_unasked(self) -> tuple[str, ...]:
        known = sorted(self._infos or (), key=lambda name: (self._asked_s.get(name, 0.0), name))
        return tuple(known[:GROUPS_A_ROUND])

    # ---- answers

    def take(self, answers: Round) -> None:
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
        if (groups := self._told(Asked.GROUPS, answers.groups, answers.asked_at_s)) is not None:
            self._infos = {info.group: info for info in groups}
            self.described = {g: s for g, s in self.described.items() if g in self._infos}
        if (pending := self._told(Asked.PENDING, answers.pending, answers.asked_at_s)) is not None:
            self._waiting = waiting_by_topic(pending)
        if (dead := self._told(Asked.DEAD, answers.dead, answers.asked_at_s)) is not None:
            self.dead = {each.group: each for each in dead}
            if self._died_before is None:
                self._died_before = {each.group: _died(each) for each in dead}
        if (jobs := self._told(Asked.JOBS, answers.jobs, answers.asked_at_s)) is not None:
            self.jobs = jobs

    def _told(
        self, part: Asked, answer: tuple[T, ...] | RmqliteError | None, asked_at_s: float
    ) -> tuple[T, ...] | None:
        if answer is None:
            return None
        self._asked_s[part] = asked_at_s
        if isinstance(answer, RmqliteError):
            self.errors[part] = answer
            return None
        self.errors.pop(part, None)
        self._told_s[part] = asked_at_s
        return answer

    # ---- the latest answers

    def age_s(self, now_s: float) -> float:
        """The age of the status that is shown."""
        return max(0.0, now_s - self.answered_at_s)

    def part_age_s(self, part: Asked) -> float | None:
        """The age of a part at the last answer; None: it was never answered."""
        told_s = self._told_s.get(part)
        return None if told_s is None else self.answered_at_s - told_s

    def now_ms(self, now_s: float) -> int:
        """The broker's clock; while it does not answer, the clock of its last answer."""
        assert self.status is not None, "there was an answer"
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
            new_dead = self._new_dead(found) if found else 0
        return group_figures(group, self.described.get(group), self._waiting, self.dead, new_dead)

    def _new_dead(self, group: DeadLetterGroup) -> int:
        before = (self._died_before or {}).get(group.group, 0)
        # Retention removes the oldest letters, which then are not counted any more.
        return max(0, _died(group) - before)


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
