"""rmqlite job: what bulk senders have sent, and what was refused."""

from __future__ import annotations

from typing import Annotated

import typer

from rmqlite.bulk_requests import BulkJob
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.terminal import (
    note,
    print_json,
    print_table,
    print_two_line_table,
    printable,
    time_text,
)

app = typer.Typer(no_args_is_help=True, help="List and show bulk jobs.")

_COLUMNS = ("JOB", "ACCEPTED", "DUPLICATES", "REFUSED", "CALLS", "FIRST", "LAST")


@app.command("list")
def list_jobs(endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """List the bulk jobs that the broker remembers, the last used one first."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        jobs = admin.jobs()
    if as_json:
        print_json(jobs)
    elif jobs:
        print_table(_COLUMNS, [_row(job) for job in jobs])
    else:
        note("no jobs yet")


@app.command("show")
def show_job(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Show what a job's calls have come to, and the first messages that were refused."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        job = admin.job(job_id)
    if as_json:
        print_json(job)
        return
    print_table(_COLUMNS, [_row(job)])
    if job.samples:
        note(f"the first {len(job.samples):,} of {job.refused:,} that were refused")
        rows = [
            ((printable(each.message_id), printable(each.code)), printable(each.sentence))
            for each in job.samples
        ]
        print_two_line_table(("ID", "CODE"), rows)


def _row(job: BulkJob) -> tuple[object, ...]:
    times = (time_text(job.first_at_ms), time_text(job.last_at_ms))
    return (job.job_id, job.accepted, job.duplicates, job.refused, job.calls, *times)
