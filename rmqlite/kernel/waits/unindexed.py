"""The timers that are not in the table of kernel/store/timer_index.py yet, and the writes into it.

`fresh` was noted since the last write began, `writing` is what the present write puts into the
table.  After a start, or while the table is made again, the old entries of the queue are read in
steps, beside what is stored now.  So there are two spans of the queue, and of each a first part has
rows: a row counts if its queue offset is `indexed`; every other entry is in memory, or will be read
from the queue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.timer_index import (
    INSERTED_TOGETHER,
    OFFSETS,
    Indexed,
    IndexMark,
    IndexWrite,
    NewEntries,
    TimerIndex,
    due_of,
    key_of,
)
from rmqlite.kernel.words.errors import Overloaded, StoreUnavailable
from rmqlite.kernel.words.limits import INT64_MAX

SORTED_TOGETHER: Final = 4_096
MERGED_MAX: Final = 1 << 14
"""Longer lists are not merged: it would take too long for one turn of the loop."""
END: Final = key_of(INT64_MAX, 0)
"""Behind every key."""

WRITE_ENTRIES: Final = 65_536
"""So many changes are written at once; old entries are not read while so many are unwritten."""
UNINDEXED_MAX: Final = 1_000_000
"""With more entries that are only in memory, timers are refused."""
READ_TOGETHER: Final = 4_096


@dataclass(slots=True)
class OffsetSpan:
    """Queue offsets begin <= n < end: up to where they are noted, frozen for a write, written."""

    begin: int
    end: int
    noted: int
    frozen: int
    written: int

    @classmethod
    def at(cls, begin: int, end: int = OFFSETS) -> OffsetSpan:
        return cls(begin, end, begin, begin, begin)


class Unindexed:
    """Begins with a table that has a row for every open entry below `upto`."""

    def __init__(self, queue: ConsumeQueue, completed: CompletedOffsets, upto: int) -> None:
        self._queue = queue
        self._completed = completed
        self.fresh, self.writing = SortedKeys(), SortedKeys()
        self._gone = set[int]()
        """Keys whose rows are to be deleted; the write that runs deletes those of _going."""
        self._going = set[int]()
        self._noted = self._noted_writing = self._ended = 0
        self._old, self._live = (
            OffsetSpan.at(upto, queue.max_offset),
            OffsetSpan.at(queue.max_offset),
        )

    def notice(self, queue_offset: int, due_ms: int) -> None:
        """Note the entries from queue_offset to the queue's end; due_ms: that of the first."""
        live, end = self._live, self._queue.max_offset
        if end == queue_offset + 1 == live.noted + 1:
            self.fresh.add((key_of(due_ms, queue_offset),))
            self._noted += 1
            live.noted = end
        else:
            # What cannot be read now is read by a later call.
            with suppress(StoreUnavailable):
                self._note(live, end)

    def note_old(self) -> bool:
        """Note the next old entries; False if there are none, or many unwritten ones.

        Raises StoreUnavailable.
        """
        self._note(self._live, self._queue.max_offset)
        old = self._old
        if old.noted == old.end or self._noted >= WRITE_ENTRIES:
            return False
        old.noted = min(self._completed.next_open(old.noted), old.end)
        self._note(old, min(old.noted + READ_TOGETHER, old.end))
        return True

    def _note(self, span: OffsetSpan, end: int) -> None:
        while span.noted < end:
            start = span.noted
            codes = self._queue.tags_codes(start, min(READ_TOGETHER, end - start))
            span.noted += len(codes)
            waiting = self._completed.open_between(start, span.noted)
            self.fresh.add([key_of(codes[each - start], each) for each in waiting])
            self._noted += len(codes)

    def end(self, due_ms: Sequence[int], queue_offsets: Sequence[int], passed: int) -> None:
        """Note that messages were completed: due time and queue offset of each.

        passed: the next write deletes all rows with keys below it.
        """
        self.writing.drop_front(self._completed)
        self.fresh.drop_front(self._completed)
        self._ended += len(due_ms)
        if max(due_ms, default=0) >= due_of(passed):
            frozen = Indexed(self._old.frozen, self._live.begin, self._live.frozen)
            keys = map(key_of, due_ms, queue_offsets)
            self._gone.update([key for key in keys if key >= passed and key & OFFSETS in frozen])

    def end_late(self, keys: Iterable[int]) -> None:
        """Note rows of messages that were completed before the start."""
        found = set(keys) - self._gone - self._going
        self._gone |= found
        self._ended += len(found)

    @property
    def indexed(self) -> Indexed:
        """The queue offsets whose rows count."""
        return Indexed(self._old.written, self._live.begin, self._live.written)

    @property
    def rows_gone(self) -> list[int]:
        """The completed keys that have rows."""
        indexed = self.indexed
        return [key for key in (*self._gone, *self._going) if key & OFFSETS in indexed]

    @property
    def rebuilding(self) -> tuple[int, int] | None:
        """How many old entries are noted, and of how many; None if all are."""
        begin, end, noted = self._old.begin, self._old.end, self._old.noted
        return None if noted == end else (noted - begin, end - begin)

    def warnings(self) -> Iterator[str]:
        """What keeps timers from being listed, or soon from being stored, in sentences."""
        if self.rebuilding is not None:
            done, total = self.rebuilding
            yield (
                f"the index of the timers is made again, {done * 100 // total}% of {total:,}: until"
                " then lists and timelines lack timers, and some may be late"
            )
        if self.unwritten >= UNINDEXED_MAX // 2:
            yield (
                f"{self.unwritten:,} timers are not written to their index; with more than"
                f" {UNINDEXED_MAX:,} timers are refused"
            )

    @property
    def unread_from(self) -> int:
        """The first old entry that is not noted."""
        return self._old.noted

    @property
    def unwritten(self) -> int:
        """How many entries are only in memory."""
        return self._noted + self._noted_writing

    def check_room(self) -> None:
        """Raises Overloaded while too many entries are only in memory."""
        if self.unwritten > UNINDEXED_MAX:
            raise Overloaded("unindexedTimers", UNINDEXED_MAX)

    # ---- writing

    @property
    def changes(self) -> int:
        """How many new entries and completed messages the next write has."""
        return self._noted + self._ended

    @property
    def is_full(self) -> bool:
        """Are so many of them in memory that they should be written now?

        Rows that are deleted all at once, because they are passed, do not count.
        """
        return self._noted + len(self._gone) >= WRITE_ENTRIES

    def begin_write(self, index: TimerIndex, passed: int, log_end: int) -> IndexWrite:
        """The transaction that brings the table up to date; the last one has ended.

        passed: all rows with keys below it are of completed messages.  log_end: the log's, now.
        Raises StoreUnavailable: then nothing has changed.
        """
        index.make_folder()
        old, live = self._old, self._live
        new = [
            NewEntries(
                start,
                self._queue.bytes_at(start, end - start),
                self._completed.open_flags(start, end),
            )
            for span in (old, live)
            for start, end in self._new(span)
        ]
        upto = live.noted if old.noted == old.end else old.noted
        last = self._queue.entry(upto - 1) or Entry(-1, 0, -1)
        mark = IndexMark(upto, last.physical_offset, last.tags_code, log_end)
        gone = tuple(self._gone)
        self.writing, self.fresh = self.fresh, SortedKeys()
        self._going, self._gone = self._gone, set()
        self._noted_writing, self._noted, self._ended = self._noted, 0, 0
        old.frozen, live.frozen = old.noted, live.noted
        return IndexWrite(index, passed, gone, new, mark)

    def _new(self, span: OffsetSpan) -> Iterator[tuple[int, int]]:
        """Ranges of entries to write, without the long completed parts between them."""
        start = end = span.frozen
        while (waiting := self._completed.next_open(end)) < span.noted:
            if waiting > end or end - start >= INSERTED_TOGETHER:
                if end > start:
                    yield start, end
                start = waiting
            end = min(waiting + READ_TOGETHER, span.noted)
        if end > start:
            yield start, end

    def end_write(self) -> None:
        """Note that the table has what the write brought."""
        for span in (self._old, self._live):
            span.written = span.frozen
        self.writing = SortedKeys()
        self._going, self._noted_writing = set(), 0


