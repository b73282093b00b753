"""The commands of rmqlite job: list, show, outcomes, pause, resume, cancel and rate."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from rmqlite.cli import completion
from rmqlite.cli.broker_view import SHORT_CALL_MS_MAX, connected
from rmqlite.cli.job.redrive_jobs import (
    JOB,
    OUTCOME,
    follow,
    job_tree,
    outcome_tree,
    place_of,
    print_over,
    print_samples,
)
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    NOT_ALL,
    AsJson,
    Endpoint,
    Note,
    option,
    with_options,
)
from rmqlite.cli.output.documents import Document, Either, many, prints
from rmqlite.cli.output.message_text import aligned
from rmqlite.cli.output.terminal import (
    note,
    print_json,
    print_json_line,
    print_lines,
    print_two_line_table,
    print_view,
    printable,
)
from rmqlite.cli.output.writing import quiet_when_nobody_reads, to_standard_output
from rmqlite.client import BulkJob, DeadLetterOutcome, JobState, RedriveJob, RedriveOutcome
from rmqlite.kernel.words.errors import JobUnknown, NotSupported
from rmqlite.views.jobs import bulks_table, counts_text, facts, state_text
from rmqlite.views.times import second_text

if TYPE_CHECKING:
    from rmqlite.client import AdminClient
    from rmqlite.client.admin.redrive import RedriveAdmin

    Change = Callable[[RedriveAdmin], RedriveJob]

Job = RedriveJob | BulkJob
JobId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The job's id, as in job list.", autocompletion=completion.jobs
    ),
]
_COLUMNS = ("JOB", "KIND", "STATE", "LOOKED AT", "CHANGED")


@dataclass(frozen=True, slots=True)
class JobChangeOptions:
    """The options of a change of a job."""

    note: Note = ""
    endpoint: Endpoint = DEFAULT_ENDPOINT
    as_json: AsJson = False


class Only(enum.StrEnum):
    """An outcome, as a user types it."""

    SENT = "sent"
    ALREADY = "already"
    REFUSED = "refused"


_BULK: Final = Document(
    "BulkJob", "The outcomes of a bulk job's calls.", BulkJob, kind=Literal["bulk"]
)
_JOB: Final = Either(JOB, _BULK)
_WIDTH = max(map(len, Only))


@prints(lambda: many(_JOB))
def list_jobs(endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False) -> None:
    """List the redrive and bulk jobs that the broker remembers, the latest change first."""
    with connected(endpoint, SHORT_CALL_MS_MAX) as admin:
        jobs: list[Job] = [*admin.redrives.jobs(), *admin.jobs()]
    jobs.sort(key=_changed_at_ms, reverse=True)
    if as_json:
        print_json([_tree(job) for job in jobs])
    elif jobs:
        print_two_line_table(_COLUMNS, [(_row(job), _below(job)) for job in jobs])
    else:
        note("no jobs yet")


@prints(lambda: _JOB)
def show_job(
    job_id: JobId,
    follow_it: Annotated[
        bool, option("--follow -f", "Follow a redrive with a bar until it is over.")
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Show a job's counts so far, and the first refused messages.

    Of a redrive also what became of its messages in the group that failed: consumed, waiting
    again, dead again.

    With --follow: exit code 1 if it ends with a refused message, or is cancelled.
    """
    with connected(endpoint) as admin:
        job = _job_of(admin, job_id, with_results=not follow_it)
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
    is_cancelled = isinstance(job, RedriveJob) and job.state is JobState.CANCELLED
    if follow_it and (job.refused or is_cancelled):
        raise typer.Exit(NOT_ALL)


def _changed_at_ms(job: Job) -> int:
    return job.last_at_ms if isinstance(job, BulkJob) else job.changed_at_ms


def _tree(job: Job) -> dict[str, Any]:
    """A job for JSON."""
    return _BULK.tree(job, kind="bulk") if isinstance(job, BulkJob) else job_tree(job)


def _row(job: Job) -> tuple[str, ...]:
    changed = second_text(_changed_at_ms(job))
    if isinstance(job, BulkJob):
        return (printable(job.job_id), "bulk", "-", f"{job.accepted:,}", changed)
    done = f"{job.looked_at:,} of {job.letters:,}"
    return (printable(job.job_id), "redrive", state_text(job), done, changed)


