"""Queues for a reader in another process: first from their files, then from the log.

Up to `filed` the files are trusted, because the last persist covers them; later entries come
from a walk over the log.  A level's later entries stay in memory, because they hold deliver
times; everything else is read in blocks, so that a backlog of any length fits.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final

from rmqlite.errors import StoreDamaged
from rmqlite.records.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK, Entry
from rmqlite.records.record import Head
from rmqlite.records.wait_queues import HASH_END, wait_queue_of
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.dispatch import QueueKey
from rmqlite.store.log.repaired_place import RepairedPlace
from rmqlite.store.progress import CompletedOffsets

BLOCK_ENTRIES: Final = 8192
_PRE_BLANK_SIZE: Final = ENTRY.unpack(PRE_BLANK)[1]
_DUE: Final = struct.Struct(">12xq")


class QueueView:
    """The entries min_offset <= n < max_offset; those below `filed` are in the files."""

    def __init__(
        self,
        key: QueueKey,
        open_files: Callable[[], ConsumeQueue],
        *,
        low: int,
        high: int,
        file_entries: int,
        log_begin: int,
    ) -> None:
        """low, high: the filed queue offsets.  log_begin: physical offset of the oldest record."""
        self.key = key
        self.filed = self.max_offset = high
        self.tail_bytes = 0
        """Bytes of the records behind `filed`."""
        self.newest_timestamp_ms = 0
        """Store timestamp of the newest record if it lies behind `filed`; otherwise 0."""
        self._newest_offset = -1
        self._open_files = open_files
        self.low = low
        """The first entry that the last persist covers."""
        self._file_entries = file_entries
        self._log_begin = log_begin

    @cached_property
    def files(self) -> ConsumeQueue:
        """The queue's files, opened at the first use.  Raises StoreDamaged."""
        return self._open_files()

    @cached_property
    def min_offset(self) -> int:
        """The first entry whose record is still in the log."""
        low = max(self.low, self.files.files_begin) if self.low < self.filed else self.low
        return self._search(low, self._log_begin)

    def clip(self, physical_offset: int) -> None:
        """Trust only entries of records before physical_offset."""
        self.filed = self.max_offset = self._search(self.low, physical_offset)

    def enter(self, head: Head) -> None:
        """Take this queue's next record from the walk."""
        if head.queue_offset < self.max_offset:
            # Its topic was deleted and made again.
            self.low = self.filed = head.queue_offset
            self.tail_bytes = 0
            self.__dict__.pop("min_offset", None)
        self.max_offset = head.queue_offset + 1
        self.tail_bytes += head.size
        self.newest_timestamp_ms = head.store_timestamp_ms
        self._newest_offset = head.physical_offset

    def pass_over(self, place: RepairedPlace, queue_offset: int) -> None:
        """Skip lost records up to queue_offset; a repaired place fills their space."""
        self.tail_bytes += place.size * (queue_offset - self.max_offset)
        self.max_offset = queue_offset

    @property
    def newest_offset(self) -> int:
        """The physical offset of the last record; -1 if unknown."""
        if self._newest_offset < 0 and (entry := self.entry(self.filed - 1)):
            return entry.physical_offset
        return self._newest_offset

    def entry(self, queue_offset: int) -> Entry | None:
        """One entry from the files; None if it is missing."""
        if not self.low <= queue_offset < self.filed:
            return None
        entry = self.files.read_beyond(queue_offset)
        return entry if entry and 0 < entry.size < _PRE_BLANK_SIZE else None

    def first_with(self, physical_offset: int) -> int:
        """The first filed queue offset whose record begins there or later; filed if none."""
        return self._search(self.min_offset, physical_offset)

    def blocks(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """(queue offset, raw entries) of begin <= n < end from the files, whole entries only."""
        while begin < end:
            # Never across two files: the first one may have been removed.
            room = self._file_entries - begin % self._file_entries
            count = min(BLOCK_ENTRIES, room, end - begin)
            data = self.files.bytes_at(begin, count)
            yield begin, data[: len(data) - len(data) % ENTRY_BYTES]
            begin += count

    def damage(self, queue_offset: int, expected: str, found: str) -> StoreDamaged:
        path, position = self.files.place_of(queue_offset)
        topic, queue_id = self.key
        where = f"{topic} queue {queue_id}, queue offset {queue_offset}: "
        return StoreDamaged(str(path), position, where + expected, found)

    def _search(self, low: int, physical_offset: int) -> int:
        high = self.filed
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            # None: its file was removed with the records, or it only fills up the first file.
            if entry is None or entry.physical_offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low


class WaitView:
    """One wait queue, and its completed offsets."""

    def __init__(
        self, queue: QueueView, completed: CompletedOffsets, due_of: Callable[[int, int], int]
    ) -> None:
        """due_of(wait queue, physical offset) returns the deliver time of a record there."""
        self.queue = queue
        self.completed = completed
        self._due_of = due_of
        # The records behind `filed`, 20 bytes each, because there may be many.
        self._begins = array("q")
        self._sizes = array("i")
        self._dues = array("q")

    @property
    def wait_queue(self) -> int:
        return wait_queue_of(*self.queue.key)

    def enter(self, head: Head, due_ms: int) -> None:
        """Take this queue's next record from the walk."""
        if head.queue_offset < self.queue.max_offset:
            del self._begins[:], self._sizes[:], self._dues[:]
        self.queue.enter(head)
        self._begins.append(head.physical_offset)
        self._sizes.append(head.size)
        self._dues.append(due_ms)

    def pass_over(self, place: RepairedPlace, queue_offset: int, due_ms: int) -> None:
        """Skip lost records up to queue_offset; they count as completed."""
        begin = self.queue.max_offset
        count = queue_offset - begin
        self._begins.extend([place.physical_offset] * count)
        self._sizes.extend([place.size] * count)
        self._dues.extend([due_ms] * count)
        self.queue.pass_over(place, queue_offset)
        self.completed.add(begin, queue_offset)

    def complete(self, end: int) -> None:
        """Complete the record that ends at physical offset `end`."""
        for each in (self.completed.below, self._before(end)):
            entry = self.entry(each)
            if entry is not None and entry.physical_offset + entry.size == end:
                self.completed.add(each, each + 1)
                return

    def settle(self, delivered: int) -> None:
        """End the walk.  delivered: RocketMQ has delivered the queue offsets below."""
        filed = self.queue.filed
        for offset, data in self.queue.blocks(filed, self.queue.max_offset):
            for at, (begin, _, due_ms) in enumerate(ENTRY.iter_unpack(data), offset - filed):
                # A promised deliver time stays, as it does when the store is opened.
                if begin == self._begins[at] and due_ms >= HASH_END:
                    self._dues[at] = due_ms
        self.completed.add(0, min(delivered, self.queue.max_offset))
        # Records that retention removed can no longer be delivered.
        self.completed.add(0, self.queue.min_offset)

    @property
    def pending(self) -> int:
        return self.queue.max_offset - self.completed.below - self.completed.count_above

    def is_pending(self, queue_offset: int) -> bool:
        return self.completed.next_open(queue_offset) == queue_offset

    def entry(self, queue_offset: int) -> Entry | None:
        at = queue_offset - self.queue.filed
        if 0 <= at < len(self._begins):
            return Entry(self._begins[at], self._sizes[at], self._dues[at])
        return self.queue.entry(queue_offset)

    def due_ms(self, queue_offset: int) -> int:
        """The deliver time of an entry.  Raises StoreDamaged if there is no such entry."""
        entry = self.entry(queue_offset)
        if entry is None:
            raise self.queue.damage(queue_offset, "an entry", "none")
        if entry.tags_code >= HASH_END:
            return entry.tags_code
        return self._due_of(self.wait_queue, entry.physical_offset)

    def oldest(self) -> Entry | None:
        """The first pending entry; None if there is none.  Raises StoreDamaged."""
        if not self.pending:
            return None
        due_ms = self.due_ms(self.completed.below)
        entry = self.entry(self.completed.below)
        return entry._replace(tags_code=due_ms) if entry else None

    def next_due_ms(self) -> int | None:
        """The earliest deliver time of all pending entries.  Raises StoreDamaged.

        It reads every pending entry, 0.05 µs each: deliver times ascend only until the table
        of levels changes, and the queue does not show where that was.
        """
        found: list[int] = []
        begin, filed, upto = self.completed.below, self.queue.filed, self.queue.max_offset
        while begin < upto:
            end = self.completed.open_until(begin, upto)
            for offset, data in self.queue.blocks(begin, min(end, filed)):
                due_ms = min(_DUE.iter_unpack(data), default=(0,))[0]
                if due_ms < HASH_END:
                    count = max(1, len(data) // ENTRY_BYTES)
                    due_ms = min(self.due_ms(offset + at) for at in range(count))
                found.append(due_ms)
            if end > filed:
                found.append(min(self._dues[max(begin, filed) - filed : end - filed]))
            begin = self.completed.next_open(end)
            found = [min(found)]
        return found[0] if found else None

    def _before(self, physical_offset: int) -> int:
        """The last queue offset whose record begins before physical_offset."""
        if self._begins and self._begins[0] < physical_offset:
            return self.queue.filed + bisect_left(self._begins, physical_offset) - 1
        return self.queue.first_with(physical_offset) - 1


def end_in_files(queue: ConsumeQueue) -> int:
    """One past the last entry in a queue's files, for a store without saved progress."""
    low, high = queue.files_begin, queue.files_end
    while low < high:
        middle = (low + high) // 2
        entry = queue.read_beyond(middle)
        if entry is not None and entry.physical_offset >= 0 and entry.size > 0:
            low = middle + 1
        else:
            high = middle
    return low
