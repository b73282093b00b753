"""Compares the entries that records should have with the queues' files, in blocks.

The walk writes the entries that the records should have, as to the files of an opening.  Their
bytes are compared block by block, and single entries only where a block differs.  Findings wait
for the log's end, because a topic that was deleted and made again begins anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK, Entry
from rmqlite.kernel.records.wait_queues import HASH_END, TIMERS, wait_queue_of
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.deleted_topics import DeletedTopics
from rmqlite.kernel.store.disk.segments import is_zeros
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.store.progress import ScheduleProgress
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.kernel.words.levels import LevelHistory
from rmqlite.store_tools.checking.file_layer import (
    FileLayer,
    look_at_folder,
    queue_folder,
    queue_name,
)
from rmqlite.store_tools.checking.finding import Finding, from_error

BLOCK_ENTRIES: Final = 8192
BLOCKS_MAX: Final = 128
"""Cached blocks of a queue: a million entries, 20 MB."""
CORRECTED_MAX: Final = 100_000
"""The most wrong entries of a queue whose right values stay in memory."""
NO_FILES: Final = "missing-queue"
UNREADABLE: Final = "unreadable-queue"
NO_ENTRY: Final = "missing-entry"
WRONG_ENTRY: Final = "wrong-entry"
STRAY_ENTRY: Final = "entry-without-record"
WRONG_ENTRIES: Final = (NO_ENTRY, WRONG_ENTRY, STRAY_ENTRY)


class QueueCheck:
    """One queue; `max_offset` is the queue offset that the log's next record of it should have.

    A walk writes entries to it as to a ConsumeQueue; they are compared with the files.
    """

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
        self.files = files
        self.wait_queue = wait_queue_of(*key)
        self.first: int | None = None
        """The first queue offset in the log; None: the log has no record of this queue."""
        self.max_offset = files.files_begin
        self.last_offset = -1
        """Physical offset of the last record that was compared."""
        self.persisted_end = persisted_end
        self.is_settled = True
        """False: too many entries are wrong for a look-up."""
        self._log_begin = log_begin
        self._dead_end = dead_end
        self._is_live = is_live
        self._wrong: list[EntryRun] = []
        self._corrected: dict[int, Entry] = {}
        self._blocks: dict[int, bytes] = {}

    def begin_at(self, queue_offset: int) -> None:
        """Begin anew at a queue offset, and forget everything before."""
        self._wrong.clear()
        self._corrected.clear()
        self._blocks.clear()
        self.is_settled = True
        self.first = self.max_offset = queue_offset
        self.files.begin_at(queue_offset)

    def advance(self, max_offset: int) -> None:
        self.max_offset = max_offset
        self.files.advance(max_offset)

    def write(self, queue_offset: int, entries: bytes) -> None:
        """Compare the entries that the log's next records should have with the files."""
        there = self._there(queue_offset, len(entries) // ENTRY_BYTES)
        self.last_offset = ENTRY.unpack_from(entries, len(entries) - ENTRY_BYTES)[0]
        if there == entries:
            return
        there = there.ljust(len(entries), b"\0")
        pairs = zip(ENTRY.iter_unpack(there), ENTRY.iter_unpack(entries), strict=True)
        for at, (found, right) in enumerate(pairs, queue_offset):
            if found != right:
                self._compare(at, Entry(*found), Entry(*right))

    def entry(self, queue_offset: int) -> Entry | None:
        """The right entry by the log; None outside of the compared range."""
        if not (self.first or 0) <= queue_offset < self.max_offset:
            return None
        corrected = self._corrected.get(queue_offset)
        if corrected is not None:
            return corrected
        number, at = divmod(queue_offset, BLOCK_ENTRIES)
        block = self._blocks.get(number, b"")
        if len(block) < (at + 1) * ENTRY_BYTES:
            if len(self._blocks) >= BLOCKS_MAX:
                self._blocks.clear()
            start = number * BLOCK_ENTRIES
            count = min(BLOCK_ENTRIES, self.max_offset - start)
            block = self._blocks[number] = self._there(start, count).ljust(
                count * ENTRY_BYTES, b"\0"
            )
        return Entry(*ENTRY.unpack_from(block, at * ENTRY_BYTES))

    def read_beyond(self, queue_offset: int) -> Entry | None:
        """The entry in the files at a place."""
        return self.files.read_beyond(queue_offset)

    def first_with(self, physical_offset: int) -> int:
        """The first queue offset whose record begins there or later; max_offset if none."""
        offsets = range(self.first or 0, self.max_offset)
        return offsets.start + bisect_left(offsets, physical_offset, key=self._begin_of)

    def _begin_of(self, queue_offset: int) -> int:
        entry = self.entry(queue_offset)
        return entry.physical_offset if entry else -1

    def finish(self, log_end: int) -> None:
        """Look at the other entries of the files, at the log's end."""
        end = self.max_offset
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
    def is_right(self) -> bool:
        """Have the files the right entry of each record?"""
        return not self._corrected

    @property
    def lacks_entries(self) -> bool:
        return any(run.what == NO_ENTRY for run in self._wrong)

    @property
    def last_entered(self) -> int:
        """Physical offset of the last record before the missing entries at the end; -1: none."""
        tail = missing_tail(self._wrong, self.max_offset)
        if not tail:
            return self.last_offset
        entry = self.entry(tail[-1].begin - 1)
        return entry.physical_offset if entry else -1

    def findings(self, log_end: int, last_entered: int) -> Iterator[Finding]:
        """All findings, after finish(); last_entered: the highest one of all queues."""
        tail = missing_tail(self._wrong, self.max_offset)
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
            text = f"{self.name}: no files for {sum(run.count for run, _ in without_files)} entries"
            is_leftover = all(is_leftover for _, is_leftover in without_files)
            yield Finding(
                path.parent, 0, NO_FILES, text, opening_mends=True, is_leftover=is_leftover
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
        text = []
        if found.physical_offset != at:
            text.append(f"points at {found.physical_offset}, its record is at {at}")
        if found.size != wanted.size:
            text.append(f"says {found.size} bytes, its record has {wanted.size}")
        if found.tags_code != wanted.tags_code:
            what = "deliver time" if self.wait_queue else "tags code"
            text.append(f"has {what} {found.tags_code}, its record {wanted.tags_code}")
        # The deliver time at a level is a promise, so opening does not change it.
        is_kept = self.wait_queue > 0 and found[:2] == wanted[:2]
        about = ("; it ".join(text), str(wanted), str(found))
        self._add(queue_offset, at, WRONG_ENTRY, *about, is_kept=is_kept)

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
                    text = f"an entry for {entry.physical_offset}, where the log has no such record"
                    self._add(at, entry.physical_offset, STRAY_ENTRY, text, is_kept=is_kept)

    def _add(
        self,
        queue_offset: int,
        record: int,
        what: str,
        text: str,
        expected: str = "",
        found: str = "",
        *,
        is_kept: bool = False,
    ) -> None:
        place = self.files.place_of(queue_offset)
        run = EntryRun(*place, what, queue_offset, record, text, expected, found, is_kept)
        add_run(self._wrong, run)


class QueueChecks:
    """All queues in the log or in the folders, and the progress of the schedule by the log."""

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
        self.progress = ScheduleProgress()
        self.queues: dict[QueueKey, QueueCheck] = {}
        """The opened queues."""
        self.unreadable: set[QueueKey] = set()
        self._found: list[Finding] = []
        self._files = files
        self._root = root
        self._file_bytes = file_bytes
        self._log_begin = log_begin
        self._persisted_ends = persisted_ends
        self._is_live = is_live

    def queue(self, topic: str, queue_id: int) -> QueueCheck:
        """A queue that can be opened."""
        queue = self.opened((topic, queue_id))
        assert queue is not None
        return queue

    def opened(self, key: QueueKey) -> QueueCheck | None:
        """A queue, or None if it cannot be opened; take_found() has its findings then."""
        if key in self.queues or key in self.unreadable:
            return self.queues.get(key)
        folder = queue_folder(self._root, key)
        self._found += look_at_folder(self._files, folder, self._file_bytes, is_live=self._is_live)
        try:
            files = self._open(key)
        except StoreDamaged as error:
            self.unreadable.add(key)
            self._found.append(from_error(error, UNREADABLE))
            return None
        ends = self._persisted_ends
        queue = self.queues[key] = QueueCheck(
            key,
            files,
            log_begin=self._log_begin,
            persisted_end=None if ends is None else ends.get(key, 0),
            dead_end=self.deleted.end_of(key),
            is_live=self._is_live,
        )
        return queue

    def take_found(self) -> list[Finding]:
        """The findings about files of the queues that were opened since the last call."""
        found, self._found = self._found, []
        return found

    def ranges(self) -> dict[QueueKey, tuple[int, int]]:
        """First and next queue offset of every queue with a record in the log."""
        return {
            key: (queue.first, queue.max_offset)
            for key, queue in self.queues.items()
            if queue.first is not None
        }

    @property
    def last_record(self) -> int:
        """Physical offset of the last record that belongs to a queue; -1: none."""
        return max((each.last_offset for each in self.queues.values()), default=-1)

    def findings(self, log_end: int) -> Iterator[Finding]:
        """The findings of every queue that was opened."""
        queues = list(self.queues.values())
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


@dataclass(slots=True)
class EntryRun:
    """begin: queue offset of the first entry.  record: physical offset of its record."""

    path: Path
    position: int
    what: str
    begin: int
    record: int
    text: str
    expected: str
    found: str
    is_kept: bool
    """Opening the store keeps the entry and does not mend it."""
    count: int = 1

    @property
    def end(self) -> int:
        return self.begin + self.count

    def goes_on(self, after: EntryRun) -> bool:
        """Is this run of the same kind as `after`, and right behind it?"""
        mine = (self.path, self.what, self.is_kept, self.begin)
        return mine == (after.path, after.what, after.is_kept, after.end)

    def drop_first(self) -> None:
        """Remove the first entry, which is not wrong any more."""
        self.begin += 1
        self.position += ENTRY_BYTES
        self.count -= 1

    def finding(self, name: str, *, is_mended: bool, is_leftover: bool) -> Finding:
        """name: the queue's."""
        text = f"{name}, queue offset {self.begin}: {self.text}"
        if self.count > 1:
            text += f"; the same up to queue offset {self.end - 1}"
        return Finding(
            self.path,
            self.position,
            self.what,
            text,
            self.expected,
            self.found,
            size=self.count * ENTRY_BYTES,
            opening_mends=is_mended,
            count=self.count,
            is_leftover=is_leftover,
        )


def add_run(runs: list[EntryRun], run: EntryRun) -> None:
    """Add a run, or extend the last one if it continues there."""
    if runs and run.goes_on(runs[-1]):
        runs[-1].count += run.count
    else:
        runs.append(run)


def missing_tail(runs: Sequence[EntryRun], end: int) -> list[EntryRun]:
    """The runs of missing entries up to the end of their queue, the last one first."""
    tail: list[EntryRun] = []
    for run in reversed(runs):
        if run.what == NO_ENTRY:
            if run.end != end:
                break
            tail.append(run)
            end = run.begin
    return tail


def has_hash(wait_queue: int, found: Entry, wanted: Entry) -> bool:
    """Is it a timer's entry as RocketMQ writes it: right, but for a hash in place of the time?"""
    is_timer = wait_queue == TIMERS and found[:2] == wanted[:2]
    return is_timer and found.tags_code < HASH_END
