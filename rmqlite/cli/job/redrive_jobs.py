"""Prints a redrive job for a person, and follows one until it is over.

The broker runs the job: a follower may leave at any time, and a restarted broker continues it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TimeRemainingColumn,
)
from rich.text import Text

from rmqlite.cli.filters import filter_text
from rmqlite.cli.output.progress import progress_bar, text_column
from rmqlite.cli.output.spans import span_text
from rmqlite.cli.output.terminal import note, print_two_line_table, printable, to_tree
from rmqlite.clock import elapsed_s, pause_s
from rmqlite.errors import Unavailable
from rmqlite.names import is_system_group
from rmqlite.requests.redrive import (
    NOT_ASKED,
    DeadLetterOutcome,
    JobState,
    RedriveJob,
    RedriveResults,
    RedriveSpec,
    TopicCount,
)

if TYPE_CHECKING:
    from rmqlite.client.admin.redrive import RedriveAdmin

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
    doing = "redriving" if job.state is JobState.RUNNING else job.state.name.lower()
    return printable(f"{doing}: {job.note}" if job.note else doing)


def note_how_to_go_on(sentence: str, job_id: str) -> None:
    """Print a sentence, and the commands to follow, pause or cancel a job."""
    name = shlex.quote(job_id)
    note(f"{sentence}:")
    note(f"  rmqlite job show {name} --follow")
    note(f"  rmqlite job pause {name}    (or cancel)")


def letters_of(spec: RedriveSpec) -> str:
    """The chosen letters: "group billing: topic orders"."""
    filtered = filter_text(spec.filter)
    return f"group {spec.group}{': ' if filtered else ''}{filtered}"


def how_text(spec: RedriveSpec, delay: str = "") -> str:
    """The target, delay and rate: " to topic orders at level 14 (10m), at most 500 a second"."""
    text = f" to {target_text(spec)}"
    length = f" ({delay})" if delay else ""
    text += f" at level {spec.delay_level}{length}" if spec.delay_level else ""
    text += f", at most {spec.max_per_second:,} a second" if spec.max_per_second else ""
    return text + (", also those that were redriven before" if spec.again else "")


def target_text(spec: RedriveSpec) -> str:
    """Where the letters go."""
    if spec.to_topic:
        return f"topic {spec.to_topic}"
    if not spec.to_group or is_system_group(spec.group):
        return "their original topics"
    return f"group {spec.group} only"


def counts_text(done: Any, sent: str = "sent") -> str:
    """The counts of a job or a preview; together they are the letters that match the filter."""
    return f"{done.sent:,} {sent}, {done.already:,} redriven before, {done.refused:,} refused"


def became_texts(fates: RedriveResults) -> Iterator[str]:
    """What became of a job's messages in the group that failed, if the broker was asked."""
    if fates.is_counted:
        yield (
            f"{fates.consumed:,} consumed, {fates.waiting:,} waiting again,"
            f" {fates.dead:,} dead again"
        )
    if fates.why:
        yield f"{'incomplete' if fates.is_counted else 'not counted'}: {fates.why}"


def print_over(job: RedriveJob) -> None:
    """Print the result of a job, and the first refused letters."""
    took = span_text(max(0, job.ended_at_ms - job.created_at_ms)) if job.ended_at_ms else ""
    print_state(job, f" after {took}" if took else "")
    print_samples(job.spec.group, job.samples, job.refused)


def print_state(job: RedriveJob, more: str) -> None:
    """Print the state of a job, with some more words, and its counts."""
    state = printable(f"job {job.job_id}: {job.state.name.lower()}{more}")
    sys.stdout.write(f"{state}\n{counts_text(job)}\n")


def print_topics(topics: Sequence[TopicCount]) -> None:
    """Print how many messages would go to which topic, and which groups would get them."""
    if topics:
        rows = [
            ((printable(each.topic), f"{each.count:,}"), printable(_groups_text(each)))
            for each in topics
        ]
        print_two_line_table(("TO TOPIC", "WOULD BE SENT"), rows)


def _groups_text(topic: TopicCount) -> str:
    count = len(topic.groups) + topic.more_groups
    if not count:
        return "for no group yet"
    more = [f"{topic.more_groups:,} more"] if topic.more_groups else []
    return f"for group{'s' * (count > 1)} {', '.join([*topic.groups, *more])}"


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
    tree: dict[str, Any] = to_tree(job)
    samples = [outcome_tree(job.spec.group, each) for each in job.samples]
    if job.fates == NOT_ASKED:
        del tree["fates"]
    return tree | {"kind": "redrive", "state": job.state.name.lower(), "samples": samples}


def outcome_tree(group: str, letter: DeadLetterOutcome) -> dict[str, Any]:
    """One letter's outcome for JSON, with its place."""
    tree: dict[str, Any] = to_tree(letter)
    return {"place": place_of(group, letter)} | tree | {"outcome": letter.outcome.name.lower()}