def _below(job: Job) -> str:
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


@prints(lambda: OUTCOME, is_line=True)
def outcomes(
    job_id: JobId,
    only: Annotated[
        list[Only] | None, option("--only", "Only this outcome; can be repeated.")
    ] = None,
    count: Annotated[
        int | None, option("--max -n", "At most this many; all by default.", min=1)
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: Annotated[bool, option("--json", "Print one line of JSON for each.")] = False,
) -> None:
    """Print the outcome of each dead letter of a redrive job so far, one per line.

    A line has its place, and the topic and id of the new message, or why there is none.
    Exit code 1 if there is nothing to print.
    """
    wanted = [RedriveOutcome[each.name] for each in only or ()]
    printed = 0
    with connected(endpoint) as admin, quiet_when_nobody_reads():
        try:
            group = admin.redrives.job(job_id).spec.group
        except JobUnknown:
            _check_redrive(admin, job_id)
            raise
        for each in islice(admin.redrives.outcomes(job_id, *wanted), count):
            printed += 1
            if as_json:
                print_json_line(outcome_tree(group, each))
            else:
                to_standard_output(_line(group, each) + "\n")
    if not printed:
        note("no outcomes yet" if not wanted else "no such outcome")
        raise typer.Exit(NOT_ALL)


def _line(group: str, letter: DeadLetterOutcome) -> str:
    words = [letter.outcome.name.lower().ljust(_WIDTH), place_of(group, letter)]
    words += [each for each in (letter.topic, letter.message_id, letter.why) if each]
    return printable("  ".join(words))


@prints(lambda: JOB)
@with_options
def pause(*, job_id: JobId, how: JobChangeOptions) -> None:
    """Pause a redrive job: nothing more is sent until it is resumed, also after a restart."""
    _run(job_id, lambda redrives: redrives.pause(job_id), how)


@prints(lambda: JOB)
@with_options
def resume(*, job_id: JobId, how: JobChangeOptions) -> None:
    """Continue a paused redrive job."""
    _run(job_id, lambda redrives: redrives.resume(job_id), how)


@prints(lambda: JOB)
@with_options
def cancel(*, job_id: JobId, how: JobChangeOptions) -> None:
    """End a redrive job: sent messages stay sent, and another job may send the others."""
    _run(job_id, lambda redrives: redrives.cancel(job_id), how)


@prints(lambda: JOB)
@with_options
def rate(
    *,
    job_id: JobId,
    per_second: Annotated[
        int, typer.Argument(metavar="N", min=0, help="Messages per second; 0 means unlimited.")
    ],
    how: JobChangeOptions,
) -> None:
    """Let a redrive job send at most N messages a second from now on."""
    _run(job_id, lambda redrives: redrives.set_rate(job_id, per_second), how)


def _run(job_id: str, change: Change, how: JobChangeOptions) -> None:
    with connected(how.endpoint, SHORT_CALL_MS_MAX, note=how.note) as admin:
        try:
            job = change(admin.redrives)
        except JobUnknown:
            _check_redrive(admin, job_id)
            raise
    if how.as_json:
        print_json(job_tree(job))
        return
    limit = job.spec.max_per_second
    rate = f", at most {limit:,} a second" if limit else ""
    print_lines([f"job {job.job_id}: {state_text(job)}{rate}", counts_text(job)])


def _check_redrive(admin: AdminClient, job_id: str) -> None:
    """Raises NotSupported if a bulk job has this id, JobUnknown if no job has it."""
    admin.job(job_id)
    rule = "stop the program that sends its messages; the broker runs only redrive jobs"
    raise NotSupported(
        f"job {job_id!r} is a bulk job: {rule}", field="job_id", value=job_id, rule=rule
    )


def _job_of(admin: AdminClient, job_id: str, *, with_results: bool = False) -> Job:
    """The redrive job or else the bulk job with this id.  Raises JobUnknown."""
    try:
        return admin.redrives.job(job_id, with_results=with_results)
    except JobUnknown:
        return admin.job(job_id)
