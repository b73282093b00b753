"""Pages of consumer groups: their progress and settings, their retries, and their dead letters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from starlette.responses import Response

from rmqlite.features.changes.service import ChangeCalls
from rmqlite.features.dead_letters.requests import (
    EVERY_DEAD_LETTER,
    DeadLetter,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.features.dead_letters.service import DeadLetterCalls
from rmqlite.features.operating.service import ProgressCalls
from rmqlite.kernel.requests.groups import GroupChange, GroupInfo
from rmqlite.kernel.service.turns import let_others
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.names import retry_topic
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.views.failed_messages import filter_facts
from rmqlite.views.groups import (
    BROADCASTING,
    GroupFigures,
    attempts_table,
    death_lines,
    group_figures,
    groups_table,
    members_table,
    progress_table,
    silent_lines,
    waiting_by_topic,
)
from rmqlite.views.levels import attempts_of
from rmqlite.web.args import LETTER_FIELDS, RETRY_FIELDS, Args, Fields, instants
from rmqlite.web.site import ROWS, Visit

_VIEWS: Final = ("all", "open")
_ORDERS: Final = ("newest", "oldest")
_PURGES: Final = ("purge", "restore")


async def figures_of(
    visit: Visit, infos: Sequence[GroupInfo], dead: Sequence[DeadLetterGroup]
) -> list[GroupFigures]:
    """Members, lag, retries and dead letters of each of these groups."""
    by_group = {each.group: each for each in dead}
    waiting = waiting_by_topic(await visit.service[ChangeCalls].counts())
    found = []
    for number, info in enumerate(infos):
        if number % ROWS == ROWS - 1:
            await let_others()
        status = await visit.service[ProgressCalls].status(info.group)
        found.append(group_figures(info.group, status, waiting, by_group))
    return found


async def groups(visit: Visit) -> Response:
    shown, after = visit.part_of(await visit.service.groups.all())
    figures = await figures_of(visit, shown, await visit.service[DeadLetterCalls].dead_groups())
    return visit.page("groups.html", groups=groups_table(figures), after=after)


async def group(visit: Visit) -> Response:
    return await _group(visit, visit.args.required("name"))


async def change(visit: Visit) -> Response:
    """Change a group's settings; when the page is sent, the change is on disk."""
    fields = visit.form
    wanted = GroupChange(
        fields.required("name"),
        max_reconsume_times=fields.number("max") if fields.text("max") else None,
        can_consume=fields.is_on("can_consume"),
        retry_policy=fields.text("policy"),
        orderly=fields.is_on("orderly"),
    )
    await visit.service.groups.change(wanted)
    return await _group(visit, wanted.group, is_changed=True)


async def _group(visit: Visit, name: str, *, is_changed: bool = False) -> Response:
    status = await visit.service[ProgressCalls].status(name)
    in_force = await visit.service.schedule.levels()
    dead = await visit.service[DeadLetterCalls].dead_groups()
    (figures,) = await figures_of(visit, (status.info,), dead)
    table = parse_levels(in_force.message_delay_level)
    policy = RetryPolicy.parse(status.info.retry_policy)
    attempts = attempts_of(policy, table, status.info.max_reconsume_times)
    queues, after = visit.part_of(status.progress)
    return visit.page(
        "group.html",
        figures=figures,
        dead=next((each for each in dead if each.group == name), None),
        info=status.info,
        progress=progress_table(queues, status.now_ms),
        members=members_table(status.members, visit.now_ms),
        silent=silent_lines(status) if status.members else (),
        is_broadcasting=status.is_broadcasting,
        broadcasting=BROADCASTING,
        attempts=attempts_table(status.info, attempts, table),
        death=" ".join(death_lines(status.info, attempts)),
        after=after,
        is_changed=is_changed,
    )


