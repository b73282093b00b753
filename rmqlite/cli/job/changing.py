"""rmqlite job pause, resume, cancel, rate: change a redrive job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from rmqlite.cli.job.jobs import JobId
from rmqlite.cli.job.redrive_jobs import job_tree
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.output.terminal import print_json, print_lines
from rmqlite.errors import JobUnknown, NotSupported
from rmqlite.requests.redrive import RedriveJob
from rmqlite.views.jobs import counts_text, state_text

if TYPE_CHECKING:
    from rmqlite.client import AdminClient
    from rmqlite.client.admin.redrive import RedriveAdmin

    Change = Callable[[RedriveAdmin], RedriveJob]


def pause(job_id: JobId, endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """Pause a redrive job: nothing more is sent until it is resumed, also after a restart."""
    _run(endpoint, job_id, lambda redrives: redrives.pause(job_id), as_json=as_json)


def resume(job_id: JobId, endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """Continue a paused redrive job."""
    _run(endpoint, job_id, lambda redrives: redrives.resume(job_id), as_json=as_json)


def cancel(job_id: JobId, endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """End a redrive job: sent letters stay sent, and another job may send the others."""
    _run(endpoint, job_id, lambda redrives: redrives.cancel(job_id), as_json=as_json)


def rate(
    job_id: JobId,
    per_second: Annotated[
        int, typer.Argument(metavar="N", min=0, help="Letters per second; 0 means unlimited.")
    ],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Let a redrive job send at most N letters a second from now on."""
    _run(endpoint, job_id, lambda redrives: redrives.set_rate(job_id, per_second), as_json=as_json)


def _run(endpoint: str, job_id: str, change: Change, *, as_json: bool) -> None:
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        try:
            job = change(admin.redrives)
        except JobUnknown:
            check_redrive(admin, job_id)
            raise
    if as_json:
        print_json(job_tree(job))
        return
    limit = job.spec.max_per_second
    how = f", at most {limit:,} a second" if limit else ""
    print_lines([f"job {job.job_id}: {state_text(job)}{how}", counts_text(job)])


def check_redrive(admin: AdminClient, job_id: str) -> None:
    """Raises NotSupported if a bulk job has this id, JobUnknown if no job has it."""
    admin.job(job_id)
    rule = "stop the program that sends its messages; the broker runs only redrive jobs"
    raise NotSupported(
        f"job {job_id!r} is a bulk job: {rule}", field="job_id", value=job_id, rule=rule
    )
