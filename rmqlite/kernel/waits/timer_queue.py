"""The wait queue of the timers, each of which has a due time of its own.

timer_keys.py orders them; this module reads the queue entries behind the keys.  The due time of a
key must be that of the entry: a damaged table could deliver early.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import islice, takewhile, zip_longest
from operator import itemgetter

from rmqlite.kernel.records.queue_entry import ENTRY, Entry
from rmqlite.kernel.steps import Steps
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.timers.index import OFFSETS, TimerIndex, due_of, key_of
from rmqlite.kernel.waits.sorted_keys import END
from rmqlite.kernel.waits.timer_keys import TimerKeys
from rmqlite.kernel.waits.wait_queue import READ_ENTRIES, PendingPlace, WaitQueue


class TimerQueue(WaitQueue):
    """All timers of a store."""

    def __init__(
        self,
        number: int,
        queue: ConsumeQueue,
        completed: CompletedOffsets,
        index: TimerIndex,
        log_end: Callable[[], int],
    ) -> None:
        """log_end: the log's end now."""
        super().__init__(number, queue, completed)
        self.completed.add(0, queue.min_offset)
        self.keys = TimerKeys(queue, completed, index, log_end)

    def notice(self, queue_offset: int, due_ms: int) -> None:
        self.keys.unindexed.notice(queue_offset, due_ms)

    def advance(self, due_ms: Sequence[int] = (), queue_offsets: Sequence[int] = ()) -> None:
        self.keys.end(due_ms, queue_offsets)

    def skip_removed(self) -> None:
        if self.completed.below < self.queue.min_offset:
            self.completed.add(0, self.queue.min_offset)
            self.keys.sweep()

    def next_due_ms(self) -> int | None:
        least = self.keys.least
        return due_of(max(0, least)) if least < END else None

    def due(self, now_ms: int) -> Iterator[PendingPlace]:
        until = self.keys.until(key_of(now_ms + 1, 0))
        return self._places(takewhile(until.__gt__, merge(*self.keys.near(until))))

    def first_due(self, now_ms: int, count_max: int) -> Sequence[int]:
        until = self.keys.until(key_of(now_ms + 1, 0))
        near = sorted(self.keys.near(until), key=itemgetter(0))
        if not near:
            return ()
        keys, limit = near[0], min([until, *[other[0] for other in near[1:2]]])
        count = bisect_left(keys, limit, hi=min(count_max, len(keys)))
        if count == count_max or limit == until:
            keys = keys[:count]
        else:
            keys = list(islice(takewhile(until.__gt__, merge(*near)), count_max))
        first = keys[0] & OFFSETS
        row = range(first, first + len(keys))
        # One due time, which is quick to see; or several, and still neighbours in the queue.
        if keys[-1] - keys[0] < len(keys) or [key & OFFSETS for key in keys] == list(row):
            return range(first, self.completed.open_until(first, row.stop))
        return [key & OFFSETS for key in keys if self.is_open(key & OFFSETS)]

    def places_behind(
        self, due_ms: int, wait_queue: int, queue_offset: int
    ) -> list[Iterator[PendingPlace]]:
        # No wait queue has a smaller id: in any other one, a place due then is behind all of these.
        behind = key_of(due_ms, queue_offset if wait_queue == self.id else OFFSETS)
        return [self._places(self.keys.behind(behind))]

    def timeline(self, bounds_ms: Sequence[int]) -> Steps[tuple[int, ...]]:
        counts = yield from self.keys.counts(bounds_ms)
        # Without a walk over all that are due later.
        return *counts, max(0, self.pending - sum(counts))

    def _places(self, keys: Iterator[int]) -> Iterator[PendingPlace]:
        """The places of keys that are open; neighbours in the queue are read at once."""
        while several := list(islice(keys, READ_ENTRIES)):
            waiting = [key for key in several if self.is_open(key & OFFSETS)]
            data = self.queue.entries_at([key & OFFSETS for key in waiting])
            for key, entry in zip_longest(waiting, map(Entry._make, ENTRY.iter_unpack(data))):
                if entry is None or entry.tags_code != due_of(key):
                    self.keys.lose(f"the queue has another due time at {key & OFFSETS}")
                    return
                yield PendingPlace(entry.tags_code, self.id, key & OFFSETS, entry)
