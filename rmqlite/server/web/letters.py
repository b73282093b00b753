"""Pages of dead letters: the groups with counts and reasons, a group's letters, the purge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from starlette.responses import Response

from rmqlite.requests.dead_letters import (
    EVERY_DEAD_LETTER,
    DeadLetter,
    DeadLetterPage,
    DeadLettersQuery,
    PurgeRequest,
)
from rmqlite.server.web.args import LETTER_FIELDS, Args
from rmqlite.server.web.site import ROWS, Visit

RETRY_FIELDS: Final = ("kind", "reason", "topic", "tag", "key", "id")
_CALLS_MAX: Final = 20
_VIEWS: Final = ("all", "open")
_ORDERS: Final = ("newest", "oldest")
_PURGES: Final = ("purge", "restore")


async def dead_groups(visit: Visit) -> Response:
    found = await visit.service.letters.dead_groups()
    shown, after = visit.part_of(found)
    return visit.page("dead_groups.html", groups=shown, after=after)


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
    rows, cursor = await filled_letters(visit.service.letters.dead, query)
    # Who may see this group only sees its letters, without the counts.
    found = await visit.service.letters.dead_groups() if visit.sees_all else ()
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
    """The number of letters that a purge would hide or bring back, and the form that does it."""
    request = replace(_purge(visit.args, visit.now_ms), dry_run=True)
    purged = await visit.service.letters.purge(request)
    kept = visit.args.kept("group", "what", *LETTER_FIELDS)
    for name in ("since", "until"):
        # As an instant: it means the same however long somebody thinks.
        if name in kept:
            kept[name] = str(getattr(request.filter, f"{name}_ms"))
    return visit.page("purge.html", asked=request, purged=purged, kept=kept)


async def purge(visit: Visit) -> Response:
    request = _purge(visit.form, visit.now_ms)
    purged = await visit.service.letters.purge(request)
    return visit.page("purge.html", asked=request, purged=purged, kept={})


def _purge(fields: Args, now_ms: int) -> PurgeRequest:
    is_restore = fields.one_of("what", _PURGES) == "restore"
    wanted = EVERY_DEAD_LETTER if is_restore else fields.letter_filter(now_ms)
    return PurgeRequest(fields.required("group"), restore=is_restore, filter=wanted)


async def filled_letters(
    pages: Callable[[DeadLettersQuery], Awaitable[DeadLetterPage]], query: DeadLettersQuery
) -> tuple[list[DeadLetter], str]:
    """A page's rows and the next page's cursor; makes several calls if few letters fit."""
    rows: list[DeadLetter] = []
    for _ in range(_CALLS_MAX):
        page = await pages(replace(query, max_letters=ROWS - len(rows)))
        rows += page.letters
        query = replace(query, cursor=page.cursor)
        if not page.cursor or len(rows) == ROWS:
            break
    return rows, query.cursor
