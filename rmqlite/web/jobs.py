"""Pages of jobs: bulk sends; a redrive's dry run and start, its progress and its outcomes."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Final

from starlette.responses import Response

from rmqlite.features.bulk.service import BulkCalls
from rmqlite.features.redrive.requests import (
    NOTHING_SEEN,
    JobAction,
    JobChange,
    OutcomesQuery,
    RedriveJobQuery,
    RedriveOutcome,
    RedrivePreview,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.features.redrive.service import RedriveCalls
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.names import is_system_group
from rmqlite.views.jobs import (
    OUTCOME_TEXTS,
    bulks_table,
    facts,
    readers_text,
    redrives_table,
    spec_facts,
    target_text,
)
from rmqlite.web.args import LETTER_FIELDS, Args, instants
from rmqlite.web.site import ROWS, Visit

SPEC_FIELDS: Final = ("group", *LETTER_FIELDS, "to", "to_topic", "level", "rate", "again")
PREVIEW_S_MAX: Final = 10.0
"""How long a dry run reads letters; its page says how many it has read until then."""
_TOPICS_SHOWN: Final = 20


async def form(visit: Visit) -> Response:
    group = visit.args.required("group")
    visit.args.letter_filter(visit.now_ms)
    return visit.page(
        "redrive_form.html",
        group=group,
        fields=visit.args.given(*SPEC_FIELDS),
        has_group=not is_system_group(group),
        table=await visit.level_table(),
    )


async def preview(visit: Visit) -> Response:
    """The result of a dry run, and the form that starts the job."""
    spec = _spec(visit.args, visit.now_ms)
    found = await _previewed(visit, spec)
    return visit.page(
        "redrive_preview.html",
        spec=spec,
        facts=spec_facts(spec),
        target=target_text(spec),
        texts=OUTCOME_TEXTS,
        readers_text=readers_text,
        found=found,
        topics=found.topics[:_TOPICS_SHOWN],
        has_group=not is_system_group(spec.group),
        # Times become instants: "-1h" would mean another time when the job starts.
        fields=visit.args.given(*SPEC_FIELDS) | instants(spec.filter),
        # The form has the job's id: if it is sent twice, only one job starts.
        job_id=f"web-{secrets.token_hex(6)}",
    )


async def start(visit: Visit) -> Response:
    spec = _spec(visit.form, visit.now_ms)
    job = await visit.service[RedriveCalls].start(
        RedriveRequest(spec, visit.form.required("job_id"))
    )
    return visit.go_to("/job", id=job.job_id)


async def jobs(visit: Visit) -> Response:
    redrives, after_redrives = visit.part_of(await visit.service[RedriveCalls].all())
    bulks, after_bulks = visit.part_of(await visit.service[BulkCalls].jobs())
    return visit.page(
        "jobs.html",
        redrives=redrives_table(redrives),
        bulks=bulks_table(bulks),
        after=max(after_redrives, after_bulks),
    )


async def job(visit: Visit) -> Response:
    """A job; and what became of its messages once it is over, because counting reads the log."""
    query = RedriveJobQuery(visit.args.required("id"))
    found = await visit.service[RedriveCalls].get(query)
    if found.is_over and found.sent:
        found = await visit.service[RedriveCalls].get(replace(query, with_results=True))
    return visit.page("job.html", job=found, facts=facts(found), texts=OUTCOME_TEXTS)


async def bulk_job(visit: Visit) -> Response:
    found = await visit.service[BulkCalls].job(visit.args.required("id"))
    return visit.page("bulk_job.html", job=found, bulk=bulks_table([found]))


async def change(visit: Visit) -> Response:
    """Pause, resume or cancel a job, or change its rate."""
    fields = visit.form
    wanted = JobChange(
        fields.required("id"), fields.member("action", JobAction), fields.number("rate")
    )
    changed = await visit.service[RedriveCalls].change(wanted)
    return visit.go_to("/job", id=changed.job_id)


async def outcomes(visit: Visit) -> Response:
    """The outcomes of a job's letters, page by page."""
    args = visit.args
    only = args.one_of("only", ("all", *[each.name.lower() for each in RedriveOutcome]))
    wanted = () if only == "all" else (RedriveOutcome[only.upper()],)
    query = OutcomesQuery(args.required("id"), wanted, args.text("cursor"), ROWS)
    page = await visit.service[RedriveCalls].outcomes(query)
    rows, cursor = list(page.letters), page.cursor
    return visit.page(
        "outcomes.html",
        job_id=query.job_id,
        only=only,
        texts=OUTCOME_TEXTS,
        kinds=[each.name.lower() for each in RedriveOutcome],
        rows=rows,
        cursor=cursor,
        is_first=not query.cursor,
    )


def _spec(fields: Args, now_ms: int) -> RedriveSpec:
    to_topic = fields.text("to_topic")
    target = fields.one_of("to", ("group", "topic")) if fields.text("to") else ""
    if target == "topic":
        fields.required("to_topic")
    elif target and to_topic:
        rule = "empty if the letters go back to the group"
        raise InvalidValue("to_topic", to_topic, rule)
    return RedriveSpec(
        group=fields.required("group"),
        filter=fields.letter_filter(now_ms),
        to_topic=to_topic,
        delay_level=fields.number("level"),
        max_per_second=fields.number("rate"),
        again=fields.is_on("again"),
    )


async def _previewed(visit: Visit, spec: RedriveSpec) -> RedrivePreview:
    """All pages of a dry run as one; it has a cursor if there was no time for all."""
    request = RedrivePreviewRequest(spec)
    whole = NOTHING_SEEN
    until_s = elapsed_s() + PREVIEW_S_MAX
    while True:
        whole = whole.then(await visit.service[RedriveCalls].preview(request))
        if not whole.cursor or elapsed_s() > until_s:
            return whole
        request = replace(request, cursor=whole.cursor)
