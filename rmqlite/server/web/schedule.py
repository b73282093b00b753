"""Pages of the schedule: a plot of due times, lists of pending messages and retries, changes.

A change begins with a dry run; the form on its page then does it.  A change of many messages
takes several calls; if one request has no time for all, its page says how many it has changed,
and a button continues from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from rmqlite.clock import elapsed_s
from rmqlite.errors import InvalidValue
from rmqlite.levels import LevelTable, parse_delay, parse_levels
from rmqlite.names import group_of, retry_topic
from rmqlite.requests.letters import LetterFilter, LettersQuery
from rmqlite.requests.schedule import (
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    LevelTimeline,
    PendingMessage,
    PendingQuery,
    ScheduleAction,
    TimelineRequest,
)
from rmqlite.server.web import plots
from rmqlite.server.web.args import PENDING_FIELDS, Kept
from rmqlite.server.web.letters import RETRY_FIELDS, filled_letters
from rmqlite.server.web.overview import group_lines
from rmqlite.server.web.site import ROWS, Visit

SPANS: Final = ("1h", "10m", "6h", "1d", "7d", "30d")
"""How far a timeline may look ahead; the first is the default."""
COLUMNS: Final = 60
WORK_S_MAX: Final = 15.0
"""How long one request works on a change of many messages."""
_CALLS_MAX: Final = 20
"""How many calls a page makes for its rows if few messages fit."""
_SAMPLES: Final = 10


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a form asks for: of the messages with these ids, or of all that fit kept."""

    action: ScheduleAction
    ids: tuple[str, ...]
    kept: Kept
    to_level: int
    topic: str

    @property
    def group(self) -> str | None:
        """The group whose retries are changed; None if the change is not limited to one group."""
        return group_of(self.topic) if self.topic else None


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change did, or would do.  cursor: where it continues; empty at its end."""

    count: int
    cursor: str = ""
    outcomes: tuple[ChangedId, ...] = ()


async def schedule(visit: Visit) -> Response:
    args = visit.args
    wanted = args.pending_filter(visit.now_ms)
    table = await _table(visit)
    ahead = args.one_of("span", SPANS)
    step_ms = parse_delay(ahead) // COLUMNS
    bounds_ms = tuple([visit.now_ms + n * step_ms for n in range(COLUMNS + 1)])
    levels = await visit.front.schedule.timeline(TimelineRequest(bounds_ms, wanted.levels))
    rows, cursor = await _filled(visit, PendingQuery(wanted, args.text("cursor")))
    return visit.page(
        "schedule.html",
        plot=plots.timeline(bounds_ms, levels, _names(table, levels)),
        marks=[bounds_ms[n] for n in range(0, COLUMNS + 1, COLUMNS // 4)],
        ahead=ahead,
        spans=sorted(SPANS, key=parse_delay),
        kept=args.kept(*PENDING_FIELDS),
        rows=rows,
        cursor=cursor,
        is_first=not args.text("cursor"),
        table=table,
        group_of=group_of,
    )


async def retries(visit: Visit) -> Response:
    """A group's retries; without a group, the groups to choose from."""
    args = visit.args
    group = args.text("group")
    if not group:
        infos = await visit.front.groups.all()
        lines = [each for each in await group_lines(visit, infos) if each.retries]
        return visit.page("retry_groups.html", lines=lines[:ROWS], more=len(lines[ROWS:]))
    wanted = LetterFilter(
        topic=args.text("topic"),
        tag=args.text("tag"),
        key=args.text("key"),
        reason=args.text("reason"),
        ids=args.ids("id"),
        failure_kind=args.text("kind"),
    )
    query = LettersQuery(group, wanted, cursor=args.text("cursor"))
    rows, cursor = await filled_letters(visit.front.letters.retries, query)
    kept = args.kept(*RETRY_FIELDS)
    # The filter of the schedule calls the origin topic "origin".
    change = {("origin" if name == "topic" else name): value for name, value in kept.items()}
    return visit.page(
        "retries.html",
        group=group,
        kept=kept,
        change=change | {"topic": retry_topic(group)},
        rows=rows,
        cursor=cursor,
        is_first=not args.text("cursor"),
        table=await _table(visit),
    )


async def change_preview(visit: Visit) -> Response:
    """What a change would do, and the form that does it."""
    asked = _asked(visit)
    done = await _done(visit, asked, dry_run=True)
    samples: tuple[PendingMessage, ...] = ()
    if not asked.ids:
        query = PendingQuery(visit.args.pending_filter(visit.now_ms), max_messages=_SAMPLES)
        samples = (await visit.front.schedule.pending(query)).messages
    table = await _table(visit)
    return visit.page(
        "change.html", asked=asked, done=done, is_dry=True, samples=samples, table=table
    )


async def change(visit: Visit) -> Response:
    """Do the change; when the page is sent, it is on disk."""
    asked = _asked(visit)
    done = await _done(visit, asked, dry_run=False)
    before = visit.form.number("before", at_most=10**15)
    table = await _table(visit)
    return visit.page(
        "change.html",
        asked=asked,
        done=done,
        is_dry=False,
        samples=(),
        table=table,
        in_all=before + done.count,
    )


def _asked(visit: Visit) -> Change:
    fields = visit.fields
    action = fields.member("action", ScheduleAction)
    is_chosen = fields.is_on("chosen")
    ids = fields.quoted_ids("ids")
    if is_chosen and not ids:
        raise InvalidValue("ids", "", "choose at least one message")
    to_level = fields.number("to") if action is ScheduleAction.RESCHEDULE else 0
    kept = fields.kept("topic") if is_chosen else fields.kept(*PENDING_FIELDS)
    return Change(action, ids if is_chosen else (), kept, to_level, fields.text("topic"))


async def _done(visit: Visit, asked: Change, *, dry_run: bool) -> Changed:
    if asked.ids:
        by_ids = ChangeByIds(asked.action, asked.ids, asked.topic, asked.to_level, dry_run)
        outcomes = await visit.front.schedule.change_by_ids(by_ids)
        count = sum([each.count for each in outcomes if not each.outcome])
        return Changed(count, outcomes=outcomes)
    wanted = visit.fields.pending_filter(visit.now_ms)
    count, cursor = 0, visit.fields.text("cursor")
    until_s = elapsed_s() + WORK_S_MAX
    while True:
        by_filter = ChangeByFilter(asked.action, wanted, asked.to_level, dry_run, cursor)
        page = await visit.front.schedule.change_by_filter(by_filter)
        count, cursor = count + page.changed, page.cursor
        if not cursor or elapsed_s() > until_s:
            return Changed(count, cursor)


async def _filled(visit: Visit, query: PendingQuery) -> tuple[list[PendingMessage], str]:
    """A page's rows and the next page's cursor; makes several calls if few messages fit."""
    rows: list[PendingMessage] = []
    cursor = query.cursor
    for _ in range(_CALLS_MAX):
        part = PendingQuery(query.filter, cursor, ROWS - len(rows))
        page = await visit.front.schedule.pending(part)
        rows += page.messages
        cursor = page.cursor
        if not cursor or len(rows) == ROWS:
            break
    return rows, cursor


async def _table(visit: Visit) -> LevelTable:
    in_force = await visit.front.schedule.levels()
    return parse_levels(in_force.message_delay_level)


def _names(table: LevelTable, levels: tuple[LevelTimeline, ...]) -> dict[int, str]:
    """The legend's names of levels; a level that only an older table had has no delay now."""
    return {
        each.level: f"{table.name(each.level)} (level {each.level})"
        if each.level <= table.max_level
        else f"level {each.level}"
        for each in levels
    }
