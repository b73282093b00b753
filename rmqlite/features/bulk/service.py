"""Bulk calls: many messages, each with its own outcome, and their jobs."""

from __future__ import annotations

from rmqlite.features.bulk.bulk import Bulk
from rmqlite.features.bulk.requests import BulkAnswer, BulkJob, BulkRequest
from rmqlite.kernel.service.access import Right, needs, topic_right, view
from rmqlite.kernel.service.part import Part


class BulkCalls(Part):
    """Calls of producers, and of those who look at their jobs."""

    @needs(lambda request, _: [topic_right(Right.PUB, each) for each in set(request.topics)])
    async def schedule(self, request: BulkRequest, born_host: bytes) -> BulkAnswer:
        self._check_open()
        # It waits for the disk also for duplicates: the first message may not be there yet.
        return await self._stored(self._broker[Bulk].schedule(request, born_host))

    @view
    async def job(self, job_id: str) -> BulkJob:
        return self._broker[Bulk].jobs.get(job_id)

    @view
    async def jobs(self) -> tuple[BulkJob, ...]:
        return self._broker[Bulk].jobs.all()
