"""Pages that delete a topic or a group, or let a group go on from another place.

Each begins with a page that says what is lost, comes again or is skipped; its form does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from rmqlite.features.operating.requests import OffsetReset
from rmqlite.features.operating.service import DeletionCalls, ProgressCalls
from rmqlite.kernel.words.clock import local_text
from rmqlite.views.groups import (
    loss_lines,
    progress_table,
    readers_table,
    resets_table,
    resets_text,
)
from rmqlite.views.tables import Table
from rmqlite.web.args import Args, Fields
from rmqlite.web.site import Visit

_ENDS: Final[dict[str, int | None]] = {"earliest": 0, "latest": None}

_PLACES: Final = {"earliest": "from the earliest message on", "latest": "behind the latest message"}


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
