"""The pages Overview and Lateness, and those of the schedule: due times, pending messages, changes.

A change begins with a dry run; the form on its page then does it.  A change of many messages
takes several calls; if one request has no time for all, its page says how many it has changed,
and a button continues from there.

Figures become places and sizes of drawings, which the templates write as SVG.  A drawing has no
words in it, so that a browser may stretch it to any width: its axes are text beside it, and every
figure is in a table, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

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
from rmqlite.features.dead_letters.requests import DeadLetterGroup
from rmqlite.features.dead_letters.service import DeadLetterCalls
from rmqlite.features.redrive.requests import RedriveJob
from rmqlite.features.redrive.service import RedriveCalls
from rmqlite.kernel.requests.broker import LevelStatus, ScheduleAction
from rmqlite.kernel.words.clock import elapsed_s, local_ms, local_text, month_start_ms, zone_text
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import LevelTable, parse_delay, wait_ms
from rmqlite.kernel.words.names import group_of
from rmqlite.views.broker import cluster_tables, troubles
from rmqlite.views.groups import GroupFigures, group_figures, groups_table
from rmqlite.views.jobs import redrives_table
from rmqlite.views.levels import level_name, levels_table, levels_text
from rmqlite.views.numbers import counts_text
from rmqlite.web.args import PENDING_FIELDS, Args, Fields
from rmqlite.web.groups import figures_of
from rmqlite.web.site import ROWS, Visit

SERIES_MAX: Final = 6
"""There are so many distinct colours; further levels are drawn together."""
OTHERS: Final = "other levels"
SPANS: Final = ("10m", "1h", "6h", "1d", "7d", "30d", "1y", "2y", "10y")
"""How far a timeline may look ahead."""
COLUMNS: Final = 60
_DAY_MS: Final = 86_400_000
_WEEKS: Final = 52
_MONTHS: Final = {"2y": (1, 25), "10y": (3, 41)}
"""The months of a column, and the number of columns."""
_NAMES_MAX: Final = 5
"""A trouble leads to so many of the groups that have it."""
_SPAN: Final = "1h"
"""How far a timeline looks ahead if nobody says."""
_NEW_TIME: Final = ("to", "at")
"""The fields of a reschedule: a level, or an instant or a length of time from now."""
WORK_S_MAX: Final = 15.0
"""How long one request works on a change of many messages."""
_SAMPLES: Final = 10


@dataclass(frozen=True, slots=True)
class PlotPart:
    """A piece of a column; y and height in percent of the plot, from its top."""

    series: int
    name: str
    count: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class PlotColumn:
    """The messages that fall due from begin_ms until before end_ms."""

    x: float
    begin_ms: int
    end_ms: int
    total: int
    parts: tuple[PlotPart, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """columns: of equal width, 1 each in x.  most: the height of the plot, in messages."""

    columns: tuple[PlotColumn, ...]
    series: tuple[str, ...]
    most: int
    overdue: int
    later: int

    @property
    def total(self) -> int:
        return sum([column.total for column in self.columns])


def bounds_of(now_ms: int, ahead: str) -> tuple[int, ...]:
    """The bounds of a timeline's columns; those of years begin with a local week or month."""
    if ahead in _MONTHS:
        months, columns = _MONTHS[ahead]
        starts = [month_start_ms(now_ms)]
        for _ in range(months * columns):
            # 32 days after its start every month is over, and the next one is not.
            starts.append(month_start_ms(starts[-1] + 32 * _DAY_MS))
        return now_ms, *starts[months::months]
    if ahead == "1y":
        weeks = [local_text(now_ms + n * 7 * _DAY_MS)[:10] for n in range(1, _WEEKS + 1)]
        return now_ms, *[local_ms(day) or 0 for day in weeks]
    step_ms = parse_delay(ahead) // COLUMNS
    return tuple([now_ms + n * step_ms for n in range(COLUMNS + 1)])


def marks_of(bounds_ms: Sequence[int], ahead: str) -> list[str]:
    """Five words for the axis under a timeline."""
    begin, end = (0, 10) if ahead == "1y" else (0, 7) if ahead[-1] == "y" else (5, 16)
    if ahead[-1] in "mh":
        begin = 11
    columns = len(bounds_ms) - 1
    return [local_text(bounds_ms[round(n * columns / 4)])[begin:end] for n in range(5)]


def timeline(
    bounds_ms: Sequence[int], levels: Sequence[LevelTimeline], names: Mapping[int, str]
) -> Timeline:
    """A column between each two instants, stacked by level; the rarest levels are one part."""
    by_count = sorted(levels, key=lambda each: -sum(each.counts[1:-1]))
    apart = sorted(by_count[:SERIES_MAX], key=lambda each: each.level)
    stacked = [(names[each.level], each.counts) for each in apart if sum(each.counts[1:-1])]
    rest = [each.counts for each in by_count[SERIES_MAX:]]
    if any(sum(counts[1:-1]) for counts in rest):
        stacked.append((OTHERS, tuple([sum(column) for column in zip(*rest, strict=True)])))
    slots = len(bounds_ms) - 1
    totals = [sum([counts[slot + 1] for _, counts in stacked]) for slot in range(slots)]
    most = _round_up(max(totals, default=0))
    columns = []
    for slot in range(slots):
        parts, top = [], 100.0
        for series, (name, counts) in enumerate(stacked):
            count = counts[slot + 1]
            if count:
                height = 100 * count / most
                top -= height
                parts.append(PlotPart(series, name, count, round(top, 3), round(height, 3)))
        columns.append(
            PlotColumn(slot, bounds_ms[slot], bounds_ms[slot + 1], totals[slot], tuple(parts))
        )
    return Timeline(
        tuple(columns),
        tuple([name for name, _ in stacked]),
        most,
        sum([each.counts[0] for each in levels]),
        sum([each.counts[-1] for each in levels]),
    )


