"""The wait queue of the timers, each of which has a due time of its own.

Their keys are in due order: near in memory, far in a table of SQLite, that of
kernel/store/timer_index.py.  Near are the entries that it does not have yet (unindexed.py), and
the `window`: its next rows.  Delivery reads only near.  The truth about a timer are its queue entry
and the bitmap of completed offsets; so whoever reads keys leaves out the completed ones, and their
rows are deleted later.  The due time of a key must be that of the entry: a damaged table could
deliver early.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice, takewhile, zip_longest
from operator import itemgetter
from typing import Final, TypeVar

from rmqlite.kernel import Steps
from rmqlite.kernel.records.queue_entry import ENTRY, Entry
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.timer_index import (
    OFFSETS,
    IndexDamaged,
    IndexMark,
    IndexWrite,
    RowComparison,
    TimerIndex,
    check_mark,
    due_of,
    key_of,
)
from rmqlite.kernel.waits.unindexed import END, SortedKeys, Unindexed
from rmqlite.kernel.waits.wait_queue import READ_ENTRIES, PendingPlace, WaitQueue
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import StoreUnavailable

SLICE_KEYS: Final = 1_024
"""So many rows are read at once, in 1 ms."""
PAGE_KEYS: Final = 128
"""So many are read first for a page or a change: most want no more."""
SLICES_A_TURN: Final = 4
COUNTED_ROWS: Final = 16_384
COUNTED_KEYS: Final = 8_192
PROGRESS_S: Final = 10.0
"""How often the progress of a rebuild is logged."""
log = logging.getLogger(__name__)
_T = TypeVar("_T")


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


class TimerKeys:
    """Used by the broker's thread; only an IndexWrite runs in another one."""

    def __init__(
        self,
        queue: ConsumeQueue,
        completed: CompletedOffsets,
        index: TimerIndex,
        log_end: Callable[[], int],
    ) -> None:
        """log_end: the log's end now."""
        self._queue = queue
        self._completed = completed
        self._index = index
        self._log_end = log_end
        self._is_writing = False
        self._lost = ""
        """Why the table must be made again, as soon as no write runs."""
        try:
            mark = self._index.open()
            if mark is not None:
                check_mark(mark, queue)
        except IndexDamaged as error:
            self._remove(str(error))
            mark = None
        self._begin(mark)

    def _remove(self, reason: str) -> None:
        log.warning("the index of the timers is made again reason=%s", reason)
        self._index.remove()

    def _begin(self, mark: IndexMark | None) -> None:
        """Begin with the table as it is; None: with an empty one."""
        upto = mark.upto if mark else max(self._completed.below, self._queue.min_offset)
        self.unindexed = Unindexed(self._queue, self._completed, upto)
        """The timers that are not in the table."""
        self._window = SortedKeys()
        self._read_to = -END
        """The rows up to this key are in the window or completed; END: all are."""
        self._comparison: RowComparison | None = None
        self._is_urgent = False
        if mark is not None:
            self.begin_comparison(is_urgent=True)
        self._logged_s = elapsed_s()
        # Whoever delivers meets the error again, and rests.
        with suppress(StoreUnavailable):
            self.catch_up()
            self.until(1 - END)

    # ---- changes

    def end(self, due_ms: Sequence[int], queue_offsets: Sequence[int]) -> None:
        """Note that messages were completed: due time and queue offset of each."""
        self._window.drop_front(self._completed)
        self.unindexed.end(due_ms, queue_offsets, self._frontier)

    def sweep(self) -> None:
        """Look at all rows once more, because messages were completed without a call of end()."""
        self.end((), ())
        self.begin_comparison(is_urgent=True)

    # ---- in due order

    @property
    def _frontier(self) -> int:
        """All rows with keys below it are of completed messages."""
        return min(self._window.least, self._read_to + 1)

    @property
    def least(self) -> int:
        """The first key, or that from which on rows have to be read; END or more: none."""
        new = self.unindexed
        return min(self._window.least, self._read_to + 1, new.writing.least, new.fresh.least)

    def until(self, key: int) -> int:
        """Read the rows below a key, a few slices at most; near() has all below the answer."""
        for _ in range(SLICES_A_TURN):
            if self._read_to >= key or len(self._window) >= SLICE_KEYS:
                break
            keys = self._slice(self._read_to)
            self._read_to = keys[-1] if len(keys) == SLICE_KEYS else END
            self._window.add(keys)
            self._window.drop_front(self._completed)
        return min(key, self._read_to + 1)

    def near(self, until: int) -> list[list[int]]:
        """Sorted lists of keys that begin below `until`; the caller must not change them."""
        parts = (self._window, self.unindexed.writing, self.unindexed.fresh)
        return [
            keys for part in parts if part.least < until for keys in part.lists() if keys[0] < until
        ]

    def behind(self, key: int) -> Iterator[int]:
        """All keys behind one.  Raises StoreUnavailable."""
        parts = (self.unindexed.writing, self.unindexed.fresh)
        return merge(self._rows(key), *[keys for part in parts for keys in part.behind(key)])

    def counts(self, bounds_ms: Sequence[int]) -> Steps[tuple[int, ...]]:
        """How many messages are due before the first bound and between each two, in steps."""
        sums = [0] * (len(bounds_ms) + 1)
        behind = self._frontier - 1
        parts = (self.unindexed.writing, self.unindexed.fresh)
        near = [key for part in parts for keys in part.lists() for key in keys]
        # They are counted with the rows.
        gone = [key for key in self.unindexed.rows_gone if key > behind]
        for keys, step in ((near, 1), (gone, -1)):
            for at in range(0, len(keys), COUNTED_KEYS):
                for key in keys[at : at + COUNTED_KEYS]:
                    if step < 0 or self._is_open(key):
                        sums[bisect_right(bounds_ms, due_of(key))] += step
                yield
        for at, until_ms in enumerate(bounds_ms):
            last: int | None = behind
            while last is not None:
                behind = last
                count, last = self._count(behind, until_ms)
                sums[at] += count
                yield
            behind = max(behind, key_of(until_ms, 0) - 1)
        return tuple(sums[:-1])

    def _is_open(self, key: int) -> bool:
        return self._completed.is_open(key & OFFSETS)

    # ---- far

    @property
    def is_comparing(self) -> bool:
        return self._comparison is not None

    def begin_comparison(self, *, is_urgent: bool = False) -> None:
        """Compare the rows that are there now with the queue, from the first one on."""
        indexed = self.unindexed.indexed
        self._comparison = RowComparison(self._index, self._queue, self._completed, indexed)
        self._is_urgent = is_urgent

    def compare(self) -> bool:
        """A step of the comparison; True if it is urgent and there is more.

        If anything differs, the table is made again.  The comparison also finds the rows of
        messages that were completed without a call of end(), for example before a crash.  Raises
        StoreUnavailable.
        """
        comparison = self._comparison
        if comparison is None or self._lost or self.unindexed.rebuilding:
            return False
        self.unindexed.end_late(self._far(lambda: comparison.step(self._frontier), ()))
        if comparison.is_done:
            self._comparison = None
        return self._is_urgent and self._comparison is comparison

    def _slice(self, behind: int, count: int = SLICE_KEYS) -> list[int]:
        """The keys of the next rows.  Raises StoreUnavailable."""
        read = self._index.slice
        return self._far(lambda: read(behind, count, self.unindexed.indexed), [])

    def _count(self, behind: int, until_ms: int) -> tuple[int, int | None]:
        """See TimerIndex.count()."""
        count = self._index.count
        none: tuple[int, int | None] = 0, None
        return self._far(
            lambda: count(behind, until_ms, COUNTED_ROWS, self.unindexed.indexed), none
        )

    def _far(self, read: Callable[[], _T], nothing: _T) -> _T:
        """What is read of the table; nothing, if it is lost.  Raises StoreUnavailable."""
        if self._lost:
            return nothing
        try:
            return read()
        except IndexDamaged as error:
            self.lose(str(error))
            return nothing

    def _rows(self, behind: int) -> Iterator[int]:
        """The keys of all rows behind one.  Raises StoreUnavailable."""
        behind, count = max(behind, self._frontier - 1), PAGE_KEYS
        while keys := self._slice(behind, count):
            yield from keys
            behind, count = keys[-1], SLICE_KEYS

    def lose(self, reason: str) -> None:
        """The table is wrong: make it again, at once or when the write that runs has ended."""
        self._lost = reason
        self._window, self._read_to = SortedKeys(), END
        if not self._is_writing:
            # If it cannot be removed, catch_up() tries again.
            with suppress(StoreUnavailable):
                self._remove(reason)
                self._lost = ""
                self._begin(None)

    # ---- what the server does beside the calls

    def begin_write(self) -> IndexWrite:
        """The transaction that brings the table up to date; the last one has ended.

        It may run in another thread, as soon as the log is on disk up to its log_end.  Then call
        end_write().  Raises StoreUnavailable: then nothing has changed.
        """
        passed = min(self._frontier, END)
        write = self.unindexed.begin_write(self._index, passed, self._log_end())
        self._is_writing = True
        return write

    def end_write(self, error: IndexDamaged | None = None) -> None:
        """Note that the write has run; error: what it raised."""
        self._is_writing = False
        if error is not None or self._lost:
            self.lose(self._lost or str(error))
            return
        # The new rows may be due before those in the window.
        self._read_to = min(self._frontier, self.unindexed.writing.least, END + 1) - 1
        self._window = SortedKeys()
        self.unindexed.end_write()

    def catch_up(self) -> bool:
        """A step of the work that a start has left; False if there is none now.

        Raises StoreUnavailable.
        """
        if self._lost:
            self.lose(self._lost)
        elif self.unindexed.note_old():
            self._log_progress()
            return True
        return False

    def _log_progress(self) -> None:
        now_s, progress = elapsed_s(), self.unindexed.rebuilding
        if progress is not None and now_s - self._logged_s >= PROGRESS_S:
            self._logged_s = now_s
            done, total = progress
            log.info("the index of the timers is made percent=%d of=%d", done * 100 // total, total)
