"""Queues for a reader in another process: first from their files, then from the log.

Up to `filed` the files are trusted, because the last persist covers them; later entries come
from a walk over the log, as at an opening (Redo), but they go into memory.  Only a wait queue
keeps all of them there, because they hold deliver times; everything else is read in blocks, so
that a backlog of any length fits.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain
from typing import Final

from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK, Entry
from rmqlite.kernel.records.wait_queues import HASH_END, wait_queue_of
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.words.errors import StoreDamaged

BLOCK_ENTRIES: Final = 8192
_PRE_BLANK_SIZE: Final = ENTRY.unpack(PRE_BLANK)[1]
_SIZE: Final = struct.Struct(">8xi8x")
_DUE: Final = struct.Struct(">12xq")


class QueueView:
    """The entries min_offset <= n < max_offset; those below `filed` are in the files.

    A walk writes the later ones as it writes those of a ConsumeQueue, but no file changes.
    """

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
        self._keeps_all = bool(wait_queue_of(*key))
        self._tail = bytearray()
        """Entries behind `filed`, up to max_offset: all of a wait queue, of others the last."""
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

    def begin_at(self, queue_offset: int) -> None:
        """Make the queue empty, with this next entry."""
        self.low = self.filed = self.max_offset = queue_offset
        self.tail_bytes = 0
        self._tail.clear()
        self.__dict__.pop("min_offset", None)

    def write(self, queue_offset: int, entries: bytes) -> None:
        """Take whole entries at max_offset; advance() makes them visible."""
        assert queue_offset == self.max_offset
        self.tail_bytes += sum(chain.from_iterable(_SIZE.iter_unpack(entries)))
        if not self._keeps_all:
            self._tail.clear()
            entries = entries[-ENTRY_BYTES:]
        self._tail += entries

    def advance(self, max_offset: int) -> None:
        self.max_offset = max_offset

    def last(self) -> Entry | None:
        """The last entry; None if the queue is empty, or if it is missing."""
        return self.entry(self.max_offset - 1)

    def entry(self, queue_offset: int) -> Entry | None:
        """One entry; None if it is missing, or if it lies in a tail that is not kept."""
        if queue_offset >= self.filed:
            at = (queue_offset - self._tail_begins_at) * ENTRY_BYTES
            is_kept = 0 <= at < len(self._tail)
            return Entry._make(ENTRY.unpack_from(self._tail, at)) if is_kept else None
        entry = self.files.read_beyond(queue_offset) if queue_offset >= self.low else None
        return entry if entry and 0 < entry.size < _PRE_BLANK_SIZE else None

    def read_beyond(self, queue_offset: int) -> Entry | None:
        """The entry in the files at a place, also past `filed`."""
        return self.files.read_beyond(queue_offset)

    @property
    def _tail_begins_at(self) -> int:
        return self.max_offset - len(self._tail) // ENTRY_BYTES

    def first_with(self, physical_offset: int) -> int:
        """The first queue offset whose record begins there or later.

        If none is in the files or the kept tail, it is where the kept tail ends, or `filed`.
        """
        found = self._search(self.min_offset, physical_offset)
        if found < self.filed or not self._keeps_all:
            return found
        kept = range(self.filed, self.max_offset)
        return self.filed + bisect_left(kept, physical_offset, key=self._begin_of)

    def blocks(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """(queue offset, raw entries) of begin <= n < end, whole entries only.

        Of a queue that does not wait only those from the files: then end <= filed.
        """
        filed = min(end, self.filed)
        while begin < filed:
            # Never across two files: the first one may have been removed.
            room = self._file_entries - begin % self._file_entries
            count = min(BLOCK_ENTRIES, room, filed - begin)
            data = self.files.bytes_at(begin, count)
            yield begin, data[: len(data) - len(data) % ENTRY_BYTES]
            begin += count
        if begin < end:
            at = self._tail_begins_at
            yield begin, bytes(self._tail[(begin - at) * ENTRY_BYTES : (end - at) * ENTRY_BYTES])

    def damage(self, queue_offset: int, expected: str, found: str) -> StoreDamaged:
        path, position = self.files.place_of(queue_offset)
        topic, queue_id = self.key
        where = f"{topic} queue {queue_id}, queue offset {queue_offset}: "
        return StoreDamaged(str(path), position, where + expected, found)

    def _begin_of(self, queue_offset: int) -> int:
        entry = self.entry(queue_offset)
        return entry.physical_offset if entry else -1

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

    @property
    def wait_queue(self) -> int:
        return wait_queue_of(*self.queue.key)

    def settle(self, delivered: int) -> None:
        """End the walk.  delivered: RocketMQ has delivered the queue offsets below."""
        self.completed.add(0, min(delivered, self.queue.max_offset))
        # Records that retention removed can no longer be delivered.
        self.completed.add(0, self.queue.min_offset)

    @property
    def pending(self) -> int:
        return self.queue.max_offset - self.completed.below - self.completed.count_above

    def is_pending(self, queue_offset: int) -> bool:
        return self.completed.next_open(queue_offset) == queue_offset

    def due_ms(self, queue_offset: int) -> int:
        """The deliver time of an entry.  Raises StoreDamaged if there is no such entry."""
        entry = self.queue.entry(queue_offset)
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
        entry = self.queue.entry(self.completed.below)
        return entry._replace(tags_code=due_ms) if entry else None

    def next_due_ms(self) -> int | None:
        """The earliest deliver time of all pending entries.  Raises StoreDamaged.

        It reads every pending entry, 0.05 µs each: deliver times ascend only until the table
        of levels changes, and the queue does not show where that was.
        """
        found: list[int] = []
        begin, upto = self.completed.below, self.queue.max_offset
        while begin < upto:
            end = self.completed.open_until(begin, upto)
            for offset, data in self.queue.blocks(begin, end):
                due_ms = min(_DUE.iter_unpack(data), default=(0,))[0]
                if due_ms < HASH_END:
                    count = max(1, len(data) // ENTRY_BYTES)
                    due_ms = min(self.due_ms(offset + at) for at in range(count))
                found.append(due_ms)
            begin = self.completed.next_open(end)
            found = [min(found)]
        return found[0] if found else None


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
