"""Many messages in one call, each with its own outcome: accepted, duplicate or refused.

The message id is the unique id (first_messages.py), so a call may be repeated.  A call that names a
job adds to the job's sums; the record of a call has the job's sums so far (job_journal.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from rmqlite.features.bulk.bulk_rows import (
    QueueOf,
    Sender,
    Waits,
    check_call,
    records_of,
    rows_of,
)
from rmqlite.features.bulk.requests import (
    SAMPLES_MAX,
    BulkAnswer,
    BulkJob,
    BulkRequest,
    Refusal,
    RefusedAt,
)
from rmqlite.features.bulk.table_shapes import TABLE, BulkCallBody, BulkJobsTable
from rmqlite.features.first_messages import HOUR_MS, Asked, FirstMessages, choice_of
from rmqlite.features.job_journal import Journal, job_record
from rmqlite.kernel import Steps
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.config.table_shapes import validated
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.tables import Tree
from rmqlite.kernel.words.limits import INT64_MAX
from rmqlite.kernel.words.names import BULK_JOBS_TOPIC, check_sendable

_TEXT_CHARS_MAX: Final = 300
ROWS_STEP: Final = 100
"""A call with more messages makes its records in a step of 10 ms, and appends in the next."""


class BulkJobs(Journal[BulkJob, tuple[BulkJob, int]]):
    """The sums of every bulk job; the least recently used one is forgotten first."""

    kind, table, topic = "bulk", TABLE, BULK_JOBS_TOPIC

    def __init__(self, config: BrokerConfig, store: MessageStore) -> None:
        """Raises StoreDamaged for an unreadable table."""
        super().__init__(store, config.bulk_jobs_max)
        table = store.load_table(TABLE, BulkJobsTable) or BulkJobsTable()
        for job in table.jobs:
            self.keep(job)
        self._is_changed = False
        last: tuple[BulkJob, int, Record] | None = None
        for (job, messages), record in self._behind(table.queue_offset):
            self.keep(job)
            last = job, messages, record
        if last is not None:
            self._count_again(*last)

    def all(self) -> tuple[BulkJob, ...]:
        """All jobs without samples, the last used one first."""
        return tuple([replace(job, samples=()) for job in reversed(self._jobs.values())])

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
        job = self.find(job_id) or BulkJob(job_id, first_at_ms=now_ms)
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
        return job_record(self.topic, job.to_json() | {"messages": messages}, job.last_at_ms)

    def keep(self, job: BulkJob) -> None:
        """Take a job's new state, whose record is in the log."""
        self._put(job.job_id, job)

    def _read(self, body: bytes) -> tuple[BulkJob, int]:
        """A record's job, and the number of messages that follow."""
        tree = tables.decode(body)
        return validated(BulkJob, tree), validated(BulkCallBody, tree).messages

    def _job_tree(self, job: BulkJob) -> Tree:
        return job.to_json()

    def _count_again(self, job: BulkJob, messages: int, record: Record) -> None:
        """Count the messages of the last call, because a crash may have torn its append."""
        stored = sum(1 for _ in islice(self._store.walk(record.end), messages))
        if stored < messages:
            job = replace(job, accepted=job.accepted - (messages - stored))
            self.keep(job)
            # A record now, so that later messages are not counted as the rest of the call.
            self._correct(job.job_id, self.record(job, 0), stored=stored, of=messages)


@dataclass(frozen=True, slots=True)
class BulkCall:
    """The result of a call once its records are appended; job: its job's new state."""

    records: list[NewRecord]
    answer: BulkAnswer
    job: BulkJob | None


