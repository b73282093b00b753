"""Pages of consumer groups: their progress, and the retries of their failed messages."""

from __future__ import annotations

from starlette.responses import Response

from rmqlite.levels import parse_levels
from rmqlite.requests.groups import GroupChange
from rmqlite.retry_policy import RetryPolicy, attempts_of
from rmqlite.server.web.overview import group_lines
from rmqlite.server.web.site import Visit


async def groups(visit: Visit) -> Response:
    infos = await visit.service.groups.all()
    shown, after = visit.part_of(infos)
    return visit.page("groups.html", lines=await group_lines(visit, shown), after=after)


async def group(visit: Visit) -> Response:
    return await _page(visit, visit.args.required("name"))


async def change(visit: Visit) -> Response:
    """Change a group's settings; when the page is sent, the change is on disk."""
    fields = visit.form
    wanted = GroupChange(
        fields.required("name"),
        max_reconsume_times=fields.number("max") if fields.text("max") else None,
        can_consume=fields.is_on("can_consume"),
        retry_policy=fields.text("policy"),
    )
    await visit.service.groups.change(wanted)
    return await _page(visit, wanted.group, is_changed=True)


async def _page(visit: Visit, name: str, *, is_changed: bool = False) -> Response:
    status = await visit.service.groups.status(name)
    in_force = await visit.service.schedule.levels()
    (line,) = await group_lines(visit, (status.info,))
    table = parse_levels(in_force.message_delay_level)
    policy = RetryPolicy.parse(status.info.retry_policy)
    queues, after = visit.part_of(status.progress)
    return visit.page(
        "group.html",
        line=line,
        status=status,
        queues=queues,
        after=after,
        rungs=attempts_of(policy, table, status.info.max_reconsume_times),
        table=table,
        is_changed=is_changed,
    )
