"""Compares the table of the timers with their queue, which is the truth, row by row.

SQLite has no checksums: a flipped bit makes another due time, and a row that is not there is not
missed.  So the rows are read once in due order, and each one's queue entry must say the same; the
queue offsets that were seen are noted, and at the end none may be missing that still waits.  A
comparison takes the offsets that had rows when it began.  It is done in steps: a timer that waits
all the time has its row all the time, whatever is written meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from rmqlite.records.queue_entry import ENTRY, runs_of
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.progress import CompletedOffsets
from rmqlite.store.timers.index import (
    OFFSET_BITS,
    OFFSETS,
    IndexDamaged,
    Indexed,
    Mark,
    TimerIndex,
)

ROWS_A_STEP: Final = 512
"""A step takes 2 to 3 ms if they lie anywhere in the queue."""
RUNS_A_STEP: Final = 4_096


class RowComparison:
    """One comparison; call step() until it is done."""

    def __init__(
        self,
        index: TimerIndex,
        queue: ConsumeQueue,
        completed: CompletedOffsets,
        indexed: Indexed,
    ) -> None:
        self._index = index
        self._queue = queue
        self._completed = completed
        self._indexed = indexed
        self._seen = CompletedOffsets([(0, completed.below)])
        self._read_to: int | None = -1
        """The key of the last row that was read; None: all were."""
        self._looked_to = 0
        self.is_done = False

    def step(self, passed: int = 0) -> Sequence[int]:
        """Compare some rows; returns the keys of those whose timers are completed.

        passed: rows with keys below it need not be read.  Raises IndexDamaged, which says what
        differs, and StoreUnavailable.
        """
        if self._read_to is None:
            self._look_for_missing()
            return ()
        begin = max(self._read_to, passed - 1)
        keys = self._index.slice(begin, ROWS_A_STEP, self._indexed)
        gone = self._compare(keys)
        self._read_to = keys[-1] if len(keys) == ROWS_A_STEP else None
        return gone

    def _compare(self, keys: Sequence[int]) -> list[int]:
        is_open, first = self._completed.is_open, self._queue.min_offset
        # In the order of the queue: neighbours are read at once.
        open_ones = [key for key in keys if is_open(key & OFFSETS) and key & OFFSETS >= first]
        open_ones.sort(key=OFFSETS.__and__)
        offsets = [key & OFFSETS for key in open_ones]
        due_ms = [key >> OFFSET_BITS for key in open_ones]
        entries = ENTRY.iter_unpack(self._queue.entries_at(offsets))
        found = [due_ms for _, _, due_ms in entries]
        if found != due_ms:
            for queue_offset, row, entry in zip_longest(offsets, due_ms, found):
                if row != entry:
                    text = f"the row of queue offset {queue_offset} says {row}, its entry {entry}"
                    raise IndexDamaged(text)
        for start, end in runs_of(offsets):
            self._seen.add(start, end)
        return [key for key in keys if not is_open(key & OFFSETS)]

    def _look_for_missing(self) -> None:
        """Raises IndexDamaged for an offset that waits and was not seen."""
        below, begin, end = self._indexed
        at = max(self._looked_to, self._queue.min_offset)
        for _ in range(RUNS_A_STEP):
            at = self._completed.next_open(at)
            if below <= at < begin:
                at = begin
            elif at >= end:
                self.is_done = True
                break
            elif (seen_to := self._seen.next_open(at)) == at:
                raise IndexDamaged(f"the timer at queue offset {at} has no row")
            else:
                at = seen_to
        self._looked_to = at


def check_mark(mark: Mark, queue: ConsumeQueue) -> None:
    """Raises IndexDamaged for the table of another queue."""
    entry = queue.entry(mark.upto - 1)
    if entry is None:
        there = f"{queue.min_offset} to {queue.max_offset}"
        raise IndexDamaged(f"it ends at {mark.upto}, and the queue has {there}")
    if (entry.physical_offset, entry.tags_code) != (mark.physical_offset, mark.due_ms):
        raise IndexDamaged("it is of another queue")
