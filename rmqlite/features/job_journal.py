"""The jobs of one kind, stored so that a crash changes nothing.

A step of a job is one append: the job's record, which has the whole job after the step, and
the step's messages behind it.  The table of jobs is written now and then; opening reads the
records behind it.  A crash can only tear the log's last append: the record survives with the
first of its messages, so the child class counts them, and appends the corrected job.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.tables.tables import Tree
from rmqlite.kernel.words.errors import JobUnknown, StoreUnavailable
from rmqlite.kernel.words.message import pack_host

_ENTRIES_AT_ONCE: Final = 64
_HOST: Final = pack_host("127.0.0.1:0")
Job = TypeVar("Job")
Body = TypeVar("Body")

log = logging.getLogger(__name__)


class Journal(ABC, Generic[Job, Body]):
    """Jobs by id, the last changed one last; the finished job that changed first is forgotten."""

    kind: str
    table: str
    """The name of the file below config/."""
    topic: str
    """Its queue 0 has the records."""

    def __init__(self, store: MessageStore, jobs_max: int) -> None:
        self._store = store
        self._jobs_max = jobs_max
        self._jobs: dict[str, Job] = {}
        self._texts: dict[str, str] = {}
        """Each job as JSON, cached: a table of a thousand takes 15 ms at most, not 180."""
        self._is_changed = False
        self._table_end = 0
        """The log's end when the table was last made."""

    def find(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def get(self, job_id: str) -> Job:
        """Raises JobUnknown."""
        if job_id not in self._jobs:
            raise JobUnknown(job_id)
        return self._jobs[job_id]

    def tree(self) -> dict[str, Tree]:
        """The table to persist, by its name, or {} if the file on disk is current.

        It is current if nothing has changed since, and the persist that wrote it succeeded.
        """
        if not self._is_changed and self._store.persisted_end >= self._table_end:
            return {}
        self._is_changed = False
        self._table_end = self._store.end
        for job_id, job in self._jobs.items():
            if job_id not in self._texts:
                self._texts[job_id] = json.dumps(self._job_tree(job))
        texts = [self._texts[job_id] for job_id in self._jobs]
        end = self._end_of(self.topic, 0)
        return {self.table: {"queueOffset": end, "jobs": texts, **self._other_fields()}}

    def read(self, record: Record) -> Body | None:
        """What a record says; None if it is no job's."""
        try:
            return self._read(record.body)
        except ValueError as error:
            # A producer's message: the topic is closed to producers here, but not in RocketMQ.
            log.warning(
                "skip a record of no %s job physical_offset=%d error=%s",
                self.kind,
                record.head.physical_offset,
                error,
            )
            return None

    # ---- what the jobs of a kind are

    @abstractmethod
    def _read(self, body: bytes) -> Body:
        """The body of a record.  Raises ValueError on another shape."""

    @abstractmethod
    def _job_tree(self, job: Job) -> Tree:
        """A job as it stands in the table."""

    def _forgettable(self) -> Iterator[str]:
        """The ids of the jobs that may be forgotten, in the order of their last changes."""
        return iter(self._jobs)

    def _other_fields(self) -> Tree:
        """The fields of the table beside the jobs."""
        return {}

    # ---- called by the kinds

    def _put(self, job_id: str, job: Job) -> list[Job]:
        """Take a job's new state, whose record is in the log; return the forgotten jobs."""
        self._jobs.pop(job_id, None)
        self._update(job_id, job)
        surplus = max(0, len(self._jobs) - self._jobs_max)
        forgotten = list(islice(self._forgettable(), surplus))
        for each in forgotten:
            self._texts.pop(each, None)
        return [self._jobs.pop(each) for each in forgotten]

    def _update(self, job_id: str, job: Job) -> None:
        """Take a job's new state for which there is no record; the order stays."""
        self._jobs[job_id] = job
        self._texts.pop(job_id, None)
        self._is_changed = True

    def _behind(self, begin: int) -> Iterator[tuple[Body, Record]]:
        """The records of jobs from a queue offset on."""
        queue = self._store.queue(self.topic, 0)
        if queue is None:
            return
        if begin > queue.max_offset:
            # The table belongs to another queue.
            begin = 0
        for start in range(max(begin, queue.min_offset), queue.max_offset, _ENTRIES_AT_ONCE):
            for record in self._store.read_records(queue.read(start, _ENTRIES_AT_ONCE)):
                if record is not None and (body := self.read(record)) is not None:
                    yield body, record

    def _correct(self, job_id: str, record: NewRecord, *, stored: int, of: int) -> int | None:
        """Append the state of a job whose step has stored only some of its messages.

        Returns the record's queue offset, or None if there is no room.
        """
        log.info("a %s job was cut off job=%s kept=%d of=%d", self.kind, job_id, stored, of)
        try:
            (at,) = self._store.append([record])
        except StoreUnavailable as error:
            log.warning("no room to save the state of a %s job error=%s", self.kind, error)
            return None
        return at.queue_offset

    def _end_of(self, topic: str, queue_id: int) -> int:
        queue = self._store.queue(topic, queue_id)
        return queue.max_offset if queue else 0


def job_record(topic: str, tree: Any, now_ms: int, properties: bytes = b"") -> NewRecord:
    """A record of a job; the messages of its step follow directly."""
    body = json.dumps(tree, separators=(",", ":")).encode()
    return fresh(Draft(topic, 0, properties, body, now_ms, _HOST), _HOST)
