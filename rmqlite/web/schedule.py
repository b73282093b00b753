"""Pages of the schedule: a plot of due times, a list of pending messages, changes.

A change begins with a dry run; the form on its page then does it.  A change of many messages
takes several calls; if one request has no time for all, its page says how many it has changed,
and a button continues from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from starlette.responses import Response

from rmqlite.features.changes.requests import (
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    LevelTimeline,
    PendingMessage,
    PendingQuery,
    TimelineRequest,
)
from rmqlite.features.changes.service import ChangeCalls
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.clock import elapsed_s, local_text, zone_text
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import LevelTable, wait_ms
from rmqlite.kernel.words.names import group_of
from rmqlite.views.levels import level_name, levels_text
from rmqlite.web import plots
from rmqlite.web.args import PENDING_FIELDS, Args, Fields
from rmqlite.web.site import Visit

_SPAN: Final = "1h"
"""How far a timeline looks ahead if nobody says."""
_NEW_TIME: Final = ("to", "at")
"""The fields of a reschedule: a level, or an instant or a length of time from now."""
WORK_S_MAX: Final = 15.0
"""How long one request works on a change of many messages."""
_SAMPLES: Final = 10


@dataclass(frozen=True, slots=True)
class FormChange:
    """A change that a form asks for: of the messages with these ids, or of all that fit fields.

    new_time: of a reschedule, the field of ChangeByIds that is given; typed: as it was typed.
    """

    action: ScheduleAction
    ids: tuple[str, ...]
    fields: Fields
    topic: str
    new_time: Mapping[str, int]
    typed: Fields

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
    table = await visit.level_table()
    ahead = args.one_of("span", (_SPAN, *plots.SPANS))
    bounds_ms = plots.bounds_of(visit.now_ms, ahead)
    levels = await visit.service[ChangeCalls].timeline(TimelineRequest(bounds_ms, wanted.levels))
    rows, cursor, count = await visit.filled(
        lambda query, most: visit.service[ChangeCalls].pending(replace(query, max_messages=most)),
        PendingQuery(wanted, args.text("cursor")),
        lambda page: page.messages,
        "message",
    )
    return visit.page(
        "schedule.html",
        plot=plots.timeline(bounds_ms, levels, _names(table, levels)),
        marks=plots.marks_of(bounds_ms, ahead),
        ahead=ahead,
        spans=plots.SPANS,
        of_levels=levels_text(wanted.levels),
        fields=args.given(*PENDING_FIELDS),
        rows=rows,
        cursor=cursor,
        count=count,
        is_first=not args.text("cursor"),
        table=table,
        group_of=group_of,
    )


async def change_preview(visit: Visit) -> Response:
    """What a change would do, and the form that does it."""
    asked = _asked(visit)
    done = await _done(visit, asked, dry_run=True)
    samples: tuple[PendingMessage, ...] = ()
    if not asked.ids:
        query = PendingQuery(visit.args.pending_filter(visit.now_ms), max_messages=_SAMPLES)
        samples = (await visit.service[ChangeCalls].pending(query)).messages
    due = _due_text(asked, await visit.level_table())
    return visit.page("change.html", asked=asked, done=done, is_dry=True, samples=samples, due=due)


async def change(visit: Visit) -> Response:
    """Do the change; when the page is sent, it is on disk."""
    asked = _asked(visit)
    done = await _done(visit, asked, dry_run=False)
    before = visit.form.number("before", at_most=10**15)
    return visit.page(
        "change.html",
        asked=asked,
        done=done,
        is_dry=False,
        samples=(),
        due=_due_text(asked, await visit.level_table()),
        in_all=before + done.count,
    )


def _asked(visit: Visit) -> FormChange:
    fields = visit.fields
    action = fields.member("action", ScheduleAction)
    is_chosen = fields.is_on("chosen")
    ids = fields.quoted_ids("ids")
    if is_chosen and not ids:
        raise InvalidValue("ids", "", "at least one chosen message")
    new_time, typed = {}, Fields()
    if action is ScheduleAction.RESCHEDULE:
        new_time, typed = _new_time(fields, visit.now_ms), fields.given(*_NEW_TIME)
    chosen = fields.given("topic") if is_chosen else fields.given(*PENDING_FIELDS)
    topic = fields.text("topic")
    return FormChange(action, ids if is_chosen else (), chosen, topic, new_time, typed)


def _new_time(fields: Args, now_ms: int) -> dict[str, int]:
    to, at = [fields.text(name) for name in _NEW_TIME]
    if bool(to) == bool(at):
        raise InvalidValue("to", to, "a level, or else an instant: one of them")
    if to:
        return {"delay_level": fields.number("to")}
    if (length := _from_now(at)) is not None:
        return {"deliver_after_ms": wait_ms("at", length)}
    return {"deliver_at_ms": fields.moment_ms("at", now_ms) or 0}


def _from_now(at: str) -> str | None:
    """The length of time in "+36h" or "in 36h"; None for an instant."""
    length = at.removeprefix("in ").removeprefix("+").lstrip()
    return length if length != at else None


def _due_text(asked: FormChange, table: LevelTable) -> str:
    """When a reschedule lets messages be due."""
    for name, value in asked.new_time.items():
        if name == "deliver_at_ms":
            return f"at {local_text(value)} {zone_text(value)}"
        if name == "delay_level":
            return f"{table.own_name(value) or '?'} from now"
    return f"{_from_now(str(asked.typed.get('at', '')))} from now"


async def _done(visit: Visit, asked: FormChange, *, dry_run: bool) -> Changed:
    if asked.ids:
        by_ids = ChangeByIds(
            asked.action, asked.ids, asked.topic, dry_run=dry_run, **asked.new_time
        )
        outcomes = await visit.service[ChangeCalls].change_by_ids(by_ids)
        count = sum([each.count for each in outcomes if not each.outcome])
        return Changed(count, outcomes=outcomes)
    wanted = visit.fields.pending_filter(visit.now_ms)
    count, cursor = 0, visit.fields.text("cursor")
    until_s = elapsed_s() + WORK_S_MAX
    while True:
        by_filter = ChangeByFilter(
            asked.action, wanted, dry_run=dry_run, cursor=cursor, **asked.new_time
        )
        page = await visit.service[ChangeCalls].change_by_filter(by_filter)
        count, cursor = count + page.changed, page.cursor
        if not cursor or elapsed_s() > until_s:
            return Changed(count, cursor)


def _names(table: LevelTable, levels: tuple[LevelTimeline, ...]) -> dict[int, str]:
    """The legend's names of levels; a level that only an older table had has no delay now."""
    return {
        each.level: f"{delay} ({level_name(each.level)})"
        if (delay := table.own_name(each.level))
        else levels_text((each.level,))
        for each in levels
    }