class Bulk:
    """Stores many messages in one call, each with its own outcome."""

    def __init__(self, broker: Broker) -> None:
        parts = broker.parts
        self.jobs = BulkJobs(parts.config, parts.store)
        self._retention = broker.retention
        self._needed = broker.drafts.needed
        self._parts = parts
        self._config = parts.config
        self._timers = parts.timers
        self._store = parts.store
        self._topics = parts.topics
        self._room = parts.room

    def schedule(self, request: BulkRequest, born_host: bytes) -> Steps[BulkAnswer]:
        """Store messages, each with its own outcome, in steps; valid once the store is durable.

        Raises InvalidValue, MessageTooLarge for the call as a whole, DiskFull,
        StoreUnavailable: then no message of the call is stored.
        """
        self._retention.check_room()
        needed = self._needed()
        parts, now_ms = self._parts, self._parts.clock.now_ms()
        born_at_ms = request.born_at_ms or now_ms
        sender = Sender(self._config.cluster_name, born_at_ms, born_host, parts.host)

        def queue_of(topic: str) -> int:
            check_sendable(topic)
            return needed.queue_for(topic)

        call = yield from self._call(request, queue_of, sender, now_ms)
        if call.records:
            needed.make()
            parts.appending.append(call.records)
        parts.counts.sent += call.answer.accepted
        if call.job is not None:
            self.jobs.keep(call.job)
        return call.answer

    def _call(
        self, request: BulkRequest, queue_of: QueueOf, sender: Sender, now_ms: int
    ) -> Steps[BulkCall]:
        """The records to append, in steps.

        now_ms: not later than the store timestamp of the records, so that none is due early.
        Raises InvalidValue, MessageTooLarge, StoreUnavailable, Overloaded.
        """
        check_call(request, self._config)
        since_ms = now_ms - self._config.dedup_hours * HOUR_MS
        while True:
            table = self._store.levels.current
            waits = Waits(table, request.match, self._timers, now_ms)
            rows, refused = rows_of(request, waits, queue_of, self._room)
            made, too_long = records_of(rows, sender)
            if len(rows) > ROWS_STEP:
                yield
            # Only after the refusals: a refused message makes no later one a duplicate.
            fitting = [row for row in rows if row.position in made] if too_long else rows
            # Not Asked(): with its defaults it takes twice as long, 3 % of a row's time.
            asked = [
                tuple.__new__(Asked, (row.topic, row.message_id, row.message_id, False))
                for row in fitting
            ]
            end = self._store.end
            looking = FirstMessages(
                self._store, asked, since_ms, waiting_since_ms=self._waiting_since_ms()
            )
            firsts = yield from looking.first_messages()
            choice = choice_of(asked, firsts, looking)
            if len(rows) > ROWS_STEP:
                yield
            if self._store.levels.current is table and not looking.has_newer(end):
                break
        refused |= too_long
        records = [made[fitting[at].position] for at in choice.stored]
        duplicates = tuple([fitting[at].position for at in choice.instead])
        at = tuple([RefusedAt(position, refused[position]) for position in sorted(refused)])
        answer = BulkAnswer(len(records), duplicates, at)
        if not request.job_id:
            return BulkCall(records, answer, None)
        self._topics.ensure(BULK_JOBS_TOPIC, 1)
        job = self.jobs.after(
            request.job_id,
            accepted=len(records),
            duplicates=len(duplicates),
            refused=[*request.already_refused, *[each.refusal for each in at]],
            now_ms=now_ms,
        )
        # The job's record first: then it survives a crash that tears the append.
        return BulkCall([self.jobs.record(job, len(records)), *records], answer, job)

    def _waiting_since_ms(self) -> int:
        """When the oldest of all messages that wait was stored; INT64_MAX if none does."""
        oldest = self._parts.wait_queues.oldest_pending()
        if oldest is None:
            return INT64_MAX
        return self._store.store_timestamp_ms(oldest[1].physical_offset) or 0


def _short(refusal: Refusal) -> Refusal:
    """A refusal with short texts, so that users' texts do not make records long."""
    return Refusal(
        *[
            text if len(text) <= _TEXT_CHARS_MAX else text[: _TEXT_CHARS_MAX - 1] + "…"
            for text in (refusal.message_id, refusal.code, refusal.sentence)
        ]
    )
