"""Every redrive job and its position, stored so that a crash changes nothing.

A job's record lies before the messages that its step sends, in the same append.  It has the place
where the step began, the job behind the step, and the outcome of each dead letter; the k-th dead
letter that is SENT is the k-th message.  A record's outcomes count only up to the beginning of the
job's next record.

Opening reads the table of jobs and the records behind it (job_journal.py), and finds the
redriven dead letters in the same records.  A crash can only tear the log's last append: then the
record and the first of its messages survive.  The messages that are in the log are counted, by
their ids, cut() computes the job, and it goes on behind them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from rmqlite.features.dead_letters.redriven import EARLIER, IMPORTED, Redriven
from rmqlite.features.job_journal import Journal, job_record
from rmqlite.features.redrive.requests import (
    DeadLetterOutcome,
    JobState,
    RedriveJob,
    RedriveOutcome,
    RedriveSpec,
)
from rmqlite.features.redrive.table_shapes import (
    TABLE,
    RedriveImported,
    RedriveJobsTable,
    RedriveProgress,
    RedriveStep,
)
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.config.table_shapes import validated
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.tables import Tree
from rmqlite.kernel.words.message import (
    REDRIVE_ID_PREFIX,
    TAGS,
    UNIQ_KEY,
    encode_properties,
    find_property,
    property_marker,
)
from rmqlite.kernel.words.names import REDRIVE_JOBS_TOPIC, dlq_topic

_UNIQ_KEY: Final = property_marker(UNIQ_KEY)
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
class JobStep:
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
    def read(cls, body: bytes) -> JobStep:
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


def read_record(body: bytes) -> JobStep | RedriveImported:
    """The step of a job, or the dead letters of an import.  Raises ValueError on another shape."""
    if body.startswith(_IMPORTED):
        return validated(RedriveImported, tables.decode(body))
    return JobStep.read(body)


def message_id_of(progress: JobProgress, queue_id: int, queue_offset: int) -> str:
    """The id of a dead letter's new message: made of the dead letter's place, so it is sent only
    once."""
    place = f"{REDRIVE_ID_PREFIX}{progress.topic}:{queue_id}:{queue_offset}"
    return f"{place}:{progress.job.job_id}" if progress.job.spec.again else place


class RedriveJobs(Journal[JobProgress, JobStep | RedriveImported]):
    """Jobs by id; the finished job that changed the longest ago is forgotten first."""

    kind, table, topic = "redrive", TABLE, REDRIVE_JOBS_TOPIC

    def __init__(self, config: BrokerConfig, store: MessageStore, redriven: Redriven) -> None:
        """redriven: is filled.  Raises StoreDamaged for an unreadable table."""
        super().__init__(store, config.redrive_jobs_max)
        self.redriven = redriven
        self._records: dict[str, range] = {}
        """The queue offsets between which a job's records lie."""
        self._load()

    def all(self) -> tuple[RedriveJob, ...]:
        """All jobs without samples, the last changed one first."""
        return tuple(
            [replace(progress.job, samples=()) for progress in reversed(self._jobs.values())]
        )

    def records_of(self, job_id: str) -> range:
        """The queue offsets between which a job's records lie.  Raises JobUnknown."""
        self.get(job_id)
        return self._records[job_id]

    def not_over(self) -> list[JobProgress]:
        return [progress for progress in self._jobs.values() if not progress.job.is_over]

    def keep(self, step: JobStep, queue_offset: int) -> None:
        """Take a step whose record, at this queue offset, and messages are in the log."""
        self._keep(step.progress, queue_offset)
        self._note_sent(step, step.progress.at)

    def keep_imported(self, topic: str, sent: Mapping[int, CompletedOffsets]) -> None:
        """Take dead letters, by queue id, that were sent from a file; their record is written."""
        for queue_id, known in sent.items():
            for start, end in known.ranges():
                self.redriven.add(IMPORTED, topic, queue_id, start, end)
        self._is_changed = True

    def move(self, progress: JobProgress) -> None:
        """Take a job that has only skipped dead letters, for which there is no record."""
        self._update(progress.job.job_id, progress)

    def step_in(self, record: Record) -> JobStep | None:
        """The step in a record; None if the record is no job's."""
        found = self.read(record)
        return found if isinstance(found, JobStep) else None

    # ---- inside

    def _keep(self, progress: JobProgress, queue_offset: int) -> None:
        job_id = progress.job.job_id
        known = self._records.get(job_id, range(queue_offset, queue_offset))
        self._records[job_id] = range(known.start, queue_offset + 1)
        for forgotten in self._put(job_id, progress):
            del self._records[forgotten.job.job_id]
            self.redriven.forget(forgotten.job.job_id, forgotten.topic)

    def _note_sent(self, step: JobStep, upto: At) -> None:
        """Note the dead letters that a step has sent, up to a position, as redriven."""
        job_id = step.progress.job.job_id
        if self.find(job_id) is None:
            job_id = EARLIER
        for run in step.before(upto):
            if run.outcome is RedriveOutcome.SENT:
                end = run.queue_offset + run.letters
                self.redriven.add(job_id, step.progress.topic, step.queue_id, run.queue_offset, end)

    def _read(self, body: bytes) -> JobStep | RedriveImported:
        return read_record(body)

    def _forgettable(self) -> Iterator[str]:
        return (job_id for job_id, progress in self._jobs.items() if progress.job.is_over)

    def _job_tree(self, job: JobProgress) -> Tree:
        records = self._records[job.job.job_id]
        sent = self.redriven.to_json(job.topic, job.job.job_id)
        return job.to_json() | {"records": [records.start, records.stop - 1], "sent": sent}

    def _other_fields(self) -> Tree:
        return {
            key: {topic: self.redriven.to_json(topic, by) for topic in self.redriven.topics()}
            for key, by in (("earlier", EARLIER), ("imported", IMPORTED))
        }

    # ---- opening

    def _load(self) -> None:
        """Load the table, then the records of the log behind it."""
        table = self._store.load_table(TABLE, RedriveJobsTable) or RedriveJobsTable()
        for by, topics in ((EARLIER, table.earlier), (IMPORTED, table.imported)):
            for topic, sent in topics.items():
                self.redriven.load(topic, sent, by, end_of=self._end_of)
        for entry in table.jobs:
            progress = JobProgress.of(entry)
            first, last_record = entry.records
            self._records[progress.job.job_id] = range(first, last_record + 1)
            self.redriven.load(progress.topic, entry.sent, progress.job.job_id, end_of=self._end_of)
            self._keep(progress, last_record)
        self._is_changed = False
        last: dict[str, tuple[JobStep, Record]] = {}
        for step, record in self._behind(table.queue_offset):
            if isinstance(step, RedriveImported):
                self.redriven.load(step.imported, step.queues, IMPORTED, end_of=self._end_of)
                self._is_changed = True
                continue
            job_id = step.progress.job.job_id
            if job_id in last:
                self._note_sent(last[job_id][0], step.begin)
            self._keep(step.progress, record.head.queue_offset)
            last[job_id] = step, record
        for step, record in last.values():
            self._end_step(step, record)

    def _end_step(self, step: JobStep, record: Record) -> None:
        """Count the messages of a job's last step, because a crash may have torn its append."""
        messages = 0
        wanted = step.dead_letters([run for run in step.runs if run.outcome is RedriveOutcome.SENT])
        for dead_letter, found in zip(wanted, self._store.walk(record.end), strict=False):
            # Compare ids: other records follow if there was no room to correct the job.
            if find_property(found.head.properties, _UNIQ_KEY) != dead_letter.message_id.encode():
                break
            messages += 1
        if messages == step.messages:
            self._note_sent(step, step.progress.at)
            return
        progress = step.cut(messages)
        job_id = progress.job.job_id
        self._note_sent(step, progress.at)
        if self.find(job_id) is None:
            return
        self.move(progress)
        correction = JobStep(progress.at, progress).record(progress.job.changed_at_ms)
        queue_offset = self._correct(job_id, correction, stored=messages, of=step.messages)
        if queue_offset is not None:
            self._keep(progress, queue_offset)
