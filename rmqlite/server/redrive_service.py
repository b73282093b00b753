"""The part of rmqlite.v1.Admin that starts, changes and tells of redrive jobs.

What changes a job is answered when it is on disk; what looks at many letters is done in
steps, and between two of them every other call gets its turn.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqlite.broker.broker import Broker
from rmqlite.requests.redrive import (
    JobChange,
    OutcomesPage,
    OutcomesQuery,
    RedriveJob,
    RedrivePreview,
    RedrivePreviewRequest,
    RedriveRequest,
)
from rmqlite.server.front import Context, Methods
from rmqlite.server.group_commit import GroupCommit
from rmqlite.server.turns import done_in_turns
from rmqlite.wire import rpcs


class RedriveService:
    """Dead letters sent again."""

    def __init__(self, broker: Broker, commit: GroupCommit) -> None:
        self._broker = broker
        self._redrive = broker.redrive
        self._commit = commit

    def methods(self) -> Methods:
        return {
            rpcs.PREVIEW_REDRIVE: self.preview_redrive,
            rpcs.START_REDRIVE: self.start_redrive,
            rpcs.GET_REDRIVE_JOB: self.get_redrive_job,
            rpcs.LIST_REDRIVE_JOBS: self.list_redrive_jobs,
            rpcs.CHANGE_REDRIVE_JOB: self.change_redrive_job,
            rpcs.LIST_REDRIVE_OUTCOMES: self.list_redrive_outcomes,
        }

    async def preview_redrive(self, request: RedrivePreviewRequest, _: Context) -> RedrivePreview:
        return await done_in_turns(self._redrive.preview(request))

    async def start_redrive(self, request: RedriveRequest, _: Context) -> RedriveJob:
        return await self._durably(lambda: self._redrive.start(request))

    async def get_redrive_job(self, job_id: str, _: Context) -> RedriveJob:
        return self._redrive.get(job_id)

    async def list_redrive_jobs(self, _: None, __: Context) -> tuple[RedriveJob, ...]:
        return self._redrive.all()

    async def change_redrive_job(self, change: JobChange, _: Context) -> RedriveJob:
        return await self._durably(lambda: self._redrive.change(change))

    async def list_redrive_outcomes(self, query: OutcomesQuery, _: Context) -> OutcomesPage:
        return await done_in_turns(self._redrive.outcomes(query))

    async def _durably(self, change: Callable[[], RedriveJob]) -> RedriveJob:
        job = change()
        await self._commit.durable(self._broker.store.end)
        return job
