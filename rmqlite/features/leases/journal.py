"""Leases in the log, so that a SIGKILL ends none of them and brings no acknowledged message back.

Each receive, acknowledgement and return is a record of LEASES_TOPIC, whose body is a LeaseEvent.
The table leases.json has what is done in each queue, and the record from which on the events are
read at the next start: that of the oldest lease that is still open.  Events before the end of the
table's records say only what is leased; what became of it is in the table.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from typing import Final

from rmqlite.features.leases.leased_queue import Lease, LeasedQueue, Places
from rmqlite.features.leases.table_shapes import LEASES_TABLE, LeaseEvent, LeaseKind, LeasesTable
from rmqlite.kernel.config.table_shapes import validated
from rmqlite.kernel.parts import BrokerParts
from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.records.record import NewRecord
from rmqlite.kernel.store.consume_queue import runs_of
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.tables import Tree
from rmqlite.kernel.words.json_tree import WrongValue
from rmqlite.kernel.words.names import LEASES_TOPIC

FAR_EVENTS: Final = 50_000
"""An open lease with so many younger events is written again, so that a start reads few of them."""
_ENTRIES_AT_ONCE: Final = 64

log = logging.getLogger(__name__)


class LeaseJournal:
    """Writes and reads the events of all leases."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._is_changed = False
        self._table_end = 0
        self._has_topic = False

    @property
    def end(self) -> int:
        """The queue offset of the next event."""
        queue = self._parts.store.queue(LEASES_TOPIC, 0)
        return queue.max_offset if queue else 0

    def write(self, event: NewRecord, before: Iterable[NewRecord] = ()) -> None:
        """Append an event, behind records that must not be lost if it is written.

        An event alone is not announced: nobody waits for it, and a receive needs no sync of its
        own.  Raises StoreUnavailable: then nothing is written.
        """
        if not self._has_topic:
            self._parts.topics.ensure(LEASES_TOPIC, 1)
            self._has_topic = True
        if records := [*before]:
            self._parts.appending.append([*records, event])
        else:
            self._parts.store.append([event])
        self._is_changed = True

    def leased(self, lease: Lease) -> NewRecord:
        groups = [
            queue.message_group(offset) for queue, offsets in lease.held() for offset in offsets
        ]
        more = {
            "lease": lease.id,
            "key": lease.key.hex(),
            "topic": lease.topic,
            "client": lease.client_id,
            "until": lease.until_ms,
            "renewed": lease.is_renewed and not lease.is_doubtful,
            "attempt": lease.attempt_id,
            "counts": lease.counts,
        }
        if any(groups):
            more["messageGroups"] = groups
        return self._event("leased", lease.group, lease.held(), **more)

    def done(self, group: str, places: Places) -> NewRecord:
        return self._event("done", group, places)

    def visible(self, lease: Lease, places: Places, *, counts: bool) -> NewRecord:
        return self._event("visible", lease.group, places, topic=lease.topic, counts=counts)

    def begins(self, group: str, places: Places) -> NewRecord:
        """All before an offset of each queue is done, and nothing behind it was seen."""
        return self._event("begins", group, places)

    def skips(self, group: str, places: Places) -> NewRecord:
        """All before an offset of each queue is done."""
        return self._event("skips", group, places)

    def _event(self, kind: LeaseKind, group: str, places: Places, **more: object) -> NewRecord:
        tree = {
            "kind": kind,
            "group": group,
            "places": [
                [queue.queue.topic, queue.queue.queue_id, list(runs_of(sorted(offsets)))]
                for queue, offsets in places
            ],
            **more,
        }
        body = json.dumps(tree, separators=(",", ":")).encode()
        host = self._parts.host
        now_ms = self._parts.clock.now_ms()
        return fresh(Draft(LEASES_TOPIC, 0, b"", body, now_ms, host), host)

    # ---- the table

    def tree(self, queues: Iterable[LeasedQueue], oldest: Lease | None) -> dict[str, Tree]:
        """The table to persist, or {} if the file on disk is current.

        A queue of which nothing is done out of order has its committed offset, and no row.
        """
        if not self._is_changed and self._parts.store.persisted_end >= self._table_end:
            return {}
        self._is_changed = False
        self._table_end = self._parts.store.end
        end = self.end
        rows = [
            {
                "group": each.group,
                "topic": each.queue.topic,
                "queueId": each.queue.queue_id,
                "done": each.done.to_json(),
                "failed": dict(each.failed_in_place),
            }
            for each in queues
            if each.done.count_above or each.failed_in_place
        ]
        begin = oldest.journal_offset if oldest else end
        return {LEASES_TABLE: {"queueOffset": begin, "end": end, "queues": rows}}

    def load(self) -> LeasesTable:
        """Raises StoreDamaged for a table that cannot be read."""
        return self._parts.store.load_table(LEASES_TABLE, LeasesTable) or LeasesTable()

    def events(self, table: LeasesTable) -> Iterator[tuple[int, LeaseEvent]]:
        """The events from the oldest open lease on, each with its queue offset."""
        queue = self._parts.store.queue(LEASES_TOPIC, 0)
        if queue is None:
            return
        begin = max(table.queue_offset, queue.min_offset)
        if begin > queue.max_offset:
            # The table belongs to another queue.
            begin = queue.min_offset
        for start in range(begin, queue.max_offset, _ENTRIES_AT_ONCE):
            records = self._parts.store.read_records(queue.read(start, _ENTRIES_AT_ONCE))
            for offset, record in enumerate(records, start):
                if record is not None and (event := _read(record.body, offset)) is not None:
                    yield offset, event


def _read(body: bytes, offset: int) -> LeaseEvent | None:
    """None if it is no event: RocketMQ closes the topic to nobody."""
    try:
        return validated(LeaseEvent, tables.decode(body))
    except (tables.NoTable, WrongValue) as error:
        log.warning("skip a record of no lease queue_offset=%d error=%s", offset, error)
        return None


def lease_of(event: LeaseEvent, at: int) -> Lease:
    """The lease that an event begins, or writes again."""
    lease = Lease(
        event.lease,
        bytes.fromhex(event.key),
        group=event.group,
        topic=event.topic,
        client_id=event.client,
        until_ms=event.until,
        is_renewed=event.renewed,
        attempt_id=event.attempt,
        counts=event.counts,
    )
    lease.journal_offset = at
    return lease


def done_in(tree: object) -> CompletedOffsets:
    """What a row of the table says is done."""
    return CompletedOffsets.from_json(tree)
