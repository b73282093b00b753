"""Pages of dead letters: the groups with counts and reasons, a group's letters, the purge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from starlette.responses import Response

from rmqlite.requests.letters import Letter, LetterPage, LettersQuery, PurgeRequest
from rmqlite.server.web.args import LETTER_FIELDS
from rmqlite.server.web.site import ROWS, Visit

RETRY_FIELDS: Final = ("kind", "reason", "topic", "tag", "key", "id")
_CALLS_MAX: Final = 20
_VIEWS: Final = ("all", "open")
_ORDERS: Final = ("newest", "oldest")
_PURGES: Final = ("until", "all", "restore")


async def dead_groups(visit: Visit) -> Response:
    found = await visit.front.letters.dead_groups()
    shown, after = visit.part_of(found)
    return visit.page("dead_groups.html", groups=shown, after=after)


async def dead_letters(visit: Visit) -> Response:
    args = visit.args
    group = args.required("group")
    order, view = args.one_of("order", _ORDERS), args.one_of("view", _VIEWS)
    query = LettersQuery(
        group,
        args.letter_filter(visit.now_ms),
        newest_first=order == "newest",
        is_open=view == "open",
        cursor=args.text("cursor"),
    )
    rows, cursor = await filled_letters(visit.front.letters.dead, query)
    # Who may see this group only sees its letters, without the counts.
    found = await visit.front.letters.dead_groups() if visit.sees_all else ()
    return visit.page(
        "dead_letters.html",
        group=group,
        about=next((each for each in found if each.group == group), None),
        order=order,
        view=view,
        kept=args.kept(*LETTER_FIELDS),
        rows=rows,
        cursor=cursor,
        is_first=not args.text("cursor"),
    )


async def purge_preview(visit: Visit) -> Response:
    """The letters that a purge would hide or bring back, and the form that does it."""
    request = replace(_purge(visit), dry_run=True)
    purged = await visit.front.letters.purge(request)
    return visit.page(
        "purge.html",
        asked=request,
        purged=purged,
        is_dry=True,
        what=visit.args.one_of("what", _PURGES),
    )


async def purge(visit: Visit) -> Response:
    request = _purge(visit)
    purged = await visit.front.letters.purge(request)
    what = visit.form.one_of("what", _PURGES)
    return visit.page("purge.html", asked=request, purged=purged, is_dry=False, what=what)


def _purge(visit: Visit) -> PurgeRequest:
    fields = visit.fields
    group, what = fields.required("group"), fields.one_of("what", _PURGES)
    if what != "until":
        return PurgeRequest(group, restore=what == "restore")
    fields.required("until")
    return PurgeRequest(group, fields.moment_ms("until", visit.now_ms))


async def filled_letters(
    pages: Callable[[LettersQuery], Awaitable[LetterPage]], query: LettersQuery
) -> tuple[list[Letter], str]:
    """A page's rows and the next page's cursor; makes several calls if few letters fit."""
    rows: list[Letter] = []
    for _ in range(_CALLS_MAX):
        page = await pages(replace(query, max_letters=ROWS - len(rows)))
        rows += page.letters
        query = replace(query, cursor=page.cursor)
        if not page.cursor or len(rows) == ROWS:
            break
    return rows, query.cursor
