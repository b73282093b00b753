"""The wait queue of the timers, each of which has a due time of its own.

Their order is that of timer_keys.py; here are the places behind the keys.  A due time is believed
only if the queue entry says the same: a damaged table could deliver early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice, takewhile
from typing import Final

from rmqlite.broker.steps import Steps
from rmqlite.broker.waits.sorted_keys import END
from rmqlite.broker.waits.timer_keys import TimerKeys
from rmqlite.broker.waits.wait_queue import READ_ENTRIES, PendingPlace, WaitQueue
from rmqlite.records.queue_entry import Entry
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.progress import CompletedOffsets
from rmqlite.store.timers.index import OFFSETS, TimerIndex, due_of, key_of

FRONT_LEAST: Final = 16
"""Fewer neighbours are no front if others are due, too: all of them together cost less."""


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
        self.keys.notice(queue_offset, due_ms)

    def advance(self, completed: Iterable[tuple[int, int]] = ()) -> None:
        self.keys.end(completed)

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

    def front(self, now_ms: int, count_max: int) -> tuple[int, int] | None:
        until = self.keys.until(key_of(now_ms + 1, 0))
        heads = sorted(self.keys.near(until), key=lambda keys: keys[0])
        if not heads:
            return None
        keys, other = heads[0], heads[1][0] if len(heads) > 1 else END
        limit = min(until, other)
        first = end = keys[0] & OFFSETS
        for key in islice(keys, count_max):
            if key >= limit or key & OFFSETS != end:
                break
            end += 1
        count = end - first
        following = min(other, keys[count]) if count < len(keys) else other
        if count < min(FRONT_LEAST, count_max) and following < until:
            return None
        return first, self.completed.open_until(first, end)

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
            for key, entry in zip(waiting, self._entries(waiting), strict=True):
                if entry is None or entry.tags_code != due_of(key):
                    self.keys.lose(f"the queue has another due time at {key & OFFSETS}")
                    return
                yield PendingPlace(entry.tags_code, self.id, key & OFFSETS, entry)

    def _entries(self, keys: Sequence[int]) -> list[Entry | None]:
        """The entries behind some keys; None for one that the queue does not have."""
        found: list[Entry | None] = []
        start = 0
        for end in range(1, len(keys) + 1):
            if end == len(keys) or keys[end] & OFFSETS != (keys[end - 1] & OFFSETS) + 1:
                entries = self.queue.read(keys[start] & OFFSETS, end - start)
                found += [*entries, *[None] * (end - start - len(entries))]
                start = end
        return found
