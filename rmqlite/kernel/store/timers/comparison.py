"""Compares the table of the timers with their queue, which is the truth.

SQLite has no checksums: a flipped bit makes another due time, and a row that is not there is not
missed.  So all rows are read once, in due order.  It is noted which queue offsets were seen, and a
sum over the rows of each chunk of the queue; then the queue is read in its order, chunk by chunk:
what was seen there must have the same sum, and what waits must have been seen.

A comparison takes the offsets that had rows when it began.  It is done in steps: a timer that waits
all the time has its row all the time, whatever is written meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import compress
from typing import Final

from rmqlite.kernel.config.table_shapes import CHUNK_OFFSETS
from rmqlite.kernel.records.queue_entry import runs_of
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.timers.index import (
    OFFSETS,
    IndexDamaged,
    Indexed,
    IndexMark,
    TimerIndex,
    key_of,
)

ROWS_A_STEP: Final = 512
"""Steps of so many rows, and of a chunk, take 2 to 3 ms."""
_SEEN: Final = bytes.maketrans(b"\x00\x01", b"\x01\x00")
"""Translates the flags of offsets that were not seen."""


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
        self._first = max(completed.below, queue.min_offset)
        self._seen = CompletedOffsets([(0, completed.below)])
        self._sums = Counter[int]()
        """By number of a chunk: the sum of the squares of its rows' keys."""
        self._read_to: int | None = -1
        """The key of the last row that was read; None: all were."""
        self._chunk = 0
        self.is_done = False

    def step(self, passed: int = 0) -> Sequence[int]:
        """Compare some more; returns the keys of rows whose timers are completed.

        passed: rows with keys below it need not be read.  Raises IndexDamaged, which says what
        differs, and StoreUnavailable.
        """
        if self._read_to is None:
            self._compare_chunk()
            return ()
        begin = max(self._read_to, passed - 1)
        keys = self._index.slice(begin, ROWS_A_STEP, self._indexed)
        self._read_to = keys[-1] if len(keys) == ROWS_A_STEP else None
        return self._note(keys)

    def _note(self, keys: Sequence[int]) -> list[int]:
        is_open, sums, first = self._completed.is_open, self._sums, self._queue.min_offset
        gone, offsets = [], []
        for key in keys:
            queue_offset = key & OFFSETS
            if not is_open(queue_offset):
                gone.append(key)
            elif queue_offset >= first:
                sums[queue_offset // CHUNK_OFFSETS] += key * key
                offsets.append(queue_offset)
        for start, end in runs_of(sorted(offsets)):
            self._seen.add(start, end)
        return gone

    def _compare_chunk(self) -> None:
        """Compare the next chunk that has rows or timers.  Raises IndexDamaged."""
        waits = self._completed.next_open(max(self._chunk * CHUNK_OFFSETS, self._first))
        if waits < self._indexed.end:
            number = min(waits // CHUNK_OFFSETS, *self._sums, self._indexed.end)
        elif self._sums:
            number = min(self._sums)
        else:
            self.is_done = True
            return
        start = max(number * CHUNK_OFFSETS, self._first)
        end = min((number + 1) * CHUNK_OFFSETS, self._indexed.end)
        unseen = self._seen.open_flags(start, end)
        codes = self._queue.tags_codes(start, end - start)
        self._chunk, total = number + 1, self._sums.pop(number, 0)
        if start < self._queue.min_offset:
            # Retention has removed entries meanwhile; the next comparison does without them.
            return
        seen = unseen.translate(_SEEN)
        keys = map(key_of, compress(codes, seen), compress(range(start, end), seen))
        if sum([key * key for key in keys]) != total:
            raise IndexDamaged(f"rows of queue offsets {start} to {end - 1} differ from the queue")
        missing = map(int.__and__, unseen, self._completed.open_flags(start, end))
        for queue_offset in compress(range(start, end), missing):
            if queue_offset in self._indexed:
                raise IndexDamaged(f"the timer at queue offset {queue_offset} has no row")


def check_mark(mark: IndexMark, queue: ConsumeQueue) -> None:
    """Raises IndexDamaged for the table of another queue."""
    entry = queue.entry(mark.upto - 1)
    if entry is None:
        there = f"{queue.min_offset} to {queue.max_offset}"
        raise IndexDamaged(f"it ends at {mark.upto}, and the queue has {there}")
    if (entry.physical_offset, entry.tags_code) != (mark.physical_offset, mark.due_ms):
        raise IndexDamaged("it is of another queue")