def _round_up(count: int) -> int:
    """The next round number, for an axis; at least 4."""
    if count <= 4:
        return 4
    unit: int = 10 ** (len(str(count)) - 1)
    return next(
        step
        for tenths in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)
        if (step := tenths * unit // 10) >= count
    )


@dataclass(frozen=True, slots=True)
class LatenessLine:
    """One level's line; p50, p99, most: places in percent of the width."""

    level: LevelStatus
    p50: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class LatenessPlot:
    """ticks: place in percent of the width, and text such as "10 ms"."""

    rows: tuple[LatenessLine, ...]
    ticks: tuple[tuple[float, str], ...]


def lateness_plot(levels: Sequence[LevelStatus]) -> LatenessPlot:
    """How late each level delivered, on a scale on which each tick is ten times the last."""
    most_ms = max([each.lateness_max_ms for each in levels], default=0)
    decades = max(3, math.ceil(math.log10(max(1, most_ms))))

    def place(late_ms: int) -> float:
        # One millisecond or less is at the left end, because 0 has no logarithm.
        return round(100 * math.log10(max(1, late_ms)) / decades, 2)

    rows = [
        LatenessLine(
            each,
            place(each.lateness_p50_ms),
            place(each.lateness_p99_ms),
            place(each.lateness_max_ms),
        )
        for each in levels
        if each.delivered
    ]
    ticks = [(round(100 * n / decades, 2), _tick(10**n)) for n in range(decades + 1)]
    return LatenessPlot(tuple(rows), tuple(ticks))


def _tick(length_ms: int) -> str:
    # No minutes: readers should see that each tick is ten times the one before.
    return f"{length_ms} ms" if length_ms < 1_000 else f"{length_ms // 1000:,}s"


async def overview(visit: Visit) -> Response:
    status = await visit.service.status()
    jobs: Sequence[RedriveJob] = ()
    dead: Sequence[DeadLetterGroup] = ()
    groups: Sequence[GroupFigures] = ()
    # A standby says only how it is itself.
    if not any(each.role == "SLAVE" for each in status.replication):
        jobs = await visit.service[RedriveCalls].all()
        infos = await visit.service.groups.all()
        dead = await visit.service[DeadLetterCalls].dead_groups()
        groups = await figures_of(visit, infos, dead)
    known = {each.group for each in groups}
    # A group without settings can have dead letters, such as the schedule itself.
    others = [group_figures(each.group, None, dead={each.group: each}) for each in dead]
    visit.site.rates.take(status)
    return visit.page(
        "overview.html",
        status=status,
        rates=visit.site.rates,
        troubles=troubles(status, [*groups, *[f for f in others if f.group not in known]], jobs),
        names_max=_NAMES_MAX,
        open_dead=sum([each.open for each in dead]),
        newest_dead_ms=max([each.newest_ms for each in dead if each.open], default=0),
        counts=counts_text(status),
        pending=sum([level.pending for level in status.levels]),
        cluster=cluster_tables(status),
        levels=levels_table(status),
        empty_levels=[
            each for each in status.levels if each.level > 0 and each.delay and not each.is_used
        ],
        groups=groups_table(groups[:ROWS]),
        groups_more=max(0, len(groups) - ROWS),
        jobs=redrives_table([job for job in jobs if not job.is_over][:5]),
    )


async def lateness(visit: Visit) -> Response:
    status = await visit.service.status()
    return visit.page("lateness.html", status=status, plot=lateness_plot(status.levels))


@dataclass(frozen=True, slots=True)
class FormChange:
    """A change that a form asks for: of the messages with these ids, or of all that fit fields.

    new_time: of a reschedule, the field of ChangeByIds that is given; typed: as it was typed.
    """

    action: ScheduleAction
    ids: tuple[str, ...]
    fields: Fields
    topic: str
    new_time: Mapping[str, Any]
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
    ahead = args.one_of("span", (_SPAN, *SPANS))
    bounds_ms = bounds_of(visit.now_ms, ahead)
    levels = await visit.service[ChangeCalls].timeline(TimelineRequest(bounds_ms, wanted.levels))
    rows, cursor, count = await visit.filled(
        lambda query, most: visit.service[ChangeCalls].pending(replace(query, max_messages=most)),
        PendingQuery(wanted, args.text("cursor")),
        lambda page: page.messages,
        "message",
    )
    return visit.page(
        "schedule.html",
        plot=timeline(bounds_ms, levels, _names(table, levels)),
        marks=marks_of(bounds_ms, ahead),
        ahead=ahead,
        spans=SPANS,
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
