"""Compares the entries that records should have with the queues' files, in blocks.

The walk hands over the entry that each record should have.  The bytes are compared block by
block, and single entries only where a block differs.  Findings wait for the log's end,
because a topic that was deleted and made again begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from rmqlite.errors import StoreDamaged
from rmqlite.levels import LevelHistory
from rmqlite.records.key_hashes import topic_prefix
from rmqlite.records.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK, Entry
from rmqlite.records.wait_queues import wait_queue_of
from rmqlite.store.checking.entry_runs import (
    NO_ENTRY,
    STRAY_ENTRY,
    WRONG_ENTRY,
    EntryRun,
    add_run,
    has_hash,
    missing_tail,
)
from rmqlite.store.checking.file_layer import FileLayer
from rmqlite.store.checking.finding import Finding, from_error
from rmqlite.store.checking.folders import look_at_folder, queue_folder, queue_name
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.deleted_topics import DeletedTopics
from rmqlite.store.disk.segments import is_zeros
from rmqlite.store.dispatch import QueueKey

BLOCK_ENTRIES: Final = 8192
BLOCKS_MAX: Final = 128
"""Cached blocks of a queue: a million entries, 20 MB."""
WAITING_ENTRIES_MAX: Final = 1 << 20
"""All queues are compared when they have more waiting entries than this together."""
CORRECTED_MAX: Final = 100_000
"""The most wrong entries of a queue whose right values stay in memory."""
NO_FILES: Final = "missing-queue"
UNREADABLE: Final = "unreadable-queue"


class QueueCheck:
    """One queue; `next` is the queue offset that the log's next record of it should have."""

    __slots__ = (
        *("_compared", "_corrected", "_dead_end", "_is_live", "_log_begin", "_blocks"),
        *("_wrong", "files", "first", "is_settled", "key", "last_offset", "name"),
        *("next", "persisted_end", "prefix", "wait_queue", "wanted"),
    )

    def __init__(
        self,
        key: QueueKey,
        files: ConsumeQueue,
        *,
        log_begin: Callable[[], int],
        persisted_end: int | None,
        dead_end: int,
        is_live: bool,
    ) -> None:
        """log_begin: the log's minimum now.  persisted_end: opening rebuilds entries from there
        on; None: rmqlite has not written the queues, and opening rebuilds all of them.
        dead_end: the topic was deleted, and entries below may be there or not.
        """
        self.key = key
        self.name = queue_name(key)
        self.prefix = topic_prefix(key[0])
        """The hash of the topic's prefix, for the keys of its messages."""
        self.files = files
        self.wait_queue = wait_queue_of(*key)
        self.first: int | None = None
        """The first queue offset in the log; None: the log has no record of this queue."""
        self.next = files.files_begin
        self.last_offset = -1
        """Physical offset of the last record."""
        self.wanted = bytearray()
        """The entries that wait to be compared; they end at `next`."""
        self.persisted_end = persisted_end
        self.is_settled = True
        """False: too many entries are wrong for a look-up."""
        self._log_begin = log_begin
        self._dead_end = dead_end
        self._is_live = is_live
        self._wrong: list[EntryRun] = []
        self._corrected: dict[int, Entry] = {}
        self._compared = self.next
        self._blocks: dict[int, bytes] = {}

    def begin_at(self, queue_offset: int) -> None:
        """Begin anew at a queue offset, and forget everything before."""
        self.wanted.clear()
        self._wrong.clear()
        self._corrected.clear()
        self._blocks.clear()
        self.is_settled = True
        self.first = self.next = self._compared = queue_offset
        self.files.begin_at(queue_offset)

    def want(self, entry: Entry) -> None:
        """Take the entry that the log's next record of this queue should have."""
        self.wanted += ENTRY.pack(*entry)
        self.next += 1

    def skip_to(self, queue_offset: int) -> None:
        """Skip queue offsets that the log lacks; their entries cannot be judged."""
        self.compare()
        self.next = self._compared = queue_offset
        self.files.advance(queue_offset)

    def compare(self) -> None:
        """Compare all waiting entries with the files."""
        wanted, begin = bytes(self.wanted), self._compared
        self.wanted.clear()
        self._compared = self.next
        if not wanted:
            return
        count = len(wanted) // ENTRY_BYTES
        there = self._there(begin, count)
        self.files.advance(self.next)
        if there == wanted:
            return
        there = there.ljust(len(wanted), b"\0")
        pairs = zip(ENTRY.iter_unpack(there), ENTRY.iter_unpack(wanted), strict=True)
        for queue_offset, (found, right) in enumerate(pairs, begin):
            if found != right:
                self._compare(queue_offset, Entry(*found), Entry(*right))

    def entry(self, queue_offset: int) -> Entry | None:
        """The right entry by the log; None outside of the walked range."""
        if not (self.first or 0) <= queue_offset < self.next:
            return None
        if queue_offset >= self._compared:
            at = (queue_offset - self._compared) * ENTRY_BYTES
            return Entry(*ENTRY.unpack_from(self.wanted, at))
        corrected = self._corrected.get(queue_offset)
        if corrected is not None:
            return corrected
        number, at = divmod(queue_offset, BLOCK_ENTRIES)
        block = self._blocks.get(number, b"")
        if len(block) < (at + 1) * ENTRY_BYTES:
            if len(self._blocks) >= BLOCKS_MAX:
                self._blocks.clear()
            block = self._blocks[number] = self._block(number)
        return Entry(*ENTRY.unpack_from(block, at * ENTRY_BYTES)) if block else None

    def _block(self, number: int) -> bytes:
        """A block of entries from the files; entries before the first file read as zeros."""
        start = number * BLOCK_ENTRIES
        before = max(0, self.files.files_begin - start)
        count = min(BLOCK_ENTRIES, self._compared - start) - before
        data = self.files.bytes_at(start + before, count)
        return bytes(before * ENTRY_BYTES) + data.ljust(count * ENTRY_BYTES, b"\0")

    def ending_at(self, physical_offset: int, near: int) -> int | None:
        """The queue offset of the record that ends there; the search begins at `near`."""
        low, high, step = max(self.first or 0, near), self.next, 1
        if low >= high or self._end_of(low) > physical_offset:
            low, high = self.first or 0, min(low, high)
        while low + step < high and self._end_of(low + step) < physical_offset:
            low, step = low + step, 2 * step
        high = min(high, low + step + 1)
        while low < high:
            middle = (low + high) // 2
            if self._end_of(middle) < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low if self._end_of(low) == physical_offset else None

    def _end_of(self, queue_offset: int) -> int:
        """Where an entry's record ends; -1 if there is none."""
        entry = self.entry(queue_offset)
        return entry.physical_offset + entry.size if entry else -1

    def finish(self, log_end: int) -> None:
        """Compare the remaining entries of log and files, at the log's end."""
        self.compare()
        end = self.next
        if self.first is None:
            end = self.files.recovered_end(log_end)
        begin = end if self.first is None else self.first
        self._compare_rest(self._dead_end, begin, is_kept=True)
        if not self._is_live:
            self._compare_rest(max(end, self._dead_end), self.files.files_end)

    def look_again(self, files: ConsumeQueue) -> None:
        """Drop missing entries that the writer has added meanwhile; files: opened anew."""
        self.files = files
        for run in self._wrong:
            while run.what == NO_ENTRY and run.count:
                if self.files.read_beyond(run.begin) != self.entry(run.begin):
                    break
                run.drop_first()
        self._wrong = [run for run in self._wrong if run.count]

    @property
    def lacks_entries(self) -> bool:
        return any(run.what == NO_ENTRY for run in self._wrong)

    @property
    def last_entered(self) -> int:
        """Physical offset of the last record before the missing entries at the end; -1: none."""
        tail = missing_tail(self._wrong, self.next)
        if not tail:
            return self.last_offset
        entry = self.entry(tail[-1].begin - 1)
        return entry.physical_offset if entry else -1

    def findings(self, log_end: int, last_entered: int) -> Iterator[Finding]:
        """All findings, after finish(); last_entered: the highest one of all queues."""
        tail = missing_tail(self._wrong, self.next)
        cut_off = tail if tail and tail[-1].record > last_entered else []
        without_files: list[tuple[EntryRun, bool]] = []
        for run in self._wrong:
            is_filed = self.files.files_begin <= run.begin < self.files.files_end
            is_new = run.begin >= (self.persisted_end or 0) and not run.is_kept
            if self.persisted_end is None or self._is_live:
                is_behind = run.what == STRAY_ENTRY and run.record >= log_end
                is_leftover = run in cut_off or (is_behind and is_new)
            else:
                is_leftover = is_new
            if is_leftover and self._is_live:
                # The writer is about to add the entries.
                continue
            if run.what == NO_ENTRY and not self.files.has_files:
                without_files.append((run, is_leftover))
                continue
            is_mended = is_new or not is_filed
            yield run.finding(self.name, is_mended=is_mended, is_leftover=is_leftover)
        if without_files:
            path, _ = self.files.place_of(self.first or 0)
            said = f"{self.name}: no files for {sum(run.count for run, _ in without_files)} entries"
            is_leftover = all(is_leftover for _, is_leftover in without_files)
            yield Finding(
                path.parent, 0, NO_FILES, said, opening_mends=True, is_leftover=is_leftover
            )

    def _there(self, begin: int, count: int) -> bytes:
        """Bytes of entries in the files; entries before the first file read as zeros."""
        missing = max(0, min(count, self.files.files_begin - begin))
        there = self.files.bytes_at(begin + missing, count - missing)
        return bytes(missing * ENTRY_BYTES) + there if missing else there

    def _compare(self, queue_offset: int, found: Entry, wanted: Entry) -> None:
        if wanted.physical_offset < self._log_begin():
            # Retention has removed the record meanwhile.
            return
        if len(self._corrected) < CORRECTED_MAX:
            self._corrected[queue_offset] = wanted
        else:
            self.is_settled = False
        self._blocks.clear()
        if queue_offset >= (self.persisted_end or 0) and has_hash(self.wait_queue, found, wanted):
            return
        at = wanted.physical_offset
        if found.size == 0:
            return self._add(queue_offset, at, NO_ENTRY, f"no entry for the record at {at}")
        said = []
        if found.physical_offset != at:
            said.append(f"points at {found.physical_offset}, its record is at {at}")
        if found.size != wanted.size:
            said.append(f"says {found.size} bytes, its record has {wanted.size}")
        if found.tags_code != wanted.tags_code:
            what = "deliver time" if self.wait_queue else "tags code"
            said.append(f"has {what} {found.tags_code}, its record {wanted.tags_code}")
        # The deliver time at a level is a promise, so opening does not change it.
        is_kept = self.wait_queue > 0 and found[:2] == wanted[:2]
        told = ("; it ".join(said), str(wanted), str(found))
        self._add(queue_offset, at, WRONG_ENTRY, *told, is_kept=is_kept)

    def _compare_rest(self, begin: int, end: int, *, is_kept: bool = False) -> None:
        """Report entries without a record, unless they are zeros or point before the log."""
        begin, end = max(begin, self.files.files_begin), min(end, self.files.files_end)
        for offset, data in self.files.data_blocks(begin, end, BLOCK_ENTRIES):
            if is_zeros(data):
                continue
            log_begin = self._log_begin()
            whole = data[: len(data) - len(data) % ENTRY_BYTES]
            for at, raw in enumerate(ENTRY.iter_unpack(whole), offset):
                entry = Entry._make(raw)
                is_past = entry.size > 0 and entry.physical_offset < log_begin
                if any(entry) and not is_past and ENTRY.pack(*entry) != PRE_BLANK:
                    said = f"an entry for {entry.physical_offset}, where the log has no such record"
                    self._add(at, entry.physical_offset, STRAY_ENTRY, said, is_kept=is_kept)

    def _add(
        self,
        queue_offset: int,
        record: int,
        what: str,
        said: str,
        expected: str = "",
        found: str = "",
        *,
        is_kept: bool = False,
    ) -> None:
        place = self.files.place_of(queue_offset)
        run = EntryRun(*place, what, queue_offset, record, said, expected, found, is_kept)
        add_run(self._wrong, run)


