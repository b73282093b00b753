"""One wait queue: lists, counts and completes the messages that wait in it, in due order.

A wait queue is a queue of the store (see records/wait_queues.py) with a short list of runs.  A run
is a part of the queue that is in due order.  The queue of a delay level has a second run only
after the table of levels changed, or after the clock of an older broker stepped.  Delivery takes
the earliest head of all runs, so no message waits behind a later one.  A time is found in a run
by bisection, so memory does not grow with the number of pending messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from rmqlite.kernel import Steps
from rmqlite.kernel.counts import Histogram
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.progress import CompletedOffsets, ScheduleProgress, SortedRun
from rmqlite.kernel.words.errors import StoreUnavailable

LATENESS_MS_MAX: Final = 60_000
"""A longer lateness counts as this, except in max_ms and in the histogram's sum."""
_EXACT_MS_MAX: Final = 1_000
BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""The bounds of the histogram; rounding moves no lateness across a bound."""
SCAN_ENTRIES: Final = 8192
READ_ENTRIES: Final = 128
"""How many entries of a run are read at once."""


class Lateness:
    """How late deliveries were: counts, quantiles, the maximum, by the millisecond.

    From a second on, values are rounded to three digits: after an outage every message has its
    own lateness, and a reader must not wait while they are sorted.
    """

    __slots__ = ("_counts", "_sum_ms", "count", "max_ms")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._sum_ms = 0
        self.count = 0
        self.max_ms = 0

    def add(self, late_ms: int, count: int = 1) -> None:
        """Count deliveries that were this late."""
        self._counts[late_ms if late_ms <= _EXACT_MS_MAX else _rounded_up(late_ms)] += count
        self._sum_ms += late_ms * count
        self.count += count
        if late_ms > self.max_ms:
            self.max_ms = late_ms

    def quantile_ms(self, share: float) -> int:
        """The lateness that this share of deliveries did not exceed; 0 without deliveries."""
        wanted = share * self.count
        passed = 0
        for late_ms in sorted(self._counts):
            passed += self._counts[late_ms]
            if passed >= wanted:
                # It may be rounded up.
                return min(late_ms, self.max_ms)
        return 0

    def histogram(self) -> Histogram:
        """The tally as a histogram with BOUNDS_MS."""
        between = [0] * (len(BOUNDS_MS) + 1)
        for late_ms, count in self._counts.items():
            between[bisect_left(BOUNDS_MS, late_ms)] += count
        bounds_s = [bound_ms / 1000 for bound_ms in BOUNDS_MS]
        return Histogram.of(bounds_s, between, self._sum_ms / 1000)


def _rounded_up(late_ms: int) -> int:
    """Rounded up to three digits; LATENESS_MS_MAX at most."""
    step_ms = 10 if late_ms <= 10_000 else 100
    return min(-(-late_ms // step_ms) * step_ms, LATENESS_MS_MAX)


class PendingPlace(NamedTuple):
    """The place of a pending message; places sort in due order."""

    due_ms: int
    wait_queue: int
    queue_offset: int
    entry: Entry


class WaitQueue(ABC):
    """What is the same for every kind of wait queue, and what each kind does in its way."""

    def __init__(self, number: int, queue: ConsumeQueue, completed: CompletedOffsets) -> None:
        self.id = number
        self.queue = queue
        self.completed = completed
        self.lateness = Lateness()
        self.rests_until_ms = 0
        """When delivery reads the queue again, after its files could not be read."""
        self.failures = 0

    @property
    def pending(self) -> int:
        return self.queue.max_offset - self.completed.below - self.completed.count_above

    def is_open(self, queue_offset: int) -> bool:
        """Does the message there still wait?"""
        return self.completed.is_open(queue_offset)

    def skip_removed(self) -> None:
        """Complete the messages whose entries were removed."""
        if self.completed.below < self.queue.min_offset:
            self.completed.add(0, self.queue.min_offset)
            self.advance()

    @abstractmethod
    def notice(self, queue_offset: int, due_ms: int) -> None:
        """Note the new entries from queue_offset to the queue's end; the first is due at due_ms."""

    @abstractmethod
    def advance(self, due_ms: Sequence[int] = (), queue_offsets: Sequence[int] = ()) -> None:
        """Note that messages were completed: due time and queue offset of each."""

    @abstractmethod
    def next_due_ms(self) -> int | None:
        """When its earliest message is due; None if none waits."""

    @abstractmethod
    def due(self, now_ms: int) -> Iterator[PendingPlace]:
        """The pending messages that are due, in due order.  Raises StoreUnavailable.

        If these are not all, next_due_ms() is not later than now_ms.
        """

    @abstractmethod
    def first_due(self, now_ms: int, count_max: int) -> Sequence[int]:
        """The queue offsets of the first of due(); the last of them may be due later.

        None of them: nothing is due, or due() has to find out.  Raises StoreUnavailable.
        """

    @abstractmethod
    def places_behind(
        self, due_ms: int, wait_queue: int, queue_offset: int
    ) -> list[Iterator[PendingPlace]]:
        """The pending messages behind a place, as iterators in due order."""

    @abstractmethod
    def timeline(self, bounds_ms: Sequence[int]) -> Steps[tuple[int, ...]]:
        """The numbers of messages due before, between and after the bounds, in steps."""


