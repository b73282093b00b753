"""The records of a redrive job: the job after a step, and the outcomes of its dead letters.

A record lies before the messages that its step sends, in the same append.  It has the place where
the step began, the job behind the step, and the outcome of each dead letter; the k-th dead letter
that is SENT is the k-th message.  A crash can only tear the log's last append: then the record and
the first of its messages survive, and cut() computes the job.  A record's outcomes count only up to
the beginning of the job's next record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from rmqlite.broker.jobs.journal import job_record
from rmqlite.message import REDRIVE_ID_PREFIX, TAGS, encode_properties
from rmqlite.names import REDRIVE_JOBS_TOPIC, dlq_topic
from rmqlite.records.record import NewRecord
from rmqlite.requests.redrive import (
    DeadLetterOutcome,
    JobState,
    RedriveJob,
    RedriveOutcome,
    RedriveSpec,
)
from rmqlite.store.progress import CompletedOffsets
from rmqlite.store.tables import tables
from rmqlite.table_shapes import RedriveImported, RedriveProgress, RedriveStep, validated

_IMPORTED: Final = b'{"imported":'
"""The beginning of an import's record."""


class QueuePart(NamedTuple):
    """A queue of dead letters as it was when the job was started: begin <= offset < end."""

    queue_id: int
    begin: int
    end: int


class At(NamedTuple):
    """A job's position: the parts before this one are done, and this one up to queue_offset."""

    part: int
    queue_offset: int