class SortedKeys:
    """Keys to be read in order, and dropped at the front, in lists whose lengths double.

    What is added is sorted later, many keys at once, and then merged with lists that are no longer.
    So adding a batch costs 0.5 us a key; one sorted container for all would cost 2.
    """

    __slots__ = ("_added", "_lists", "least")

    def __init__(self) -> None:
        self._added: list[int] = []
        self._lists: list[list[int]] = []
        self.least = END
        """The first key; END if there is none."""

    def __len__(self) -> int:
        return len(self._added) + sum(map(len, self._lists))

    def add(self, keys: Sequence[int]) -> None:
        if not keys:
            return
        self._added += keys
        self.least = min(self.least, min(keys))
        if len(self._added) >= SORTED_TOGETHER:
            self.lists()

    def lists(self) -> list[list[int]]:
        """All keys, in sorted lists; the caller must not change them."""
        if self._added:
            keys, self._added = self._added, []
            while self._lists and len(self._lists[-1]) <= len(keys) <= MERGED_MAX:
                keys = self._lists.pop() + keys
            # What is sorted already is only merged.
            self._lists.append(sorted(keys))
        return self._lists

    def behind(self, key: int) -> Iterator[Iterator[int]]:
        """For each list, its keys behind one."""
        for keys in self.lists():
            yield islice(keys, bisect_right(keys, key), None)

    def drop_front(self, completed: CompletedOffsets) -> None:
        """Drop the first keys of each list as far as they are completed."""
        if self.least == END or completed.is_open(self.least & OFFSETS):
            return
        for keys in self.lists():
            count = 0
            while count < len(keys):
                offset = keys[count] & OFFSETS
                gone = completed.next_open(offset) - offset
                if not gone:
                    break
                # Most often neighbours are completed one after the other.
                count = _row_end(keys, count, min(count + gone, len(keys)))
            del keys[:count]
        self._lists = [keys for keys in self._lists if keys]
        self.least = min((keys[0] for keys in self._lists), default=END)


def _row_end(keys: Sequence[int], start: int, until: int) -> int:
    """The end of the keys from a place on that are due at one time, and neighbours in the queue."""
    if start + 1 == until or keys[start + 1] != keys[start] + 1:
        return start + 1
    return bisect_right(range(until), keys[start] - start, start, key=lambda at: keys[at] - at)
