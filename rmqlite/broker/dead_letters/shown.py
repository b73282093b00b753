"""Which dead letters are shown: those that were not purged; and open: those not redriven either."""

from __future__ import annotations

from rmqlite.broker.redrive.redriven import Redriven
from rmqlite.broker.tables.purge_markers import PurgeMarkers
from rmqlite.names import dlq_topic, group_of
from rmqlite.records.record import Head
from rmqlite.store.dispatch import QueueKey
from rmqlite.store.progress import CompletedOffsets


class Shown:
    """Looks at both sets of a queue; the caller must not change them."""

    def __init__(self, markers: PurgeMarkers, redriven: Redriven) -> None:
        self.hidden = markers.hidden
        self.begin = markers.begin
        self._markers = markers
        self._redriven = redriven
        self._closed: dict[QueueKey, CompletedOffsets] = {}
        self._closed_at = self.state

    @property
    def state(self) -> tuple[int, int]:
        """Changes with every dead letter that is purged, restored or redriven."""
        return self._markers.version, self._redriven.version

    def closed(self, group: str, queue_id: int) -> CompletedOffsets:
        """The dead letters of a queue that were purged or redriven."""
        if self._closed_at != self.state:
            self._closed_at = self.state
            self._closed.clear()
        key = dlq_topic(group), queue_id
        closed = self._closed.get(key)
        if closed is None:
            hidden = self.hidden(group, queue_id)
            closed = self._closed[key] = self._redriven.of(*key).union(hidden)
        return closed

    def is_shown(self, head: Head, *, is_open: bool = False) -> bool:
        """Is a dead letter shown, and, with is_open, also not redriven?"""
        without = (self.closed if is_open else self.hidden)(
            group_of(head.topic) or "", head.queue_id
        )
        return without.next_open(head.queue_offset) == head.queue_offset


def count_shown(without: CompletedOffsets, begin: int, end: int) -> int:
    """How many dead letters begin <= queue offset < end are not among these."""
    return max(0, end - begin) - without.count_between(begin, end)
