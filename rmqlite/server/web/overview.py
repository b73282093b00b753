"""The pages Overview and Lateness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from rmqlite.names import retry_topic
from rmqlite.requests.groups import GroupInfo
from rmqlite.requests.letters import DeadLetterGroup
from rmqlite.requests.status import BrokerStatus
from rmqlite.server.turns import let_others
from rmqlite.server.web import plots
from rmqlite.server.web.site import ROWS, Visit

COUNTED: Final = ("sent", "delivered", "retried", "dead")
_AT_LEAST_MS: Final = 1_500
"""The shortest time that a rate is measured over; over less it would only flicker."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages per second in the last over_ms, by the name of their count in BrokerStatus."""

    per_second: dict[str, float]
    over_ms: int


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group's row in a table.  retries: those that wait, and the due ones not yet consumed."""

    info: GroupInfo
    members: int
    lag: int
    retries: int
    dead: DeadLetterGroup | None


async def overview(visit: Visit) -> Response:
    status = await visit.front.status()
    jobs = await visit.front.redrives.all()
    names = await visit.front.groups.all()
    before = _counted_before(visit.args.text("before"), status)
    return visit.page(
        "overview.html",
        status=status,
        rates=_rates(before, status),
        mark=_mark(before, status),
        pending=sum([level.pending for level in status.levels]),
        levels=[each for each in status.levels if each.delay or each.pending],
        groups=await group_lines(visit, names[:ROWS]),
        groups_more=max(0, len(names) - ROWS),
        jobs=[job for job in jobs if not job.is_over][:5],
        retry_topic=retry_topic,
    )


async def lateness(visit: Visit) -> Response:
    status = await visit.front.status()
    return visit.page("lateness.html", status=status, plot=plots.lateness(status.levels))


async def group_lines(visit: Visit, infos: Sequence[GroupInfo]) -> list[GroupLine]:
    """Members, lag, retries and dead letters of each of these groups."""
    dead = {each.group: each for each in await visit.front.letters.dead_groups()}
    waiting: dict[str, int] = {}
    for count in await visit.front.schedule.counts():
        waiting[count.topic] = waiting.get(count.topic, 0) + count.pending
    lines = []
    for number, info in enumerate(infos):
        if number % ROWS == ROWS - 1:
            await let_others()
        status = await visit.front.groups.status(info.group)
        lag = sum([queue.lag for queue in status.progress])
        again = retry_topic(info.group)
        # Due retries that are not consumed yet have left the schedule; they count as lag, too.
        due = sum([each.lag for each in status.progress if each.queue.topic == again])
        retries = waiting.get(again, 0) + due
        members = len(status.members)
        lines.append(GroupLine(info, members, lag, retries, dead.get(info.group)))
    return lines


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
