"""The sums of every bulk job, counted so that a crash changes nothing.

A call's record lies before its messages, in the same append, and has the job's sums so far.
So the last record of a job has all of them.  The table of jobs is written now and then;
opening reads the records behind it.  Only the log's last append can be torn: its messages are
counted again when the store is opened.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from rmqlite.config import BrokerConfig
from rmqlite.errors import JobUnknown, StoreUnavailable
from rmqlite.message import pack_host
from rmqlite.names import BULK_JOBS_TOPIC
from rmqlite.records.drafts import Draft, fresh
from rmqlite.records.record import NewRecord
from rmqlite.records.stored import Record
from rmqlite.requests.bulk import SAMPLES_MAX, BulkJob, Refusal
from rmqlite.store.message_store import MessageStore
from rmqlite.store.tables import tables
from rmqlite.store.tables.tables import Tree
from rmqlite.table_shapes import BulkCall, BulkJobsTable, validated

TABLE: Final = "bulkJobs.json"
_TEXT_CHARS_MAX: Final = 300
_ENTRIES_AT_ONCE: Final = 512
_HOST: Final = pack_host("127.0.0.1:0")

log = logging.getLogger(__name__)


class BulkJobs:
    """Jobs by id; the least recently used one is forgotten first."""

    def __init__(self, config: BrokerConfig, store: MessageStore) -> None:
        """Raises StoreDamaged for an unreadable table or record of a job."""
        self._jobs_max = config.bulk_jobs_max
        self._folder = config.store_path / "config"
        self._store = store
        self._jobs: dict[str, BulkJob] = {}
        self._texts: dict[str, str] = {}
        """Each job as JSON, cached: a table of a thousand takes 15 ms at most, not 180."""
        self._is_changed = False
        self._told_at = 0
        """The log's end when the table was last made."""
        self._load()

    def all(self) -> tuple[BulkJob, ...]:
        """All jobs without samples, the last used one first."""
        return tuple([replace(job, samples=()) for job in reversed(self._jobs.values())])

    def get(self, job_id: str) -> BulkJob:
        """Raises JobUnknown."""
        job = self._jobs.get(job_id)
        if job is None:
            raise JobUnknown(job_id)
        return job

    def after(
        self,
        job_id: str,
        *,
        accepted: int,
        duplicates: int,
        refused: Sequence[Refusal],
        now_ms: int,
    ) -> BulkJob:
        """The job after one more call; changes nothing."""
        job = self._jobs.get(job_id) or BulkJob(job_id, first_at_ms=now_ms)
        samples = job.samples
        if refused and len(samples) < SAMPLES_MAX:
            samples += tuple([_short(each) for each in refused[: SAMPLES_MAX - len(samples)]])
        return replace(
            job,
            accepted=job.accepted + accepted,
            duplicates=job.duplicates + duplicates,
            refused=job.refused + len(refused),
            calls=job.calls + 1,
            last_at_ms=now_ms,
            samples=samples,
        )

    def record(self, job: BulkJob, messages: int) -> NewRecord:
        """The record of a call; its messages follow directly."""
        body = json.dumps(job.to_json() | {"messages": messages}).encode()
        return fresh(Draft(BULK_JOBS_TOPIC, 0, b"", body, job.last_at_ms, _HOST), _HOST)

    def keep(self, job: BulkJob) -> None:
        """Take a job's new state, whose record is in the log."""
        self._jobs.pop(job.job_id, None)
        self._texts.pop(job.job_id, None)
        self._jobs[job.job_id] = job
        self._is_changed = True
        while len(self._jobs) > self._jobs_max:
            oldest = next(iter(self._jobs))
            del self._jobs[oldest]
            self._texts.pop(oldest, None)

    def tree(self) -> dict[str, Tree]:
        """The table to persist, by its name, or {} if the file on disk is current.

        It is current if nothing has changed since, and the persist that wrote it succeeded.
        """
        if not self._is_changed and self._store.persisted_end >= self._told_at:
            return {}
        self._is_changed = False
        self._told_at = self._store.end
        for job_id, job in self._jobs.items():
            if job_id not in self._texts:
                self._texts[job_id] = json.dumps(job.to_json())
        texts = [self._texts[job_id] for job_id in self._jobs]
        return {TABLE: {"queueOffset": self._end(), "jobs": texts}}

    # ---- opening

    def _load(self) -> None:
        """Load the table, then the records of the log behind it."""
        table = self._store.load_table(TABLE, BulkJobsTable) or BulkJobsTable()
        for job in table.jobs:
            self.keep(job)
        begin = table.queue_offset
        self._is_changed = False
        queue = self._store.queue(BULK_JOBS_TOPIC, 0)
        if queue is None:
            return
        if begin > queue.max_offset:
            # The table belongs to another queue.
            begin = 0
        last: Record | None = None
        for start in range(max(begin, queue.min_offset), queue.max_offset, _ENTRIES_AT_ONCE):
            for walked in self._store.read_records(queue.read(start, _ENTRIES_AT_ONCE)):
                if walked is not None:
                    last = walked if self._fold(walked) is not None else last
        if last is not None:
            self._count_again(last)

    def _fold(self, walked: Record) -> tuple[BulkJob, int] | None:
        """Take a record's job; returns it, and the number of messages that follow."""
        try:
            tree = tables.decode(walked.body)
            job, messages = validated(BulkJob, tree), validated(BulkCall, tree).messages
        except ValueError as error:
            # A producer's message: the topic is closed to producers here, but not in RocketMQ.
            offset = walked.head.physical_offset
            log.warning("skip a record of no bulk job physical_offset=%d error=%s", offset, error)
            return None
        self.keep(job)
        return job, messages

    def _count_again(self, last: Record) -> None:
        """Count the messages of the last call, because a crash may have torn its append."""
        folded = self._fold(last)
        assert folded is not None
        job, messages = folded
        behind = self._store.walk(last.head.physical_offset + last.head.size)
        kept = sum(1 for _ in islice(behind, messages))
        if kept == messages:
            return
        job = replace(job, accepted=job.accepted - (messages - kept))
        self.keep(job)
        log.info("a call was cut off job=%s kept=%d of=%d", job.job_id, kept, messages)
        try:
            # A record now, so that later messages are not counted as the rest of the call.
            self._store.append([self.record(job, 0)])
        except StoreUnavailable as error:
            log.warning("no room to save the state of a bulk job error=%s", error)

    def _end(self) -> int:
        queue = self._store.queue(BULK_JOBS_TOPIC, 0)
        return queue.max_offset if queue else 0


def _short(refusal: Refusal) -> Refusal:
    """A refusal with short texts, so that users' texts do not make records long."""
    return Refusal(
        *[
            text if len(text) <= _TEXT_CHARS_MAX else text[: _TEXT_CHARS_MAX - 1] + "…"
            for text in (refusal.message_id, refusal.code, refusal.sentence)
        ]
    )
