"""Appends records, and announces them to the readers of their queue or to the schedule.

Every record of a broker is appended here: those of calls, jobs, deliveries and changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rmqlite.kernel.counts import Counts, Durations
from rmqlite.kernel.records.packed import Packed, packed_records
from rmqlite.kernel.records.record import NewRecord, Place, Written
from rmqlite.kernel.records.wait_queues import QueueKey, wait_queue_of
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.waits.wait_queues import WaitQueues
from rmqlite.kernel.words.clock import elapsed_s


class Listener(Protocol):
    """Receives the changes of each call, so that waiting calls are woken."""

    def appended(self, topic: str, queue_id: int) -> None:
        """A queue has a new message; consumers may read it when the log is durable to its end."""
        ...

    def due_sooner(self, wait_queue: int) -> None:
        """The earliest message of a wait queue is due earlier than it was, or is its first."""
        ...


class Appending:
    """The one way in, and the one place that announces what was appended."""

    def __init__(
        self, store: MessageStore, wait_queues: WaitQueues, counts: Counts, listener: Listener
    ) -> None:
        self._store = store
        self._wait_queues = wait_queues
        self._counts = counts
        self._listener = listener

    def append(
        self, records: Sequence[NewRecord], timed_in: Durations | None = None
    ) -> list[Written]:
        """Append all records or none.  Raises what MessageStore.append() raises.

        timed_in: the durations to which this append is added; None: those of calls and jobs.
        """
        packed = packed_records(records)
        self.append_packed([packed], timed_in)
        return packed.written()

    def append_packed(self, packed: Sequence[Packed], timed_in: Durations | None = None) -> None:
        """append() for packed records; see MessageStore.append_packed()."""
        began_s = elapsed_s()
        self._store.append_packed(packed)
        durations = self._counts.appends if timed_in is None else timed_in
        durations.add(elapsed_s() - began_s)
        self._counts.stored += sum(map(len, packed))
        first: dict[QueueKey, Place] = {}
        for each in packed:
            for key, place in each.first_places().items():
                first.setdefault(key, place)
        self._announce(first)

    def _announce(self, first: Mapping[QueueKey, Place]) -> None:
        """Say what was appended; first: the place of the first record in each queue."""
        for key, (queue_offset, due_ms) in first.items():
            if due_ms:
                # Records of one append have one store time, so those of a level are due together.
                wait_queue = wait_queue_of(*key)
                if self._wait_queues.notice(wait_queue, queue_offset, due_ms):
                    self._listener.due_sooner(wait_queue)
            else:
                self._listener.appended(*key)