class LevelQueue(WaitQueue):
    """The wait queue of a level: its runs, and the queue offset up to which they are known."""

    def __init__(self, number: int, queue: ConsumeQueue, progress: ScheduleProgress) -> None:
        super().__init__(number, queue, progress.of(number))
        self.runs = runs = progress.runs.setdefault(number, [])
        first = max(self.completed.below, queue.min_offset)
        ends = {run.end for run in runs if first < run.end <= queue.max_offset}
        # Each run begins where the one before ends; a run that is gone is completed.
        runs[:] = [
            SortedRun(begin, end, *queue.tags_codes(begin, 1), *queue.tags_codes(end - 1, 1))
            for begin, end in pairwise(sorted({first, *ends}))
        ]
        self._seen = max(ends, default=first)
        while self._seen < queue.max_offset:
            self._notice_all(queue.tags_codes(self._seen, SCAN_ENTRIES))
        self.completed.add(0, queue.min_offset)
        self.advance()

    def notice(self, queue_offset: int, due_ms: int) -> None:
        if queue_offset < self._seen:
            # This batch made the queue: the scan of the constructor has found its entries already.
            return
        self._notice(queue_offset, due_ms, self.queue.max_offset)

    def _notice(self, queue_offset: int, due_ms: int, end: int) -> None:
        """Add entries that are due at due_ms to the last run, or begin another run with them."""
        self._seen = end
        last = self.runs[-1] if self.runs else None
        if last is not None and last.end == queue_offset and due_ms >= last.last_due_ms:
            last.end = end
            last.last_due_ms = due_ms
        else:
            self.runs.append(SortedRun(queue_offset, end, due_ms, due_ms))

    def next_due_ms(self) -> int | None:
        if len(self.runs) == 1:
            return self.runs[0].head_due_ms
        return min((run.head_due_ms for run in self.runs), default=None)

    def due(self, now_ms: int) -> Iterator[PendingPlace]:
        runs = [self.places(run, run.cursor) for run in self._due_runs(now_ms)]
        places = runs[0] if len(runs) == 1 else merge(*runs)
        return takewhile(lambda place: place.due_ms <= now_ms, places)

    def first_due(self, now_ms: int, count_max: int) -> Sequence[int]:
        runs = self._due_runs(now_ms)
        if len(runs) != 1:
            return ()
        first = runs[0].cursor
        return range(first, self.completed.open_until(first, min(runs[0].end, first + count_max)))

    def _due_runs(self, now_ms: int) -> list[SortedRun]:
        return [run for run in self.runs if run.head_due_ms <= now_ms]

    def places(self, run: SortedRun, queue_offset: int) -> Iterator[PendingPlace]:
        """The pending messages of a run from a queue offset on, in due order."""
        number, completed = self.id, self.completed
        for start in range(queue_offset, run.end, READ_ENTRIES):
            entries = self.queue.read(start, min(READ_ENTRIES, run.end - start))
            for offset in completed.open_between(start, start + len(entries)):
                entry = entries[offset - start]
                yield PendingPlace(entry.tags_code, number, offset, entry)

    def places_behind(
        self, due_ms: int, wait_queue: int, queue_offset: int
    ) -> list[Iterator[PendingPlace]]:
        return [
            self.places(run, self.first_after(run, due_ms, wait_queue, queue_offset))
            for run in self.runs
        ]

    def timeline(self, bounds_ms: Sequence[int]) -> Steps[tuple[int, ...]]:
        sums = [0] * (len(bounds_ms) + 1)
        for run in tuple(self.runs):
            before = 0
            for at, bound_ms in enumerate(bounds_ms):
                # The last place before the bound is in any wait queue, at any queue offset.
                upto = self.pending_before(run, self.first_after(run, bound_ms, 0, -1))
                sums[at] += upto - before
                before = upto
            sums[-1] += self.pending_before(run, run.end) - before
            yield
        return tuple(sums)

    def first_after(self, run: SortedRun, due_ms: int, wait_queue: int, queue_offset: int) -> int:
        """The first queue offset of a run that is behind a place in due order; run.end if none."""

        def is_behind(at: int) -> bool:
            entry = self.queue.entry(at)
            return not entry or (entry.tags_code, self.id, at) > (due_ms, wait_queue, queue_offset)

        return bisect_left(range(run.end), True, run.cursor, key=is_behind)

    def pending_before(self, run: SortedRun, queue_offset: int) -> int:
        """How many messages wait in a run before a queue offset."""
        completed = self.completed.count_between(run.cursor, queue_offset)
        return queue_offset - run.cursor - completed

    def advance(self, _due_ms: Sequence[int] = (), _queue_offsets: Sequence[int] = ()) -> None:
        """Every run moves on to its first open queue offset; a run that has none is removed."""
        for run in list(self.runs):
            cursor = self.completed.next_open(run.cursor)
            if cursor == run.cursor:
                continue
            run.cursor = cursor
            try:
                entry = self.queue.entry(cursor) if cursor < run.end else None
            except StoreUnavailable:
                # Its due time does not change, so that delivery meets the error and rests.
                continue
            if entry is None:
                self.runs.remove(run)
            else:
                run.head_due_ms = entry.tags_code

    def _notice_all(self, due_ms: list[int]) -> None:
        """_notice() for the next entries, which have these due times; sorted ones at once."""
        first = self._seen
        # Together they cost a sixth: 0.2 s for a million, which only a lost table makes it read.
        if due_ms == sorted(due_ms):
            self._notice(first, due_ms[0], first + len(due_ms))
            self.runs[-1].last_due_ms = due_ms[-1]
        else:
            for at, each_ms in enumerate(due_ms, first):
                self._notice(at, each_ms, at + 1)
