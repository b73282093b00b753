"""Redrive and bulk jobs: their tables, and what they do in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rmqlite.features.bulk.requests import BulkJob
from rmqlite.features.redrive.requests import (
    JobState,
    ReadersOfTopic,
    RedriveJob,
    RedriveOutcome,
    RedriveResults,
    RedriveSpec,
)
from rmqlite.kernel.words.names import is_system_group
from rmqlite.views.messages import filter_text
from rmqlite.views.numbers import second_text, share_text, span_text
from rmqlite.views.tables import (
    BAD,
    DIM,
    GOOD,
    NOTHING,
    WARN,
    Column,
    Subject,
    Table,
    TableRow,
    Tone,
    cell,
    row,
    table,
)

_TONES: Final = {JobState.DONE: GOOD, JobState.CANCELLED: DIM, JobState.PAUSED: WARN}
OUTCOME_TEXTS: Final = {
    RedriveOutcome.SENT: "sent",
    RedriveOutcome.ALREADY: "redriven before",
    RedriveOutcome.REFUSED: "refused",
}
_REDRIVES: Final = (
    Column("REDRIVE", is_short=True),
    Column("STATE"),
    Column("PROGRESS"),
    Column("LOOKED AT", right=True, rank=2),
    Column("SENT", right=True),
    Column("BEFORE", right=True, rank=3),
    Column("REFUSED", right=True),
    Column("NOTE", is_short=True, rank=1),
    Column("STARTED", rank=5),
    Column("JOB", is_short=True, rank=4),
)
_BULKS: Final = (
    Column("JOB"),
    Column("ACCEPTED", right=True),
    Column("DUPLICATES", right=True),
    Column("REFUSED", right=True),
    Column("CALLS", right=True),
    Column("FIRST"),
    Column("LAST"),
)


def redrives_table(jobs: Sequence[RedriveJob]) -> Table:
    running = sum([not job.is_over for job in jobs])
    return table(f"redrives: {running:,} running", _REDRIVES, map(_redrive_row, jobs))


def _redrive_row(job: RedriveJob) -> TableRow:
    done = min(1.0, job.looked_at / job.letters if job.letters else float(job.is_over))
    return row(
        job.job_id,
        cell(job.spec.group, "", Subject.GROUPS, job.spec.group),
        cell(state_text(job), _TONES.get(job.state, "")),
        Tone(share_text(done), share=done),
        cell(f"{job.looked_at:,} of {job.letters:,}"),
        job.sent,
        job.already,
        cell(job.refused, BAD if job.refused else ""),
        job.note or NOTHING,
        second_text(job.created_at_ms),
        cell(job.job_id, "", Subject.REDRIVE, job.job_id),
    )


def bulks_table(jobs: Sequence[BulkJob]) -> Table:
    rows = [
        row(
            each.job_id,
            cell(each.job_id, "", Subject.BULK, each.job_id),
            each.accepted,
            each.duplicates,
            cell(each.refused, BAD if each.refused else ""),
            each.calls,
            second_text(each.first_at_ms),
            second_text(each.last_at_ms),
        )
        for each in jobs
    ]
    return table("bulk jobs", _BULKS, rows)


def state_text(job: RedriveJob) -> str:
    return job.state.name.lower()


def over_text(job: RedriveJob) -> str:
    """The state of a job that is over, and how long it took."""
    took_ms = job.ended_at_ms - job.created_at_ms if job.ended_at_ms else 0
    return state_text(job) + (f" after {span_text(took_ms)}" if took_ms > 0 else "")


def facts(job: RedriveJob) -> list[tuple[str, str]]:
    """All about a job, by name."""
    spec = job.spec
    return [
        ("job", job.job_id),
        ("kind", "redrive"),
        ("state", f"{state_text(job)}: {job.note}" if job.note else state_text(job)),
        *spec_facts(spec),
        ("looked at", f"{job.looked_at:,} of {job.letters:,}"),
        ("outcomes", counts_text(job)),
        *[("of these sent", text) for text in results_texts(job.results)],
        *[("note", text) for text in job.operator_notes],
        ("started", second_text(job.created_at_ms)),
        ("changed", second_text(job.changed_at_ms)),
        ("ended", second_text(job.ended_at_ms)),
    ]


def spec_facts(spec: RedriveSpec) -> list[tuple[str, str]]:
    """What a redrive sends, and how, by name."""
    return [
        ("letters", letters_of(spec)),
        ("sent to", target_text(spec)),
        ("delay", f"level {spec.delay_level}" if spec.delay_level else "none"),
        ("rate", f"at most {spec.max_per_second:,} a second" if spec.max_per_second else "any"),
        *[("again", "also those that were redriven before")] * spec.again,
    ]


def letters_of(spec: RedriveSpec) -> str:
    """The chosen dead letters: "group billing: topic orders"."""
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
    """Where the dead letters go."""
    if spec.to_topic:
        return f"topic {spec.to_topic}"
    if not spec.to_group or is_system_group(spec.group):
        return "their original topics"
    return f"group {spec.group} only"


def counts_text(done: Any, sent: str = "sent") -> str:
    """The counts of a job or a preview; together they are the letters that match the filter."""
    return f"{done.sent:,} {sent}, {done.already:,} redriven before, {done.refused:,} refused"


def results_texts(results: RedriveResults) -> Iterator[str]:
    """What became of a job's messages in the group that failed, if the broker was asked."""
    if results.is_counted:
        yield (
            f"{results.consumed:,} consumed, {results.waiting:,} waiting again,"
            f" {results.dead:,} dead again"
        )
    if results.why:
        yield f"{'incomplete' if results.is_counted else 'not counted'}: {results.why}"


def readers_text(topics: Sequence[ReadersOfTopic]) -> str:
    """The groups that would get a redrive's messages in these topics."""
    names = [group for each in topics for group in each.groups]
    more = sum([each.more_groups for each in topics])
    if not names and not more:
        return "no group yet"
    return f"group{'s' * (len(names) + more > 1)} " + ", ".join(
        [*names, *[f"{more:,} more"] * bool(more)]
    )
