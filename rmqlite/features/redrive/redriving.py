"""The loop that runs the jobs."""

from __future__ import annotations

import asyncio
import logging

from rmqlite.features.redrive.redrive import STEP_DEAD_LETTERS_MAX, Redrive
from rmqlite.features.redrive.requests import RedriveJob
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.process.loops import REST_MS, due_or_woken
from rmqlite.kernel.schedule.schedule import Pace
from rmqlite.kernel.service.group_commit import GroupCommit
from rmqlite.kernel.service.turns import let_others
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import FlushFailed, RmqliteError, StoreUnavailable

log = logging.getLogger(__name__)


class Redriving:
    """Runs redrive jobs: one step of each job in turn, on disk before its next step.

    A job that is paused, rests or waits for its rate holds up no other.  Jobs that were running
    when the broker stopped continue when it starts.  After a step that cannot be stored the job
    rests, and its note says why it stands still.
    """

    def __init__(self, broker: Broker, commit: GroupCommit, clock: Clock) -> None:
        self._broker = broker
        self._commit = commit
        self._clock = clock
        self._wake = asyncio.Event()
        self._paces: dict[str, Pace] = {}
        self._rests_until_ms: dict[str, int] = {}
        self._redrive = broker[Redrive]
        self._redrive.on_change.append(self._wake.set)

    async def run(self) -> None:
        """Raises FlushFailed."""
        while True:
            self._wake.clear()
            await due_or_woken(await self._round(), self._wake, self._clock)

    async def _round(self) -> int | None:
        """Step each job that may continue.  Return when the next may; None if none is running."""
        running = self._redrive.running()
        ids = {job.job_id for job in running}
        for known in (self._paces, self._rests_until_ms):
            for job_id in known.keys() - ids:
                del known[job_id]
        return min([await self._turn(job) for job in running], default=None)

    async def _turn(self, job: RedriveJob) -> int:
        """Step one job if it may.  Return when its next step may come."""
        now_ms = self._clock.now_ms()
        rests_until_ms = self._rests_until_ms.get(job.job_id, 0)
        if rests_until_ms > now_ms:
            return rests_until_ms
        pace = self._pace(job)
        free = pace.free(now_ms, STEP_DEAD_LETTERS_MAX)
        if not free:
            return pace.free_at_ms(now_ms)
        redrive = self._redrive
        try:
            stepped = redrive.step(job.job_id, free)
        except FlushFailed:
            # Ends this task, and so the broker.
            raise
        except RmqliteError as error:
            self._rest(job, error)
            return self._clock.now_ms() + REST_MS
        # At the end of the append: with its start, a slow one would bring two shares closer.
        pace.take(self._clock.now_ms(), stepped.sent)
        try:
            await self._commit.durable(self._broker.store.end)
        except (FlushFailed, StoreUnavailable) as error:
            if isinstance(error, FlushFailed) and error.is_final:
                raise
            self._rest(job, error)
            return self._clock.now_ms() + REST_MS
        if self._rests_until_ms.pop(job.job_id, 0):
            log.warning("a redrive continues job=%s", job.job_id)
            redrive.note(job.job_id, "")
        await let_others()
        return now_ms

    def _pace(self, job: RedriveJob) -> Pace:
        pace = self._paces.get(job.job_id)
        if pace is None or pace.rate_max != job.spec.max_per_second:
            pace = self._paces[job.job_id] = Pace(job.spec.max_per_second)
        return pace

    def _rest(self, job: RedriveJob, error: RmqliteError) -> None:
        if job.job_id not in self._rests_until_ms:
            log.warning("a redrive failed, it is tried again job=%s error=%s", job.job_id, error)
        self._rests_until_ms[job.job_id] = self._clock.now_ms() + REST_MS
        self._redrive.note(job.job_id, str(error))
