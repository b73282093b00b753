"""AdminClient.redrives: sends dead letters again.

A redrive is a job inside the broker and runs without its client: start it, look at it at any time,
pause or cancel it.  A preview shows what a job would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rmqlite.client.admin import AdminCalls
from rmqlite.features.cursors import pages
from rmqlite.features.redrive.requests import (
    CHANGE_REDRIVE_JOB,
    GET_REDRIVE_JOB,
    IMPORT_DEAD_LETTERS,
    LIST_REDRIVE_JOBS,
    LIST_REDRIVE_OUTCOMES,
    NOTHING_SEEN,
    PREVIEW_REDRIVE,
    START_REDRIVE,
    DeadLetterOutcome,
    ImportAnswer,
    ImportRequest,
    JobAction,
    JobChange,
    OutcomesPage,
    OutcomesQuery,
    RedriveJob,
    RedriveJobQuery,
    RedriveOutcome,
    RedrivePreview,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
)


class RedriveAdmin(AdminCalls):
    """Asks the broker behind a connection about its redrive jobs.

    Every method raises RmqliteError: InvalidValue for a value that breaks a rule, JobUnknown,
    Unavailable if the call may work later.
    """

    def preview(
        self, spec: RedriveSpec, *, progress: Callable[[int, int], None] | None = None
    ) -> RedrivePreview:
        """Everything that a job would do; changes nothing.

        progress: called after every call with the letters looked at and the number of all.
        """
        request = RedrivePreviewRequest(spec)
        whole = NOTHING_SEEN
        for page in pages(partial(self._ask, PREVIEW_REDRIVE), request):
            whole = whole.then(page)
            if progress:
                progress(whole.looked_at, whole.letters)
        return whole

    def start(self, spec: RedriveSpec, *, job_id: str = "") -> RedriveJob:
        """Start a job; returns when it is on disk.

        job_id: with your own id you may repeat the call, and it starts one job.
        """
        return self._ask(START_REDRIVE, RedriveRequest(spec, job_id))

    def job(self, job_id: str, *, with_results: bool = False) -> RedriveJob:
        """The state of a job.  Raises JobUnknown.

        with_results: also count what became of its messages; that takes up to some seconds.
        """
        return self._ask(GET_REDRIVE_JOB, RedriveJobQuery(job_id, with_results))

    def jobs(self) -> tuple[RedriveJob, ...]:
        """Every job that the broker remembers, without samples, the most recently changed first."""
        return self._ask(LIST_REDRIVE_JOBS, None)

    def pause(self, job_id: str) -> RedriveJob:
        """Stop sending until resume().  Raises JobUnknown, JobOver."""
        return self._change(JobChange(job_id, JobAction.PAUSE))

    def resume(self, job_id: str) -> RedriveJob:
        """Continue a paused job.  Raises JobUnknown, JobOver."""
        return self._change(JobChange(job_id, JobAction.RESUME))

    def cancel(self, job_id: str) -> RedriveJob:
        """End the job; letters already sent stay sent.  Raises JobUnknown, JobOver."""
        return self._change(JobChange(job_id, JobAction.CANCEL))

    def set_rate(self, job_id: str, max_per_second: int) -> RedriveJob:
        """Limit the letters per second; 0 means no limit.  Raises JobUnknown, JobOver."""
        return self._change(JobChange(job_id, JobAction.SET_RATE, max_per_second))

    def import_letters(self, request: ImportRequest) -> ImportAnswer:
        """Send letters from a file of `rmqlite dlq export`, each once; returns when it is on disk.

        Those that the broker still has count as redriven.
        """
        return self._ask(IMPORT_DEAD_LETTERS, request)

    def list_outcomes(self, query: OutcomesQuery) -> OutcomesPage:
        """One page of the outcomes of a job's letters.  Raises JobUnknown."""
        return self._ask(LIST_REDRIVE_OUTCOMES, query)

    def outcomes(self, job_id: str, *only: RedriveOutcome) -> Iterator[DeadLetterOutcome]:
        """The outcome of every letter so far, page by page as it is needed."""
        for page in pages(self.list_outcomes, OutcomesQuery(job_id, only)):
            yield from page.letters

    def _change(self, change: JobChange) -> RedriveJob:
        return self._ask(CHANGE_REDRIVE_JOB, change)
