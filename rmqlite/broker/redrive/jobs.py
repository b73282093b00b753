"""Every redrive job and its position, stored so that a crash changes nothing.

Opening reads the table of jobs and the records behind it (jobs/journal.py), and finds the
redriven dead letters in the same records.  If a crash has torn a step, it counts the messages that
are in the log, by their ids, and the job goes on behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from rmqlite.broker.jobs.journal import Journal
from rmqlite.broker.redrive.records import At, JobProgress, Step, read_record
from rmqlite.broker.redrive.redriven import EARLIER, IMPORTED, Redriven
from rmqlite.config import BrokerConfig
from rmqlite.message import UNIQ_KEY, find_property, property_marker
from rmqlite.names import REDRIVE_JOBS_TOPIC
from rmqlite.records.stored import Record
from rmqlite.requests.redrive import RedriveJob, RedriveOutcome
from rmqlite.store.message_store import MessageStore
from rmqlite.store.progress import CompletedOffsets
from rmqlite.store.tables.tables import Tree
from rmqlite.table_shapes import RedriveImported, RedriveJobsTable

TABLE: Final = "redriveJobs.json"
_UNIQ_KEY: Final = property_marker(UNIQ_KEY)


class RedriveJobs(Journal[JobProgress, Step | RedriveImported]):
    """Jobs by id; the finished job that changed the longest ago is forgotten first."""

    kind, table, topic = "redrive", TABLE, REDRIVE_JOBS_TOPIC

    def __init__(self, config: BrokerConfig, store: MessageStore) -> None:
        """Raises StoreDamaged for an unreadable table."""
        super().__init__(store, config.redrive_jobs_max)
        self.redriven = Redriven()
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

    def keep(self, step: Step, queue_offset: int) -> None:
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

    def step_in(self, record: Record) -> Step | None:
        """The step in a record; None if the record is no job's."""
        found = self.read(record)
        return found if isinstance(found, Step) else None

    # ---- inside

    def _keep(self, progress: JobProgress, queue_offset: int) -> None:
        job_id = progress.job.job_id
        known = self._records.get(job_id, range(queue_offset, queue_offset))
        self._records[job_id] = range(known.start, queue_offset + 1)
        for forgotten in self._put(job_id, progress):
            del self._records[forgotten.job.job_id]
            self.redriven.forget(forgotten.job.job_id, forgotten.topic)

    def _note_sent(self, step: Step, upto: At) -> None:
        """Note the dead letters that a step has sent, up to a position, as redriven."""
        job_id = step.progress.job.job_id
        if self.find(job_id) is None:
            job_id = EARLIER
        for run in step.before(upto):
            if run.outcome is RedriveOutcome.SENT:
                end = run.queue_offset + run.letters
                self.redriven.add(job_id, step.progress.topic, step.queue_id, run.queue_offset, end)

    def _read(self, body: bytes) -> Step | RedriveImported:
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
        last: dict[str, tuple[Step, Record]] = {}
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

    def _end_step(self, step: Step, record: Record) -> None:
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
        correction = Step(progress.at, progress).record(progress.job.changed_at_ms)
        queue_offset = self._correct(job_id, correction, stored=messages, of=step.messages)
        if queue_offset is not None:
            self._keep(progress, queue_offset)