async def retries(visit: Visit) -> Response:
    """A group's retries; without a group, the groups to choose from."""
    args = visit.args
    group = args.text("group")
    if not group:
        figures = await figures_of(visit, await visit.service.groups.all(), ())
        failing = [each for each in figures if each.retries]
        return visit.page("retry_groups.html", groups=failing[:ROWS], more=len(failing[ROWS:]))
    wanted = args.letter_filter(visit.now_ms, *RETRY_FIELDS)
    query = DeadLettersQuery(group, wanted, cursor=args.text("cursor"))
    call = visit.service[DeadLetterCalls].retries
    rows, cursor, count = await _letters(visit, call, query, "retry")
    fields = args.given(*RETRY_FIELDS)
    # The filter of the schedule calls the origin topic "origin".
    change = {("origin" if name == "topic" else name): value for name, value in fields.items()}
    return visit.page(
        "retries.html",
        group=group,
        fields=fields,
        change=change | {"topic": retry_topic(group)},
        rows=rows,
        cursor=cursor,
        count=count,
        is_first=not args.text("cursor"),
        table=await visit.level_table(),
    )


async def dead_groups(visit: Visit) -> Response:
    found = await visit.service[DeadLetterCalls].dead_groups()
    shown, after = visit.part_of(found)
    return visit.page("dead_groups.html", groups=shown, after=after)


async def reasons(visit: Visit) -> Response:
    """Every kind of reason of a group's open dead letters."""
    about = await visit.service[DeadLetterCalls].reasons(visit.args.required("group"))
    shown, after = visit.part_of(about.reasons)
    return visit.page(
        "dead_reasons.html",
        about=about,
        kinds=len(about.reasons),
        shown=replace(about, reasons=tuple(shown), rest_letters=0),
        after=after,
    )


async def dead_letters(visit: Visit) -> Response:
    args = visit.args
    group = args.required("group")
    order, view = args.one_of("order", _ORDERS), args.one_of("view", _VIEWS)
    query = DeadLettersQuery(
        group,
        args.letter_filter(visit.now_ms),
        newest_first=order == "newest",
        is_open=view == "open",
        cursor=args.text("cursor"),
    )
    call = visit.service[DeadLetterCalls].dead
    rows, cursor, count = await _letters(visit, call, query, "dead letter")
    # Who may see this group only sees its dead letters, without the counts.
    found = await visit.service[DeadLetterCalls].dead_groups() if visit.sees_all else ()
    return visit.page(
        "dead_letters.html",
        group=group,
        about=next((each for each in found if each.group == group), None),
        order=order,
        view=view,
        fields=args.given(*LETTER_FIELDS),
        rows=rows,
        cursor=cursor,
        count=count,
        is_first=not args.text("cursor"),
    )


async def purge_preview(visit: Visit) -> Response:
    """The number of dead letters that a purge would hide or bring back, and its form."""
    request = replace(_purge(visit.args, visit.now_ms), dry_run=True)
    purged = await visit.service[DeadLetterCalls].purge(request)
    fields = visit.args.given("group", "what", *LETTER_FIELDS)
    return _purged(visit, request, purged, fields | instants(request.filter))


async def purge(visit: Visit) -> Response:
    request = _purge(visit.form, visit.now_ms)
    purged = await visit.service[DeadLetterCalls].purge(request)
    return _purged(visit, request, purged, {})


def _purged(visit: Visit, request: PurgeRequest, purged: Purged, fields: Fields) -> Response:
    facts = list(filter_facts(request.filter))
    return visit.page("purge.html", asked=request, purged=purged, facts=facts, fields=fields)


def _purge(fields: Args, now_ms: int) -> PurgeRequest:
    is_restore = fields.one_of("what", _PURGES) == "restore"
    wanted = EVERY_DEAD_LETTER if is_restore else fields.letter_filter(now_ms)
    return PurgeRequest(fields.required("group"), restore=is_restore, filter=wanted)


async def _letters(
    visit: Visit,
    call: Callable[[DeadLettersQuery], Awaitable[DeadLetterPage]],
    query: DeadLettersQuery,
    noun: str,
) -> tuple[list[DeadLetter], str, str]:
    return await visit.filled(
        lambda query, most: call(replace(query, max_letters=most)),
        query,
        lambda page: page.letters,
        noun,
    )