class QueueChecks:
    """All queues in the log or in the folders."""

    def __init__(
        self,
        files: FileLayer,
        root: Path,
        file_bytes: int,
        levels: LevelHistory,
        *,
        log_begin: Callable[[], int],
        persisted_ends: dict[QueueKey, int] | None,
        deleted: DeletedTopics,
        is_live: bool,
    ) -> None:
        """persisted_ends: as of the last persist; None: opening rebuilds all queues."""
        self.levels = levels
        self.deleted = deleted
        self.waiting = 0
        """About the number of entries that wait to be compared."""
        self._files = files
        self._root = root
        self._file_bytes = file_bytes
        self._log_begin = log_begin
        self._persisted_ends = persisted_ends
        self._is_live = is_live
        self._queues: dict[QueueKey, QueueCheck | None] = {}

    def opened(self, key: QueueKey) -> tuple[QueueCheck | None, list[Finding]]:
        """A queue, or None if it cannot be opened; the first call returns its findings, too."""
        if key in self._queues:
            return self._queues[key], []
        folder = queue_folder(self._root, key)
        found = look_at_folder(self._files, folder, self._file_bytes, is_live=self._is_live)
        try:
            files = self._open(key)
        except StoreDamaged as error:
            self._queues[key] = None
            return None, [*found, from_error(error, UNREADABLE)]
        ends = self._persisted_ends
        queue = QueueCheck(
            key,
            files,
            log_begin=self._log_begin,
            persisted_end=None if ends is None else ends.get(key, 0),
            dead_end=self.deleted.end_of(key),
            is_live=self._is_live,
        )
        self._queues[key] = queue
        return queue, found

    def get(self, key: QueueKey) -> QueueCheck | None:
        return self._queues.get(key)

    def is_unreadable(self, key: QueueKey) -> bool:
        return key in self._queues and self._queues[key] is None

    def ranges(self) -> dict[QueueKey, tuple[int, int]]:
        """First and next queue offset of every queue with a record in the log."""
        return {
            key: (queue.first, queue.next)
            for key, queue in self._queues.items()
            if queue is not None and queue.first is not None
        }

    @property
    def last_record(self) -> int:
        """Physical offset of the last record that belongs to a queue; -1: none."""
        return max((each.last_offset for each in self._queues.values() if each), default=-1)

    def compare_all(self) -> None:
        """Compare all waiting entries of every queue, which frees their memory."""
        self.waiting = 0
        for queue in self._queues.values():
            if queue is not None:
                queue.compare()

    def findings(self, log_end: int) -> Iterator[Finding]:
        """The findings of every queue that was opened."""
        queues = [queue for queue in self._queues.values() if queue is not None]
        for queue in queues:
            queue.finish(log_end)
            if self._is_live and queue.lacks_entries:
                with suppress(StoreDamaged):
                    queue.look_again(self._open(queue.key))
        last_entered = max((queue.last_entered for queue in queues), default=-1)
        for queue in queues:
            yield from queue.findings(log_end, last_entered)

    def _open(self, key: QueueKey) -> ConsumeQueue:
        return ConsumeQueue(self._files, queue_folder(self._root, key), self._file_bytes)