class OutcomeRun(NamedTuple):
    """Successive dead letters of a queue with the same outcome."""

    queue_offset: int
    letters: int
    outcome: RedriveOutcome
    topic: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A job, its dead letters, and its position."""

    job: RedriveJob
    parts: tuple[QueuePart, ...]
    at: At

    @classmethod
    def begun(
        cls, job_id: str, spec: RedriveSpec, parts: tuple[QueuePart, ...], now_ms: int
    ) -> JobProgress:
        """A job before its first dead letter; without dead letters it is done."""
        job = RedriveJob(
            job_id,
            spec,
            JobState.RUNNING if parts else JobState.DONE,
            letters=sum(part.end - part.begin for part in parts),
            created_at_ms=now_ms,
            changed_at_ms=now_ms,
            ended_at_ms=0 if parts else now_ms,
        )
        return cls(job, parts, At(0, parts[0].begin if parts else 0))

    @property
    def topic(self) -> str:
        """The topic of its dead letters."""
        return dlq_topic(self.job.spec.group)

    def moved(self, at: At, **changes: Any) -> JobProgress:
        """The job at another position."""
        looked_at = sum(part.end - part.begin for part in self.parts[: at.part])
        if at.part < len(self.parts):
            looked_at += at.queue_offset - self.parts[at.part].begin
        return replace(self, at=at, job=replace(self.job, looked_at=looked_at, **changes))

    def to_json(self) -> dict[str, Any]:
        """A tree for json."""
        return {"job": self.job.to_json(), "parts": self.parts, "at": self.at}

    @classmethod
    def of(cls, tree: RedriveProgress) -> JobProgress:
        """The inverse of to_json, for a validated tree."""
        return cls(tree.job, tuple([QueuePart(*each) for each in tree.parts]), At(*tree.at))


@dataclass(frozen=True, slots=True)
class Step:
    """One append of a job: where it began, the job behind it, and the outcomes."""

    begin: At
    progress: JobProgress
    runs: tuple[OutcomeRun, ...] = ()

    @property
    def messages(self) -> int:
        """The number of messages that follow the record."""
        return sum(run.letters for run in self.runs if run.outcome is RedriveOutcome.SENT)

    @property
    def queue_id(self) -> int:
        """The queue id of the step's dead letters."""
        return self.progress.parts[self.begin.part].queue_id

    def before(self, at: At) -> tuple[OutcomeRun, ...]:
        """The outcomes of the dead letters before a position."""
        if at.part > self.begin.part:
            return self.runs
        found = []
        for run in self.runs:
            count = min(run.letters, at.queue_offset - run.queue_offset)
            if count > 0:
                found.append(run._replace(letters=count))
        return tuple(found)

    def cut(self, messages: int) -> JobProgress:
        """The job if the log has only this many of the step's messages; fewer than it sent."""
        left = messages
        for run in self.runs:
            if run.outcome is not RedriveOutcome.SENT:
                continue
            if left < run.letters:
                at = At(self.begin.part, run.queue_offset + left)
                break
            left -= run.letters
        gone = counted(self.runs) - counted(self.before(at))
        job = self.progress.job
        samples = [
            each
            for each in job.samples
            if each.queue_id != self.queue_id or each.queue_offset < at.queue_offset
        ]
        return self.progress.moved(
            at,
            state=JobState.RUNNING,
            ended_at_ms=0,
            sent=job.sent - gone[RedriveOutcome.SENT],
            already=job.already - gone[RedriveOutcome.ALREADY],
            refused=job.refused - gone[RedriveOutcome.REFUSED],
            samples=tuple(samples),
        )

    def dead_letters(self, runs: Sequence[OutcomeRun]) -> Iterator[DeadLetterOutcome]:
        """Outcomes of this step, one by one."""
        for run in runs:
            for queue_offset in range(run.queue_offset, run.queue_offset + run.letters):
                has_id = run.outcome is not RedriveOutcome.REFUSED
                message_id = (
                    message_id_of(self.progress, self.queue_id, queue_offset) if has_id else ""
                )
                yield DeadLetterOutcome(
                    self.queue_id, queue_offset, run.outcome, run.topic, message_id, run.why
                )

    def record(self, now_ms: int) -> NewRecord:
        """The step's record; its messages follow directly.  Its tags are the job's id."""
        texts: dict[str, int] = {}
        runs = [
            (
                run.queue_offset,
                run.letters,
                int(run.outcome),
                texts.setdefault(run.topic, len(texts)),
                texts.setdefault(run.why, len(texts)),
            )
            for run in self.runs
        ]
        tree = self.progress.to_json() | {"begin": self.begin, "texts": list(texts), "runs": runs}
        properties = encode_properties({TAGS: self.progress.job.job_id})
        return job_record(REDRIVE_JOBS_TOPIC, tree, now_ms, properties)

    @classmethod
    def read(cls, body: bytes) -> Step:
        """The inverse of record().  Raises ValueError on another shape."""
        tree = validated(RedriveStep, tables.decode(body))
        texts = tree.texts
        runs = [
            OutcomeRun(offset, count, outcome, texts[topic], texts[why])
            for offset, count, outcome, topic, why in tree.runs
        ]
        return cls(At(*tree.begin), JobProgress.of(tree), tuple(runs))


def counted(runs: Sequence[OutcomeRun]) -> Counter[RedriveOutcome]:
    """The number of dead letters by outcome."""
    counts = Counter[RedriveOutcome]()
    for run in runs:
        counts[run.outcome] += run.letters
    return counts


def imported_record(topic: str, sent: Mapping[int, CompletedOffsets], now_ms: int) -> NewRecord:
    """The record that says which dead letters of a topic, by queue id, were sent from a file."""
    queues = {str(queue_id): known.to_json() for queue_id, known in sorted(sent.items())}
    return job_record(REDRIVE_JOBS_TOPIC, {"imported": topic, "queues": queues}, now_ms)


def read_record(body: bytes) -> Step | RedriveImported:
    """The step of a job, or the dead letters of an import.  Raises ValueError on another shape."""
    if body.startswith(_IMPORTED):
        return validated(RedriveImported, tables.decode(body))
    return Step.read(body)


def message_id_of(progress: JobProgress, queue_id: int, queue_offset: int) -> str:
    """The id of a dead letter's new message: made of the dead letter's place, so it is sent only
    once."""
    place = f"{REDRIVE_ID_PREFIX}{progress.topic}:{queue_id}:{queue_offset}"
    return f"{place}:{progress.job.job_id}" if progress.job.spec.again else place
