"""Every redrive job and its position, stored so that a crash changes nothing.

A job's last record in the log has all of the job.  The table of jobs is written now and then;
opening reads the records behind it, and finds the redriven letters in the same records.  If a
crash has torn a step, opening counts the messages that are in the log, by their ids, and the
job goes on behind them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from rmqlite.broker.redrive.records import JobProgress, Step, read_record
from rmqlite.broker.redrive.redriven import EARLIER, IMPORTED, Redriven
from rmqlite.config import BrokerConfig
from rmqlite.errors import JobUnknown, StoreUnavailable
from rmqlite.message import UNIQ_KEY, find_property, property_marker
from rmqlite.names import REDRIVE_JOBS_TOPIC
from rmqlite.records.stored import Record
from rmqlite.requests.redrive import RedriveJob, RedriveOutcome
from rmqlite.store.message_store import MessageStore
from rmqlite.store.progress import CompletedOffsets
from rmqlite.store.tables.tables import Tree
from rmqlite.table_shapes import RedriveImported, RedriveJobsTable, RedriveTold

TABLE: Final = "redriveJobs.json"
_ENTRIES_AT_ONCE: Final = 64
_UNIQ_KEY: Final = property_marker(UNIQ_KEY)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobRecords:
    """The range of a job's records in their queue: first <= queue offset <= last."""

    first: int
    last: int


