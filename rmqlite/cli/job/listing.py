"""rmqlite job list, rmqlite job show."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rmqlite.cli.broker_view import CALL_MS_MAX
from rmqlite.cli.job.jobs import JobId, bulk_tree, job_of
from rmqlite.cli.job.redrive_jobs import (
    follow,
    job_tree,
    print_over,
    print_samples,
)
from rmqlite.cli.options import DEFAULT_ENDPOINT, NOT_ALL, AsJson, Endpoint
from rmqlite.cli.output.message_text import aligned
from rmqlite.cli.output.terminal import (
    note,
    print_json,
    print_two_line_table,
    print_view,
    printable,
)
from rmqlite.requests.bulk import BulkJob
from rmqlite.requests.redrive import JobState, RedriveJob
from rmqlite.views.jobs import bulks_table, counts_text, facts, state_text
from rmqlite.views.times import second_text

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

_COLUMNS = ("JOB", "KIND", "STATE", "LOOKED AT", "CHANGED")


def list_jobs(endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """List the redrive and bulk jobs that the broker remembers, the latest change first."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        jobs = _all(admin)
    if as_json:
        print_json([_tree(job) for job in jobs])
    elif jobs:
        print_two_line_table(_COLUMNS, [(_row(job), _below(job)) for job in jobs])
    else:
        note("no jobs yet")


def show_job(
    job_id: JobId,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow a redrive with a bar until it is over.")
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Show a job's counts so far, and the first refused messages.

    Of a redrive also what became of its messages in the group that failed: consumed, waiting
    again, dead again.

    With --follow: exit code 1 if it ends with a refused letter, or is cancelled.
    """
    from rmqlite.client import AdminClient

    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        job = job_of(admin, job_id, with_fates=not follow_it)
        if follow_it and isinstance(job, RedriveJob):
            job = follow(admin.redrives, job)
    if as_json:
        print_json(_tree(job))
    elif isinstance(job, BulkJob):
        _print_bulk(job)
    elif follow_it:
        print_over(job)
    else:
        sys.stdout.write("\n".join(aligned(facts(job))) + "\n")
        print_samples(job.spec.group, job.samples, job.refused)
    if follow_it and (job.refused or _is_cancelled(job)):
        raise typer.Exit(NOT_ALL)


def _is_cancelled(job: RedriveJob | BulkJob) -> bool:
    return isinstance(job, RedriveJob) and job.state is JobState.CANCELLED


def _all(admin: AdminClient) -> list[RedriveJob | BulkJob]:
    jobs: list[RedriveJob | BulkJob] = [*admin.redrives.jobs(), *admin.jobs()]
    return sorted(jobs, key=_changed_at_ms, reverse=True)


def _changed_at_ms(job: RedriveJob | BulkJob) -> int:
    return job.last_at_ms if isinstance(job, BulkJob) else job.changed_at_ms


def _tree(job: RedriveJob | BulkJob) -> dict[str, object]:
    return bulk_tree(job) if isinstance(job, BulkJob) else job_tree(job)


def _row(job: RedriveJob | BulkJob) -> tuple[str, ...]:
    changed = second_text(_changed_at_ms(job))
    if isinstance(job, BulkJob):
        return (printable(job.job_id), "bulk", "-", f"{job.accepted:,}", changed)
    done = f"{job.looked_at:,} of {job.letters:,}"
    return (printable(job.job_id), "redrive", state_text(job), done, changed)


def _below(job: RedriveJob | BulkJob) -> str:
    if isinstance(job, BulkJob):
        return (
            f"{job.accepted:,} accepted, {job.duplicates:,} duplicates, {job.refused:,} refused"
            f" in {job.calls:,} calls"
        )
    about = f"; {job.note}" if job.note else ""
    return printable(f"group {job.spec.group}: {counts_text(job)}{about}")


def _print_bulk(job: BulkJob) -> None:
    print_view(bulks_table([job]))
    if job.samples:
        note(f"the first {len(job.samples):,} of {job.refused:,} refused messages")
        rows = [
            ((printable(each.message_id), printable(each.code)), printable(each.sentence))
            for each in job.samples
        ]
        print_two_line_table(("ID", "CODE"), rows)
