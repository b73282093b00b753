"""The pages Overview and Lateness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from rmqlite.records.wait_queues import TIMERS
from rmqlite.requests.dead_letters import DeadLetterGroup
from rmqlite.requests.figures import BrokerStatus
from rmqlite.requests.groups import GroupInfo
from rmqlite.server.turns import let_others
from rmqlite.server.web import plots
from rmqlite.server.web.site import ROWS, Visit
from rmqlite.views.counts import COUNTED, counts_text
from rmqlite.views.group_figures import GroupFigures, group_figures, waiting_by_topic
from rmqlite.views.troubles import Subject, Trouble, troubles

_AT_LEAST_MS: Final = 1_500
"""The shortest time that a rate is measured over; over less it would only flicker."""
_LINKS_MAX: Final = 5
"""A trouble leads to so many of the groups that have it."""
_OPEN: Final = {"view": "open"}
_LEADS: Final[dict[Subject, tuple[str, str, dict[str, str]]]] = {
    Subject.LEVELS: ("/schedule", "level", {}),
    Subject.DEAD_LETTERS: ("/dead/letters", "group", _OPEN),
    Subject.UNDELIVERABLE: ("/dead/letters", "group", _OPEN),
    Subject.GROUPS: ("/group", "name", {}),
    Subject.REDRIVE: ("/job", "id", {}),
}
"""The page, and its field, where a trouble is looked at closer."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages per second in the last over_ms, by the name of their count in BrokerStatus."""

    per_second: dict[str, float]
    over_ms: int


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group's row in a table."""

    figures: GroupFigures
    dead: DeadLetterGroup | None


@dataclass(frozen=True, slots=True)
class Link:
    text: str
    path: str
    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class Wrong:
    """A trouble as a list item.  links: where to look closer, the worst first."""

    sentence: str
    tone: str
    links: list[Link]


async def overview(visit: Visit) -> Response:
    status = await visit.service.status()
    jobs = await visit.service.redrives.all()
    infos = await visit.service.groups.all()
    dead = await visit.service.letters.dead_groups()
    lines = await _lines(visit, infos, dead)
    known = {line.figures.group for line in lines}
    # A group without settings can have dead letters, such as the schedule itself.
    others = [group_figures(each.group, None, dead={each.group: each}) for each in dead]
    figures = [line.figures for line in lines] + [f for f in others if f.group not in known]
    before = _counted_before(visit.args.text("before"), status)
    return visit.page(
        "overview.html",
        status=status,
        rates=_rates(before, status),
        mark=_mark(before, status),
        wrong=[_wrong(each) for each in troubles(status, figures, jobs)],
        open_dead=sum([each.open for each in dead]),
        newest_dead_ms=max([each.newest_ms for each in dead if each.open], default=0),
        counts=counts_text(status),
        pending=sum([level.pending for level in status.levels]),
        levels=[each for each in status.levels if each.is_used],
        empty_levels=[
            each
            for each in status.levels
            if each.level != TIMERS and each.delay and not each.is_used
        ],
        groups=lines[:ROWS],
        groups_more=max(0, len(lines) - ROWS),
        jobs=[job for job in jobs if not job.is_over][:5],
    )


async def lateness(visit: Visit) -> Response:
    status = await visit.service.status()
    return visit.page("lateness.html", status=status, plot=plots.lateness(status.levels))


async def group_lines(visit: Visit, infos: Sequence[GroupInfo]) -> list[GroupLine]:
    """Members, lag, retries and dead letters of each of these groups."""
    return await _lines(visit, infos, await visit.service.letters.dead_groups())


async def _lines(
    visit: Visit, infos: Sequence[GroupInfo], letters: Sequence[DeadLetterGroup]
) -> list[GroupLine]:
    dead = {each.group: each for each in letters}
    waiting = waiting_by_topic(await visit.service.schedule.counts())
    lines = []
    for number, info in enumerate(infos):
        if number % ROWS == ROWS - 1:
            await let_others()
        status = await visit.service.groups.status(info.group)
        figures = group_figures(info.group, status, waiting, dead)
        lines.append(GroupLine(figures, dead.get(info.group)))
    return lines


def _wrong(trouble: Trouble) -> Wrong:
    path, field, more = _LEADS.get(trouble.subject, ("", "", {}))
    names = trouble.names[:_LINKS_MAX] if path else ()
    links = [Link(name, path, {field: name} | more) for name in names]
    return Wrong(trouble.sentence, trouble.tone, links)


def _counted_before(text: str, status: BrokerStatus) -> tuple[int, ...]:
    """The time and the counts of the page before, from its mark; else of the broker's start."""
    start = (status.started_at_ms, 0, 0, 0, 0)
    words = text.split(".")
    if len(words) != len(start) or not all(w.isascii() and w.isdigit() for w in words):
        return start
    before = tuple([int(word[:15]) for word in words])
    now = (status.now_ms, *[getattr(status, name) for name in COUNTED])
    # If a count is higher than now, the mark is of a broker that has ended.
    is_older = before[0] >= status.started_at_ms and all(
        then <= here for then, here in zip(before, now, strict=True)
    )
    return before if is_older else start


def _rates(before: tuple[int, ...], status: BrokerStatus) -> Rates:
    over_ms = max(1, status.now_ms - before[0])
    counts = [getattr(status, name) for name in COUNTED]
    per_second = [
        (now - then) * 1000 / over_ms for now, then in zip(counts, before[1:], strict=True)
    ]
    return Rates(dict(zip(COUNTED, per_second, strict=True)), over_ms)


def _mark(before: tuple[int, ...], status: BrokerStatus) -> str:
    """The mark that the next page sends as before."""
    if status.now_ms - before[0] < _AT_LEAST_MS:
        return ".".join(map(str, before))
    counts = [getattr(status, name) for name in COUNTED]
    return ".".join(map(str, [status.now_ms, *counts]))
