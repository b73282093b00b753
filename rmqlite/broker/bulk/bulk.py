"""Many messages in one call, each with its own outcome: accepted, duplicate or refused.

A message is a duplicate if its topic has a message with the same id.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

from rmqlite.broker.admission import TimerRules
from rmqlite.broker.bulk.jobs import BulkJobs
from rmqlite.broker.bulk.rows import QueueOf, Row, Sender, Waits, check_call, records_of, rows_of
from rmqlite.broker.finding.sent_before import SentBefore
from rmqlite.broker.room import Room
from rmqlite.broker.sending import is_large
from rmqlite.broker.steps import Steps
from rmqlite.broker.tables.topics import TopicTable
from rmqlite.config import BrokerConfig
from rmqlite.names import BULK_JOBS_TOPIC
from rmqlite.records.record import NewRecord
from rmqlite.requests.bulk import BulkAnswer, BulkJob, BulkRequest, RefusedAt
from rmqlite.store.message_store import MessageStore

HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class BulkCall:
    """The result of a call once its records are appended; job: its job's new state."""

    records: list[NewRecord]
    answer: BulkAnswer
    job: BulkJob | None


class Bulk:
    """Decides what a call stores; the broker appends between begin() and end()."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        room: Room,
        timers: TimerRules,
    ) -> None:
        self.jobs = BulkJobs(config, store)
        self._config = config
        self._timers = timers
        self._store = store
        self._topics = topics
        self._room = room

    def begin(
        self, request: BulkRequest, queue_of: QueueOf, sender: Sender, now_ms: int
    ) -> Steps[BulkCall]:
        """The records to append; a large call takes three steps.

        now_ms: not later than the store timestamp of the records, so that none is due early.
        Raises InvalidValue, MessageTooLarge, StoreUnavailable.
        """
        check_call(request, self._config)
        since_ms = now_ms - self._config.bulk_dedup_hours * HOUR_MS
        while True:
            table = self._store.levels.current
            waits = Waits(table, request.match, self._timers, now_ms)
            rows, refused = rows_of(request, waits, queue_of, self._room)
            made, too_long = records_of(rows, sender)
            if is_large(len(rows)):
                yield
            # Only after the refusals: a refused message makes no later one a duplicate.
            fitting = [row for row in rows if row.position in made] if too_long else rows
            names = [(row.topic, row.message_id) for row in fitting]
            before = SentBefore(self._store, names, since_ms)
            sent, end = before.positions(), self._store.end
            if is_large(len(rows)):
                yield
            if self._store.end != end:
                # Other calls have appended meanwhile.
                sent |= before.positions(end)
            if self._store.levels.current is table:
                break
        refused |= too_long
        fresh, duplicates = without_duplicates(fitting, sent)
        records = [made[row.position] for row in fresh]
        at = tuple([RefusedAt(position, refused[position]) for position in sorted(refused)])
        answer = BulkAnswer(len(records), tuple(duplicates), at)
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

    def end(self, call: BulkCall) -> None:
        """Note that the call's records are appended."""
        if call.job is not None:
            self.jobs.keep(call.job)


def without_duplicates(rows: Sequence[Row], sent: Set[int]) -> tuple[list[Row], list[int]]:
    """The rows without duplicates, and the positions of the duplicates.

    sent: indices of the rows that were sent in earlier calls.
    """
    fresh: list[Row] = []
    duplicates: list[int] = []
    seen: set[tuple[str, str]] = set()
    for at, row in enumerate(rows):
        name = (row.topic, row.message_id)
        if name in seen or at in sent:
            duplicates.append(row.position)
        else:
            seen.add(name)
            fresh.append(row)
    return fresh, duplicates
