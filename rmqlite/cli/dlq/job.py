"""rmqlite job: the broker's redrive and bulk jobs; also follows a redrive until it is over.

The broker itself runs a redrive job, so it can be paused and cancelled, a follower may leave at any
time, and a restarted broker continues it.  Senders drive a bulk job; the broker only counts, so it
can only be looked at.
"""

from __future__ import annotations

import enum
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.text import Text

from rmqlite.cli import completion
from rmqlite.cli.broker_view import SHORT_CALL_MS_MAX, connected
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
from rmqlite.cli.output.progress import progress_bar, text_column
from rmqlite.cli.output.terminal import (
    note,
    print_json,
    print_json_line,
    print_lines,
    print_tall_table,
    print_view,
    printable,
)
from rmqlite.cli.output.writing import quiet_when_nobody_reads, to_standard_output
from rmqlite.client import (
    BulkJob,
    DeadLetterOutcome,
    JobState,
    ReadersOfTopic,
    RedriveJob,
    RedriveOutcome,
    RedriveResults,
)
from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.errors import JobUnknown, NotSupported, Unavailable
from rmqlite.views.jobs import bulks_table, counts_text, facts, over_text, readers_text, state_text
from rmqlite.views.numbers import second_text

if TYPE_CHECKING:
    from rmqlite.client import AdminClient
    from rmqlite.client.admin_client import RedriveAdmin

    Change = Callable[[RedriveAdmin], RedriveJob]


OUTCOME: Final = Document(
    "Outcome",
    "One dead letter's outcome in a redrive; place names it to other commands.",
    DeadLetterOutcome,
    place=str,
    outcome=Literal["sent", "already", "refused"],
)
JOB: Final = Document(
    "RedriveJob",
    "A redrive job; fates: what became of its messages, if that was counted.",
    RedriveJob,
    without=("results",),
    kind=Literal["redrive"],
    state=str,
    samples=many(OUTCOME),
    optional={"fates": RedriveResults},
)
LOOK_S: Final = 0.2
PATIENCE_S: Final = 60.0
"""How long to wait for a broker that does not answer: longer than a restart takes."""
Job = RedriveJob | BulkJob
JobId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The job's id, as in job list.", autocompletion=completion.jobs
    ),
]
_COLUMNS = ("JOB", "KIND", "STATE", "LOOKED AT", "CHANGED")
app = typer.Typer(no_args_is_help=True, help="See redrive and bulk jobs; pause, cancel redrives.")


class _Rate(ProgressColumn):
    """Letters a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "")


def follow(redrives: RedriveAdmin, job: RedriveJob) -> RedriveJob:
    """Look at a job until it is over, with a bar on a terminal.

    Raises KeyboardInterrupt, and Unavailable for a broker that stays away; first it prints the
    commands that continue.
    """
    columns = (
        BarColumn(bar_width=20),
        text_column("{task.completed:,} of {task.total:,}"),
        _Rate(),
        TimeRemainingColumn(compact=True),
    )
    try:
        with progress_bar(*columns) as bar:
            task = bar.add_task("", total=max(1, job.letters))
            if job.state is JobState.PAUSED and bar.disable:
                note(f"job {job.job_id} is paused: rmqlite job resume {shlex.quote(job.job_id)}")
            return _followed(redrives, job, bar, task)
    except (KeyboardInterrupt, Unavailable):
        note_how_to_go_on(f"job {job.job_id} continues in the broker", job.job_id)
        raise


def _followed(redrives: RedriveAdmin, job: RedriveJob, bar: Progress, task: Any) -> RedriveJob:
    answered_s = elapsed_s()
    while True:
        total = max(1, job.letters)
        bar.update(task, completed=job.looked_at, total=total, description=_doing(job))
        if job.is_over:
            return job
        pause_s(LOOK_S)
        try:
            job = redrives.job(job.job_id)
            answered_s = elapsed_s()
        except Unavailable:
            if elapsed_s() - answered_s > PATIENCE_S:
                raise
            bar.update(task, description="waiting for the broker")


def _doing(job: RedriveJob) -> str:
    doing = "redriving" if job.state is JobState.RUNNING else state_text(job)
    return printable(f"{doing}: {job.note}" if job.note else doing)


def note_how_to_go_on(sentence: str, job_id: str) -> None:
    """Print a sentence, and the commands to follow, pause or cancel a job."""
    name = shlex.quote(job_id)
    note(f"{sentence}:")
    note(f"  rmqlite job show {name} --follow")
    note(f"  rmqlite job pause {name}    (or cancel)")


def print_over(job: RedriveJob) -> None:
    """Print the result of a job, and the first refused letters."""
    print_lines([f"job {job.job_id}: {over_text(job)}", counts_text(job)])
    print_samples(job.spec.group, job.samples, job.refused)


def print_topics(topics: Sequence[ReadersOfTopic]) -> None:
    """Print how many messages would go to which topic, and which groups would get them."""
    if topics:
        rows = [
            ((printable(each.topic), f"{each.count:,}"), printable(f"for {readers_text((each,))}"))
            for each in topics
        ]
        print_tall_table(("TO TOPIC", "WOULD BE SENT"), rows)


def print_samples(group: str, samples: Sequence[DeadLetterOutcome], refused: int) -> None:
    """Print the places of letters that were or would be refused, and the reasons."""
    shown = [each for each in samples if each.why]
    if not shown:
        return
    if len(shown) < refused:
        note(f"the first {len(shown):,} of {refused:,} refused letters")
    rows = [((place_of(group, each),), printable(each.why)) for each in shown]
    print_tall_table(("REFUSED",), rows)


def place_of(group: str, letter: DeadLetterOutcome) -> str:
    """GROUP:QUEUE:OFFSET of a dead letter."""
    return f"{group}:{letter.queue_id}:{letter.queue_offset}"


def job_tree(job: RedriveJob) -> dict[str, Any]:
    """A job for JSON: state and outcomes are words."""
    samples = [outcome_tree(job.spec.group, each) for each in job.samples]
    counted = {"fates": job.results} if job.results != RedriveResults() else {}
    return JOB.tree(job, kind="redrive", state=state_text(job), samples=samples, **counted)


def outcome_tree(group: str, letter: DeadLetterOutcome) -> dict[str, Any]:
    """One letter's outcome for JSON, with its place."""
    place, outcome = place_of(group, letter), letter.outcome.name.lower()
    return OUTCOME.tree(letter, place=place, outcome=outcome)


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
        print_tall_table(_COLUMNS, [(_row(job), _below(job)) for job in jobs])
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
        print_tall_table(("ID", "CODE"), rows)


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


app.command("list")(list_jobs)
app.command("show")(show_job)
app.command("outcomes")(outcomes)
app.command("pause")(pause)
app.command("resume")(resume)
app.command("cancel")(cancel)
app.command("rate")(rate)
