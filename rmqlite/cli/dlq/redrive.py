"""rmqlite dlq redrive and purge: a job inside the broker sends dead letters again, or they hide.

The commands show a preview and ask.  A redrive is started and followed; the job continues if
nobody follows it.  A purge only changes marks of the broker: only retention deletes letters.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from typing import Annotated, Final

import typer

from rmqlite.cli import completion
from rmqlite.cli.broker_view import BrokerView, connected, level_number
from rmqlite.cli.dlq.job import (
    JOB,
    OUTCOME,
    follow,
    job_tree,
    note_how_to_go_on,
    outcome_tree,
    print_over,
    print_samples,
    print_topics,
)
from rmqlite.cli.filters import DeadLetterOptions, Group, checked_group
from rmqlite.cli.options import NOT_ALL, ChangeOptions, option, with_options
from rmqlite.cli.output.documents import Document, Either, fields_of, many, prints
from rmqlite.cli.output.progress import counting
from rmqlite.cli.output.terminal import is_confirmed, note, print_json, printable
from rmqlite.client import (
    DeadLetterFilter,
    JobState,
    Purged,
    PurgeRequest,
    RedriveJob,
    RedriveOutcome,
    RedrivePreview,
    RedriveSpec,
)
from rmqlite.views.jobs import counts_text, how_text, letters_of, state_text
from rmqlite.views.messages import filter_text, letters_text

_PREVIEW: Final = Document(
    "RedrivePreview",
    "What a redrive would do; samples: outcomes, refused ones first.",
    RedrivePreview,
    dry_run=bool,
    samples=many(OUTCOME),
)
ToTopic = Annotated[
    str | None,
    option(
        "--to-topic NAME",
        "Publish to this topic, for every group that reads it.",
        completion.users_topics,
    ),
]
Rate = Annotated[int, option("--rate N", "Messages per second; 0 means unlimited.", min=0)]
Delay = Annotated[
    str | None, option("--delay LENGTH", "Delay them by this, such as 10m.", completion.delays)
]
Level = Annotated[
    str | None, option("--level -l N", "Delay them at this level.", completion.level_numbers)
]
Again = Annotated[bool, option("--again", "Also send those that were redriven before.")]
Detach = Annotated[bool, option("--detach -d", "Start the job and do not follow it.")]
JobId = Annotated[str, option("--job-id ID", "The job's id; a repeated start stays one job.")]
_PURGED: Final = Document(
    "Purged",
    "Dead letters that were hidden, shown again, or would be; open: not redriven.",
    group=str,
    **fields_of(bool, "restore dry_run"),
    **fields_of(int, "letters open"),
)


@prints(lambda: Either(JOB, _PREVIEW))
@with_options
def redrive(
    *,
    group: Group,
    options: DeadLetterOptions,
    to_topic: ToTopic = None,
    delay: Delay = None,
    level: Level = None,
    rate: Rate = 0,
    again: Again = False,
    detach: Detach = False,
    job_id: JobId = "",
    how: ChangeOptions,
) -> None:
    """Send the matching dead letters of GROUP back to it, with fresh attempts.

    Only GROUP gets them; with --to-topic, every group that reads that topic.  The broker does it
    as a job: Ctrl-C leaves it running.  Those that were redriven before are left out.  Exit
    code 1: one was refused, or none sent.
    """
    if delay is not None and level is not None:
        raise typer.BadParameter("--delay and --level: give one of them")
    group = checked_group(group)
    how.check_can_ask()
    with connected(how.endpoint, note=how.note) as admin:
        broker = BrokerView(admin)
        waits = ("--delay", delay) if delay is not None else ("--level", level)
        number = level_number(waits[0], waits[1], broker) if waits[1] is not None else 0
        spec = RedriveSpec(group, options.filter(broker), to_topic or "", number, rate, again)
        if how.dry_run or not how.yes:
            preview = _preview(broker, spec)
            _report(spec, preview, as_json=how.as_json, dry_run=how.dry_run)
            if how.dry_run or not _confirmed(spec, preview, broker):
                is_all_well = how.dry_run and preview.sent and not preview.refused
                raise typer.Exit(0 if is_all_well else NOT_ALL)
        job = broker.admin.redrives.start(spec, job_id=job_id)
        if not detach:
            job = follow(broker.admin.redrives, job)
    _end(job, as_json=how.as_json)


def _preview(broker: BrokerView, spec: RedriveSpec) -> RedrivePreview:
    with counting("looking") as report:
        return broker.admin.redrives.preview(spec, progress=lambda done, _: report(done))


def _report(spec: RedriveSpec, preview: RedrivePreview, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        # The question goes to the terminal; the document is the result of the job.
        if dry_run:
            samples = [outcome_tree(spec.group, each) for each in preview.samples]
            print_json(_PREVIEW.tree(preview, dry_run=True, samples=samples))
        return
    print_topics(preview.topics)
    sys.stdout.write(f"{counts_text(preview, 'would be sent')}\n")
    refused = [each for each in preview.samples if each.outcome is RedriveOutcome.REFUSED]
    print_samples(spec.group, refused, preview.refused)
    _note_already(preview.already)


def _confirmed(spec: RedriveSpec, preview: RedrivePreview, broker: BrokerView) -> bool:
    if not preview.sent:
        note(f"nothing to send: {letters_of(spec)}")
        return False
    delay = broker.table.name(spec.delay_level) if spec.delay_level else ""
    what = f"send {letters_text(preview.sent)} again{how_text(spec, delay)}"
    return is_confirmed(f"{what}: {letters_of(spec)}?", "nothing was sent")


def _note_already(already: int) -> None:
    if already:
        note(f"redriven before: {already:,}; --again sends them, too")


def _end(job: RedriveJob, *, as_json: bool) -> None:
    if as_json:
        print_json(job_tree(job))
    elif job.is_over:
        print_over(job)
        _note_already(job.already)
        if not job.sent + job.already + job.refused:
            note(f"no dead letter matches: {letters_of(job.spec)}")
    else:
        sys.stdout.write(f"{shlex.quote(job.job_id)}\n")
        note_how_to_go_on(f"job {job.job_id} is {state_text(job)}", job.job_id)
    if job.is_over and (job.refused or not job.sent or job.state is not JobState.DONE):
        raise typer.Exit(NOT_ALL)


@prints(lambda: _PURGED)
@with_options
def purge(
    *,
    group: Group,
    options: DeadLetterOptions,
    restore: Annotated[
        bool, option("--restore", "Show all that were purged and that the log still has.")
    ] = False,
    how: ChangeOptions,
) -> None:
    """Hide the dead letters of GROUP that match all options; --restore shows all of them again.

    Hidden ones are not listed, counted or redriven.  Only retention deletes them.  Exit code 1
    if there was none.
    """
    group = checked_group(group)
    how.check_can_ask()
    with connected(how.endpoint, note=how.note) as admin:
        wanted = options.filter(BrokerView(admin))
        if restore and wanted != DeadLetterFilter():
            raise typer.BadParameter("--restore shows all letters, so it takes no filter")
        request = PurgeRequest(group, restore=restore, filter=wanted)
        found = admin.dead_letters.purge(replace(request, dry_run=True))
        is_wanted = found.letters and not how.dry_run
        if is_wanted:
            if not (how.yes or restore):
                note("the letters stay in the log until retention: --restore undoes this")
            how.check_confirmed(_question(request, found))
            found = admin.dead_letters.purge(request)
    if how.as_json:
        about = {"group": group, "restore": restore, "dry_run": how.dry_run}
        print_json(_PURGED.tree(**about, letters=found.letters, open=found.open))
    elif found.letters:
        done = "restored" if restore else "purged"
        would = "would be " if how.dry_run else ""
        sys.stdout.write(f"{letters_text(found.letters)} {would}{done}{_open_text(found)}\n")
    if not found.letters:
        verb = "restore" if restore else "purge"
        note(f"nothing to {verb} of group {group}{_matching(request)}")
        raise typer.Exit(NOT_ALL)


def _question(request: PurgeRequest, found: Purged) -> str:
    verb = "restore" if request.restore else "purge"
    which = f"{letters_text(found.letters)} of group {request.group}{_matching(request)}"
    return f"{verb} {which}{_open_text(found)}?"


def _matching(request: PurgeRequest) -> str:
    text = filter_text(request.filter)
    return f" ({printable(text)})" if text else ""


def _open_text(found: Purged) -> str:
    return f", {found.open:,} of them open" if found.open else ", none of them open"