class RedriveJobs:
    """Jobs by id; the finished job that changed the longest ago is forgotten first."""

    def __init__(self, config: BrokerConfig, store: MessageStore) -> None:
        """Raises StoreDamaged for an unreadable table."""
        self.redriven = Redriven()
        self._jobs_max = config.redrive_jobs_max
        self._path = config.store_path / "config" / TABLE
        self._store = store
        self._kept: dict[str, JobProgress] = {}
        self._records: dict[str, JobRecords] = {}
        self._texts: dict[str, str] = {}
        """Each job as JSON, cached: most of a thousand have not changed."""
        self._is_changed = False
        self._told_at = 0
        """The log's end when the table was last made."""
        self._load()

    def all(self) -> tuple[RedriveJob, ...]:
        """All jobs without samples, the last changed one first."""
        return tuple([replace(kept.job, samples=()) for kept in reversed(self._kept.values())])

    def get(self, job_id: str) -> JobProgress:
        """Raises JobUnknown."""
        kept = self._kept.get(job_id)
        if kept is None:
            raise JobUnknown(job_id)
        return kept

    def find(self, job_id: str) -> JobProgress | None:
        return self._kept.get(job_id)

    def records_of(self, job_id: str) -> JobRecords:
        """The range of a job's records.  Raises JobUnknown."""
        self.get(job_id)
        return self._records[job_id]

    def not_over(self) -> list[JobProgress]:
        return [kept for kept in self._kept.values() if not kept.job.is_over]

    def keep(self, step: Step, queue_offset: int) -> None:
        """Take a step whose record, at this queue offset, and messages are in the log."""
        self._put(step.kept, queue_offset)
        self._note_sent(step, step.kept)

    def keep_imported(self, topic: str, sent: Mapping[int, CompletedOffsets]) -> None:
        """Take letters, by queue id, that were sent from a file; their record is in the log."""
        for queue_id, known in sent.items():
            for start, end in known.ranges():
                self.redriven.add(IMPORTED, topic, queue_id, start, end)
        self._is_changed = True

    def move(self, kept: JobProgress) -> None:
        """Take a job that has only skipped letters, for which there is no record."""
        self._kept[kept.job.job_id] = kept
        self._texts.pop(kept.job.job_id, None)
        self._is_changed = True

    def tree(self) -> dict[str, Tree]:
        """The table to persist, by its name, or {} if the file on disk is current.

        It is current if nothing has changed since, and the persist that wrote it succeeded.
        """
        if not self._is_changed and self._store.persisted_end >= self._told_at:
            return {}
        self._is_changed = False
        self._told_at = self._store.end
        for job_id, kept in self._kept.items():
            if job_id not in self._texts:
                self._texts[job_id] = self._text(kept)
        texts = [self._texts[job_id] for job_id in self._kept]
        named = {
            key: {topic: self.redriven.to_json(topic, by) for topic in self.redriven.topics()}
            for key, by in (("earlier", EARLIER), ("imported", IMPORTED))
        }
        end = self._end_of(REDRIVE_JOBS_TOPIC, 0)
        return {TABLE: {"queueOffset": end, "jobs": texts, **named}}

    # ---- inside

    def _put(self, kept: JobProgress, queue_offset: int) -> None:
        job_id = kept.job.job_id
        self._kept.pop(job_id, None)
        self._kept[job_id] = kept
        self._texts.pop(job_id, None)
        known = self._records.get(job_id)
        self._records[job_id] = JobRecords(known.first if known else queue_offset, queue_offset)
        self._is_changed = True
        self._forget()

    def _forget(self) -> None:
        surplus = len(self._kept) - self._jobs_max
        if surplus <= 0:
            return
        over = [job_id for job_id, kept in self._kept.items() if kept.job.is_over]
        for job_id in over[:surplus]:
            kept = self._kept.pop(job_id)
            del self._records[job_id]
            self._texts.pop(job_id, None)
            self.redriven.forget(job_id, kept.topic)

    def _note_sent(self, step: Step, upto: JobProgress) -> None:
        """Note the letters that a step has sent, up to the job's position, as redriven."""
        job_id = step.kept.job.job_id
        if job_id not in self._kept:
            job_id = EARLIER
        for run in step.before(upto.at):
            if run.outcome is RedriveOutcome.SENT:
                end = run.queue_offset + run.letters
                self.redriven.add(job_id, step.kept.topic, step.queue_id, run.queue_offset, end)

    def _text(self, kept: JobProgress) -> str:
        records = self._records[kept.job.job_id]
        tree = kept.to_json() | {"records": [records.first, records.last]}
        return json.dumps(tree | {"sent": self.redriven.to_json(kept.topic, kept.job.job_id)})

    def _end_of(self, topic: str, queue_id: int) -> int:
        queue = self._store.queue(topic, queue_id)
        return queue.max_offset if queue else 0

    # ---- opening

    def _load(self) -> None:
        """Load the table, then the records of the log behind it."""
        table = self._store.load_table(TABLE, RedriveJobsTable) or RedriveJobsTable()
        for by, topics in ((EARLIER, table.earlier), (IMPORTED, table.imported)):
            for topic, sent in topics.items():
                self.redriven.load(topic, sent, by, end_of=self._end_of)
        for told in table.jobs:
            self._load_job(told)
        begin = table.queue_offset
        self._is_changed = False
        last: dict[str, tuple[Step, Record]] = {}
        for walked in self._behind(begin):
            step = _read(walked)
            if isinstance(step, RedriveImported):
                self._load_imported(step)
                continue
            if step is None:
                continue
            job_id = step.kept.job.job_id
            if job_id in last:
                before, _ = last[job_id]
                self._note_sent(before, replace(before.kept, at=step.begin))
            self._put(step.kept, walked.head.queue_offset)
            last[job_id] = step, walked
        for step, walked in last.values():
            self._end_step(step, walked)

    def _load_imported(self, found: RedriveImported) -> None:
        self.redriven.load(found.imported, found.queues, IMPORTED, end_of=self._end_of)
        self._is_changed = True

    def _load_job(self, told: RedriveTold) -> None:
        kept = JobProgress.of(told)
        job_id = kept.job.job_id
        self._records[job_id] = JobRecords(*told.records)
        self.redriven.load(kept.topic, told.sent, job_id, end_of=self._end_of)
        self._put(kept, self._records[job_id].last)

    def _behind(self, begin: int) -> Iterator[Record]:
        """The records of jobs from a queue offset on."""
        queue = self._store.queue(REDRIVE_JOBS_TOPIC, 0)
        if queue is None:
            return
        if begin > queue.max_offset:
            # The table belongs to another queue.
            begin = 0
        for start in range(max(begin, queue.min_offset), queue.max_offset, _ENTRIES_AT_ONCE):
            for walked in self._store.read_records(queue.read(start, _ENTRIES_AT_ONCE)):
                if walked is not None:
                    yield walked

    def _end_step(self, step: Step, walked: Record) -> None:
        """Count the messages of a job's last step, because a crash may have torn its append."""
        messages = 0
        if step.messages:
            behind = self._store.walk(walked.head.physical_offset + walked.head.size)
            for wanted, found in zip(step.ids(), behind, strict=False):
                # Compare ids: other records follow if there was no room to correct the job.
                if find_property(found.head.properties, _UNIQ_KEY) != wanted.encode():
                    break
                messages += 1
        if messages == step.messages:
            self._note_sent(step, step.kept)
            return
        kept = step.cut(messages)
        job_id = kept.job.job_id
        log.info("a redrive was cut off job=%s kept=%d of=%d", job_id, messages, step.messages)
        self._note_sent(step, kept)
        if job_id not in self._kept:
            return
        self.move(kept)
        correction = Step(kept.at, kept)
        try:
            (at,) = self._store.append([correction.record(kept.job.changed_at_ms)])
        except StoreUnavailable as error:
            log.warning("no room to save the state of a redrive error=%s", error)
        else:
            self._put(kept, at.queue_offset)


def read_step(walked: Record) -> Step | None:
    """The step in a record; None if the record is no job's."""
    found = _read(walked)
    return found if isinstance(found, Step) else None


def _read(walked: Record) -> Step | RedriveImported | None:
    head = walked.head
    try:
        return read_record(walked.body)
    except ValueError as error:
        # A producer's message: the topic is closed to producers here, but not in RocketMQ.
        offset = head.physical_offset
        log.warning("skip a record of no redrive job physical_offset=%d error=%s", offset, error)
        return None
