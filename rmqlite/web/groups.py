"""Pages of consumer groups and topics: progress, settings, failed messages, and their deletion.

What cannot be taken back begins with a page that says what is lost, comes again or is skipped; its
form does it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
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
from rmqlite.features.operating.requests import OffsetReset
from rmqlite.features.operating.service import DeletionCalls, ProgressCalls
from rmqlite.kernel.requests.groups import GroupChange, GroupInfo
from rmqlite.kernel.service.turns import let_others
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.names import retry_topic
from rmqlite.kernel.words.retry_policy import RetryPolicy
from rmqlite.views.groups import (
    BROADCASTING,
    GroupFigures,
    attempts_table,
    death_lines,
    group_figures,
    groups_table,
    limit_line,
    loss_lines,
    members_table,
    progress_table,
    readers_table,
    resets_table,
    resets_text,
    silent_lines,
    waiting_by_topic,
)
from rmqlite.views.levels import attempts_of
from rmqlite.views.messages import filter_facts
from rmqlite.views.tables import Table
from rmqlite.web.args import LETTER_FIELDS, RETRY_FIELDS, Args, Fields, instants
from rmqlite.web.site import ROWS, Visit

_VIEWS: Final = ("all", "open")
_ORDERS: Final = ("newest", "oldest")
_PURGES: Final = ("purge", "restore")
_ENDS: Final[dict[str, int | None]] = {"earliest": 0, "latest": None}
_PLACES: Final = {"earliest": "from the earliest message on", "latest": "behind the latest message"}


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
        max_per_second=fields.decimal("per_second"),
        burst=fields.number("burst"),
        bury_expired=fields.is_on("bury_expired"),
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
        expired=status.expired,
        broadcasting=BROADCASTING,
        limit=limit_line(status),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStep:
    """What a page does, or has done.

    does: the words of its button.  members: of the group, which only force takes.  fields: of the
    form that does it, None when there is nothing to do, or it is done.
    """

    title: str
    lines: list[str]
    table: Table | None = None
    does: str = ""
    members: int = 0
    fields: Fields | None = None
    back: str = ""


async def topic_preview(visit: Visit) -> Response:
    topic = visit.args.required("name")
    loss = await visit.service[DeletionCalls].loss(topic)
    step = PageStep(
        title=f"Delete topic {topic}?",
        lines=loss_lines(loss),
        table=readers_table(loss.readers),
        does=f"Delete topic {topic}",
        fields={"name": topic},
    )
    return visit.page("operating.html", step=step)


async def delete_topic(visit: Visit) -> Response:
    topic = visit.form.required("name")
    await visit.service[DeletionCalls].delete(topic)
    return _done(visit, f"Topic {topic} is deleted")


async def group_preview(visit: Visit) -> Response:
    group = visit.args.required("name")
    status = await visit.service[ProgressCalls].status(group)
    progress, _ = visit.part_of(status.progress)
    step = PageStep(
        title=f"Delete group {group}?",
        lines=["Its settings and offsets are deleted; retries that wait and dead letters stay."],
        table=progress_table(progress, status.now_ms),
        does=f"Delete group {group}",
        members=len(status.members),
        fields={"name": group},
        back=group,
    )
    return visit.page("operating.html", step=step)


async def delete_group(visit: Visit) -> Response:
    group = visit.form.required("name")
    force = visit.form.is_on("force")
    await visit.service.groups.delete(group, with_offsets=True, force=force)
    return _done(visit, f"Group {group} is deleted")


async def reset_preview(visit: Visit) -> Response:
    request, place = _reset(visit.args, visit.now_ms)
    resets = await visit.service[ProgressCalls].preview_reset(request)
    status = await visit.service[ProgressCalls].status(request.group)
    # A length of time counts from this page on.
    to = visit.args.text("to") if request.timestamp_ms in _ENDS.values() else request.timestamp_ms
    fields: Fields = {"name": request.group, "topic": request.topic or "", "to": str(to)}
    moved = [each for each in resets if each.before != each.after]
    shown, _ = visit.part_of(moved)
    more = [f"The first {len(shown)} of {len(moved):,} queues:"] if len(shown) < len(moved) else []
    step = PageStep(
        title=f"Let {request.group} go on {place}?",
        lines=[f"{resets_text(resets)}.", *more],
        table=resets_table(shown),
        does=f"Reset {request.group}",
        members=len(status.members),
        fields=fields if moved else None,
        back=request.group,
    )
    return visit.page("operating.html", step=step)


async def reset(visit: Visit) -> Response:
    request, place = _reset(visit.form, visit.now_ms)
    resets = await visit.service[ProgressCalls].reset_offsets(request)
    sentence = f"{request.group} goes on {place}"
    return _done(visit, sentence, f"{resets_text(resets)}.", back=request.group)


def _reset(fields: Args, now_ms: int) -> tuple[OffsetReset, str]:
    """The request of a form, and its place in words."""
    to = fields.required("to")
    at_ms = _ENDS[to] if to in _ENDS else fields.moment_ms("to", now_ms)
    topic = fields.text("topic") or None
    place = _PLACES.get(to, f"from the first message since {local_text(at_ms or 0)} on")
    request = OffsetReset(fields.required("name"), topic, at_ms, force=fields.is_on("force"))
    return request, f"{place}, in {topic}" if topic else place


def _done(visit: Visit, title: str, *lines: str, back: str = "") -> Response:
    return visit.page("operating.html", step=PageStep(title=title, lines=list(lines), back=back))
