"""Append records, and tell whoever waits for them: readers of a queue, or the schedule.

Every record that a call has made goes this way; the schedule appends its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqlite.broker.counts import Counts
from rmqlite.broker.listener import Listener
from rmqlite.broker.schedule.schedule import Schedule
from rmqlite.clock import elapsed_s
from rmqlite.names import SCHEDULE_TOPIC
from rmqlite.store.commit_log import Written
from rmqlite.store.message_store import MessageStore
from rmqlite.store.record import NewRecord


class Appending:
    """The one way in for the records of calls and jobs."""

    def __init__(
        self, store: MessageStore, schedule: Schedule, counts: Counts, listener: Listener
    ) -> None:
        self._store = store
        self._schedule = schedule
        self._counts = counts
        self._listener = listener

    def append(self, records: Sequence[NewRecord]) -> list[Written]:
        """All or none.  Raises what MessageStore.append() raises."""
        began_s = elapsed_s()
        written = self._store.append(records)
        self._counts.appends.add(elapsed_s() - began_s)
        counts: dict[tuple[str, int], int] = {}
        first: dict[tuple[str, int], int] = {}
        for record, at in zip(records, written, strict=True):
            key = (record.topic, record.queue_id)
            if key not in counts:
                first[key], counts[key] = at.queue_offset, 0
            counts[key] += 1
        for (topic, queue_id), count in counts.items():
            if topic != SCHEDULE_TOPIC:
                self._listener.appended(topic, queue_id)
                continue
            # All of an append have one time, and so all of a level are due together.
            due_ms = self._store.levels.deliver_at_ms(queue_id + 1, written[0].store_timestamp_ms)
            if self._schedule.notice(queue_id + 1, first[topic, queue_id], due_ms, count):
                self._listener.due_sooner()
        return written
