"""Redrives of failed messages: previewed, started, changed; imported dead letters.

A change of a redrive is answered when it is on disk.
"""

from __future__ import annotations

from dataclasses import replace

from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.requests import (
    ImportAnswer,
    ImportRequest,
    JobChange,
    OutcomesPage,
    OutcomesQuery,
    RedriveJob,
    RedriveJobQuery,
    RedrivePreview,
    RedrivePreviewRequest,
    RedriveRequest,
)
from rmqlite.kernel.service.access import (
    NOTE,
    Need,
    Right,
    admin,
    group_right,
    needs,
    topic_right,
    view,
)
from rmqlite.kernel.service.part import Part
from rmqlite.kernel.service.turns import done_in_turns

_of_asked = needs(lambda query: [Need(Right.VIEW, "group" if query.group else "", query.group)])


def _preview_rights(request: RedrivePreviewRequest) -> list[Need]:
    """The preview names the groups that read the topic."""
    topic = request.spec.to_topic
    topics = [topic_right(Right.VIEW, topic)] if topic else []
    return [group_right(Right.VIEW, request.spec.group), *topics]


class RedriveCalls(Part):
    """Calls of administrators about redrive jobs."""

    @needs(_preview_rights)
    async def preview(self, request: RedrivePreviewRequest) -> RedrivePreview:
        """What a job would do with one page of its letters."""
        return await done_in_turns(self._broker[Redrive].preview(request))

    @admin
    async def start(self, request: RedriveRequest) -> RedriveJob:
        job = self._broker[Redrive].start(request, NOTE.get().text)
        await self._durable()
        return job

    @view
    async def get(self, query: RedriveJobQuery) -> RedriveJob:
        """A job; on demand with what became of its messages."""
        redrive = self._broker[Redrive]
        if not query.with_results:
            return redrive.get(query.job_id)
        results = await done_in_turns(redrive.results.of(query.job_id))
        return replace(redrive.get(query.job_id), results=results)

    @view
    async def all(self) -> tuple[RedriveJob, ...]:
        return self._broker[Redrive].all()

    @admin
    async def change(self, change: JobChange) -> RedriveJob:
        """Pause, resume or cancel a job, or give it another rate."""
        job = self._broker[Redrive].change(change, NOTE.get().text)
        await self._durable()
        return job

    @admin
    async def import_letters(self, request: ImportRequest) -> ImportAnswer:
        """Send letters from a file, or say what would become of them."""
        answer = self._broker[Redrive].imports.run(request)
        if not request.dry_run:
            await self._durable()
        return answer

    @view
    async def outcomes(self, query: OutcomesQuery) -> OutcomesPage:
        """One page of the outcomes of a job's letters."""
        return await done_in_turns(self._broker[Redrive].outcomes(query))
