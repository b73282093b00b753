"""Prints a redrive job for a person, and follows one until it is over.

The broker runs the job: a follower may leave at any time, and a restarted broker continues it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TimeRemainingColumn,
)
from rich.text import Text

from rmqlite.cli.output.documents import Document, many
from rmqlite.cli.output.progress import progress_bar, text_column
from rmqlite.cli.output.terminal import note, print_lines, print_two_line_table, printable
from rmqlite.client import DeadLetterOutcome, JobState, ReadersOfTopic, RedriveJob, RedriveResults
from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.errors import Unavailable
from rmqlite.views.jobs import counts_text, over_text, readers_text, state_text

if TYPE_CHECKING:
    from rmqlite.client.admin.redrive import RedriveAdmin

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
        print_two_line_table(("TO TOPIC", "WOULD BE SENT"), rows)


def print_samples(group: str, samples: Sequence[DeadLetterOutcome], refused: int) -> None:
    """Print the places of letters that were or would be refused, and the reasons."""
    shown = [each for each in samples if each.why]
    if not shown:
        return
    if len(shown) < refused:
        note(f"the first {len(shown):,} of {refused:,} refused letters")
    rows = [((place_of(group, each),), printable(each.why)) for each in shown]
    print_two_line_table(("REFUSED",), rows)


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
