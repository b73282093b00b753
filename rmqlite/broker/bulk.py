"""Many messages in one call, each with its own outcome: accepted, duplicate or refused.

The message id is what tells that a message was sent before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rmqlite.broker.bulk_jobs import BulkJobs
from rmqlite.broker.bulk_rows import Levels, QueueOf, Row, Sender, check_call, records_of, rows_of
from rmqlite.broker.room import Room
from rmqlite.broker.sent_before import sent_before
from rmqlite.broker.topics import TopicTable
from rmqlite.bulk_requests import BulkAnswer, BulkJob, BulkRequest, RefusedAt
from rmqlite.config import BrokerConfig
from rmqlite.names import BULK_JOBS_TOPIC
from rmqlite.store.message_store import MessageStore
from rmqlite.store.record import NewRecord

HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class BulkCall:
    """What a call comes to as soon as its records are appended; job: its job then."""

    records: list[NewRecord]
    answer: BulkAnswer
    job: BulkJob | None


class Bulk:
    """Decides; the broker appends between begin() and end()."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, topics: TopicTable, room: Room
    ) -> None:
        self.jobs = BulkJobs(config, store)
        self._config = config
        self._store = store
        self._topics = topics
        self._room = room

    def begin(
        self, request: BulkRequest, queue_of: QueueOf, sender: Sender, now_ms: int
    ) -> BulkCall:
        """What to append.  Raises InvalidValue, MessageTooLarge, StoreUnavailable.

        now_ms: not after the time that the records will get, so that none is due early.
        """
        check_call(request, self._config)
        levels = Levels(self._store.levels.current, request.match, now_ms)
        rows, refused = rows_of(request, levels, queue_of, self._room)
        since_ms = now_ms - self._config.bulk_dedup_hours * HOUR_MS
        made, too_long = records_of(rows, sender)
        refused |= too_long
        # Now only: what is refused does not make a duplicate of what follows it.
        fitting = [row for row in rows if row.position in made] if too_long else rows
        fresh, duplicates = without_duplicates(self._store, fitting, since_ms)
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
        # Before its messages: then a crash that tears the append leaves it, and it knows.
        return BulkCall([self.jobs.record(job, len(records)), *records], answer, job)

    def end(self, call: BulkCall) -> None:
        """Its records are appended."""
        if call.job is not None:
            self.jobs.keep(call.job)


def without_duplicates(
    store: MessageStore, rows: Sequence[Row], since_ms: int
) -> tuple[list[Row], list[int]]:
    """What was not sent before, and the positions of what was.  Raises StoreUnavailable."""
    names = [(row.topic, row.message_id) for row in rows]
    sent = sent_before(store, names, since_ms)
    fresh: list[Row] = []
    duplicates: list[int] = []
    seen: set[tuple[str, str]] = set()
    for at, (row, name) in enumerate(zip(rows, names, strict=True)):
        if name in seen or at in sent:
            duplicates.append(row.position)
        else:
            seen.add(name)
            fresh.append(row)
    return fresh, duplicates
