"""The pages Overview and Lateness."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from rmqlite.features.dead_letters.service import DeadLetterCalls
from rmqlite.features.redrive.service import RedriveCalls
from rmqlite.views.cluster import cluster_tables
from rmqlite.views.counts import counts_text
from rmqlite.views.groups import group_figures, groups_table
from rmqlite.views.jobs import redrives_table
from rmqlite.views.levels import levels_table
from rmqlite.views.troubles import troubles
from rmqlite.web import plots
from rmqlite.web.groups import figures_of
from rmqlite.web.site import ROWS, Visit

_NAMES_MAX: Final = 5
"""A trouble leads to so many of the groups that have it."""


async def overview(visit: Visit) -> Response:
    status = await visit.service.status()
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
    return visit.page("lateness.html", status=status, plot=plots.lateness(status.levels))
