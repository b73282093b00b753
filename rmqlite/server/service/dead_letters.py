"""Failed messages: dead letters, retries, whole histories; and redrives, which send them again.

Long reads are done in steps, and other calls get their turns between them.  Reading never
consumes a message.  A change of a redrive is answered when it is on disk.
"""

from __future__ import annotations

from dataclasses import replace

from rmqlite.access.accounts import Right
from rmqlite.access.decision import Need
from rmqlite.requests.dead_letters import (
    DeadLetterGroup,
    DeadLetterPage,
    DeadLettersQuery,
    History,
    HistoryQuery,
    Purged,
    PurgeRequest,
)
from rmqlite.requests.redrive import (
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
from rmqlite.server.service.access import (
    NOTE,
    admin,
    group_right,
    needs,
    of_group,
    topic_right,
    view,
)
from rmqlite.server.service.part import Part
from rmqlite.server.turns import done_in_turns

_of_asked = needs(lambda query: [Need(Right.VIEW, "group" if query.group else "", query.group)])


class DeadLetterCalls(Part):
    """Calls of administrators about failed messages."""

    @view
    async def dead_groups(self) -> tuple[DeadLetterGroup, ...]:
        """Each group with dead letters: how many letters, and their reasons."""
        return await done_in_turns(self._broker.dead_letters.groups())

    @of_group(Right.VIEW)
    async def reasons(self, group: str) -> DeadLetterGroup:
        """A group's dead letters, with every kind of reasons.  Raises GroupUnknown."""
        return await done_in_turns(self._broker.dead_letters.reasons(group))

    @_of_asked
    async def dead(self, query: DeadLettersQuery) -> DeadLetterPage:
        """One page of a group's dead letters."""
        return await done_in_turns(self._broker.dead_letters.pages(query))

    @admin
    async def purge(self, request: PurgeRequest) -> Purged:
        """Hide a group's dead letters, or show them again."""
        purged = await done_in_turns(self._broker.purging.purge(request))
        await self._saved()
        return purged

    @_of_asked
    async def retries(self, query: DeadLettersQuery) -> DeadLetterPage:
        """One page of the messages that a group will get again."""
        return await done_in_turns(self._broker.retries.pages(query))

    @view
    async def history(self, query: HistoryQuery) -> History:
        """Every event of one message."""
        return await done_in_turns(self._broker.histories.history(query))


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
        return await done_in_turns(self._broker.redrive.preview(request))

    @admin
    async def start(self, request: RedriveRequest) -> RedriveJob:
        job = self._broker.redrive.start(request, NOTE.get().text)
        await self._durable()
        return job

    @view
    async def get(self, query: RedriveJobQuery) -> RedriveJob:
        """A job; on demand with what became of its messages."""
        redrive = self._broker.redrive
        if not query.with_results:
            return redrive.get(query.job_id)
        results = await done_in_turns(redrive.results.of(query.job_id))
        return replace(redrive.get(query.job_id), results=results)

    @view
    async def all(self) -> tuple[RedriveJob, ...]:
        return self._broker.redrive.all()

    @admin
    async def change(self, change: JobChange) -> RedriveJob:
        """Pause, resume or cancel a job, or give it another rate."""
        job = self._broker.redrive.change(change, NOTE.get().text)
        await self._durable()
        return job

    @admin
    async def import_letters(self, request: ImportRequest) -> ImportAnswer:
        """Send letters from a file, or say what would become of them."""
        answer = self._broker.redrive.imports.run(request)
        if not request.dry_run:
            await self._durable()
        return answer

    @view
    async def outcomes(self, query: OutcomesQuery) -> OutcomesPage:
        """One page of the outcomes of a job's letters."""
        return await done_in_turns(self._broker.redrive.outcomes(query))
