"""What the log says of each queue against what the queue's files say, in blocks.

The walk hands over the entry that each record should have; block by block the bytes are
compared, and only where they differ one entry is looked at.  What is wrong is kept back
until the log's end is reached: a topic that was made again begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.errors import StoreDamaged
from rmqlite.levels import LevelHistory
from rmqlite.names import SCHEDULE_TOPIC
from rmqlite.store.checking.file_layer import FileLayer
from rmqlite.store.checking.finding import Finding, from_error
from rmqlite.store.checking.folders import look_at_folder, queue_folder, queue_name
from rmqlite.store.checking.key_hashes import topic_prefix
from rmqlite.store.consume_queue import ENTRY, ENTRY_BYTES, PRE_BLANK, ConsumeQueue, Entry
from rmqlite.store.dispatch import QueueKey
from rmqlite.store.segments import is_zeros

BLOCK_ENTRIES: Final = 8192
BLOCKS_MAX: Final = 128
"""How many blocks of a queue are kept at hand: a million entries, 20 MB."""
WAITING_ENTRIES_MAX: Final = 1 << 20
"""When so many wait in all queues together, all are compared."""
CORRECTED_MAX: Final = 100_000
"""So many wrong entries of a queue are remembered as they should be."""
NO_ENTRY: Final = "missing-entry"
WRONG_ENTRY: Final = "wrong-entry"
STRAY_ENTRY: Final = "entry-without-record"
WRONG_ENTRIES: Final = (NO_ENTRY, WRONG_ENTRY, STRAY_ENTRY)
NO_FILES: Final = "missing-queue"
UNREADABLE: Final = "unreadable-queue"


class Moment(NamedTuple):
    """What a walk had met at some point.

    queues: first and next queue offset.  completed: by level, ranges of queue offsets.
    pending: by level and topic, how many messages wait.
    """

    queues: dict[QueueKey, tuple[int, int]]
    completed: dict[int, list[tuple[int, int]]]
    pending: dict[int, dict[str, int]]


class QueueCheck:
    """One queue; `next` is the queue offset that the log's next record of it should have."""

    __slots__ = (
        *("_compared", "_corrected", "_is_live", "_log_begin", "_blocks"),
        *("_wrong", "files", "first", "is_settled", "key", "last_offset", "level", "missing"),
        *("name", "next", "persisted_end", "prefix", "wanted"),
    )

    def __init__(
        self,
        key: QueueKey,
        files: ConsumeQueue,
        *,
        log_begin: Callable[[], int],
        persisted_end: int,
        is_live: bool,
    ) -> None:
        """log_begin: the log's minimum now.  From persisted_end on opening makes entries anew."""
        self.key = key
        self.name = queue_name(key)
        self.prefix = topic_prefix(key[0])
        """With it the hashes of its messages' keys begin."""
        self.files = files
        self.level = key[1] + 1 if key[0] == SCHEDULE_TOPIC else 0
        self.first: int | None = None
        """The first queue offset that the log has; None: no record of it is left."""
        self.next = files.files_begin
        self.last_offset = -1
        """Physical offset of the last record."""
        self.wanted = bytearray()
        """The entries that should be there and are not compared yet; they end at `next`."""
        self.persisted_end = persisted_end
        self.missing = 0
        self.is_settled = True
        """False: files are so wrong that nothing can be looked up in them."""
        self._log_begin = log_begin
        self._is_live = is_live
        self._wrong: list[_Run] = []
        self._corrected: dict[int, Entry] = {}
        self._compared = self.next
        self._blocks: dict[int, bytes] = {}

    def begin_at(self, queue_offset: int) -> None:
        """The log's next record of this queue is this one, whatever was before."""
        self.wanted.clear()
        self._wrong.clear()
        self._corrected.clear()
        self._blocks.clear()
        self.missing = 0
        self.is_settled = True
        self.first = self.next = self._compared = queue_offset
        self.files.begin_at(queue_offset)

    def want(self, entry: Entry) -> None:
        """The log's next record of this queue should have this entry."""
        self.wanted += ENTRY.pack(*entry)
        self.next += 1

    def skip_to(self, queue_offset: int) -> None:
        """The log has nothing between; what the files hold there cannot be judged."""
        self.compare()
        self.next = self._compared = queue_offset
        self.files.advance(queue_offset)

    def compare(self) -> None:
        """All that waits with what the files hold."""
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
        """The entry as the log wants it; None outside of what was walked."""
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
        """Entries as the files have them; what lies before the files reads as zeros."""
        start = number * BLOCK_ENTRIES
        before = max(0, self.files.files_begin - start)
        count = min(BLOCK_ENTRIES, self._compared - start) - before
        data = self.files.bytes_at(start + before, count)
        return bytes(before * ENTRY_BYTES) + data.ljust(count * ENTRY_BYTES, b"\0")

    def ending_at(self, physical_offset: int, near: int) -> int | None:
        """The queue offset of the record that ends there, likely at or soon behind near."""
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

    def findings(self, log_end: int) -> Iterator[Finding]:
        """All of this queue, once the log's end is reached."""
        self.compare()
        if self.missing and not self.files.has_files:
            path, _ = self.files.place_of(self.first or 0)
            said = f"{self.name}: no files for {self.missing} entries"
            yield Finding(path.parent, 0, NO_FILES, said, opening_mends=True)
            self._wrong = [run for run in self._wrong if run.what != NO_ENTRY]
        end = self.next
        if self.first is None:
            end = self.files.recovered_end(log_end)
        begin = end if self.first is None else self.first
        self._compare_rest(self.files.files_begin, begin, is_kept=True)
        if not self._is_live:
            self._compare_rest(end, self.files.files_end)
        for run in self._wrong:
            is_filed = self.files.files_begin <= run.begin < self.files.files_end
            is_mended = not is_filed or (run.begin >= self.persisted_end and not run.is_kept)
            yield run.finding(self.name, is_mended=is_mended)

    def _there(self, begin: int, count: int) -> bytes:
        """Entries as the files hold them; what lies before the first file reads as zeros."""
        missing = max(0, min(count, self.files.files_begin - begin))
        there = self.files.bytes_at(begin + missing, count - missing)
        return bytes(missing * ENTRY_BYTES) + there if missing else there

    def _compare(self, queue_offset: int, found: Entry, wanted: Entry) -> None:
        if wanted.physical_offset < self._log_begin():
            # Retention has taken it meanwhile.
            return
        if len(self._corrected) < CORRECTED_MAX:
            self._corrected[queue_offset] = wanted
        else:
            self.is_settled = False
        self._blocks.clear()
        at = wanted.physical_offset
        if found.size == 0:
            self.missing += 1
            self._add(queue_offset, NO_ENTRY, f"no entry for the record at {at}")
            return
        said = []
        if found.physical_offset != at:
            said.append(f"points at {found.physical_offset}, its record is at {at}")
        if found.size != wanted.size:
            said.append(f"says {found.size} bytes, its record has {wanted.size}")
        if found.tags_code != wanted.tags_code:
            what = "deliver time" if self.level else "tags code"
            said.append(f"has {what} {found.tags_code}, its record {wanted.tags_code}")
        # A deliver time is a promise, which opening keeps.
        is_kept = bool(self.level) and found[:2] == wanted[:2]
        whole = "; it ".join(said)
        self._add(queue_offset, WRONG_ENTRY, whole, str(wanted), str(found), is_kept=is_kept)

    def _compare_rest(self, begin: int, end: int, *, is_kept: bool = False) -> None:
        """Entries without a record: only what points before the log, and zeros at the end."""
        begin, end = max(begin, self.files.files_begin), min(end, self.files.files_end)
        for offset, data in self.files.data_blocks(begin, end, BLOCK_ENTRIES):
            if is_zeros(data):
                continue
            log_begin = self._log_begin()
            for at, raw in enumerate(ENTRY.iter_unpack(data[: len(data) // 20 * 20]), offset):
                entry = Entry._make(raw)
                is_past = entry.size > 0 and entry.physical_offset < log_begin
                if any(entry) and not is_past and ENTRY.pack(*entry) != PRE_BLANK:
                    said = f"an entry for {entry.physical_offset}, where the log has no such record"
                    self._add(at, STRAY_ENTRY, said, is_kept=is_kept)

    def _add(
        self,
        queue_offset: int,
        what: str,
        said: str,
        expected: str = "",
        found: str = "",
        *,
        is_kept: bool = False,
    ) -> None:
        path, position = self.files.place_of(queue_offset)
        last = self._wrong[-1] if self._wrong else None
        if last is not None and last.goes_on(path, what, queue_offset, is_kept=is_kept):
            last.count += 1
        else:
            run = _Run(path, position, what, queue_offset, said, expected, found, is_kept)
            self._wrong.append(run)


@dataclass(slots=True)
class _Run:
    """Wrong entries one behind the other, told with the first; is_kept: by opening."""

    path: Path
    position: int
    what: str
    begin: int
    said: str
    expected: str
    found: str
    is_kept: bool
    count: int = 1

    def goes_on(self, path: Path, what: str, queue_offset: int, *, is_kept: bool) -> bool:
        """Does another one follow the last one of this run?"""
        follows = (path, what, queue_offset, is_kept)
        return follows == (self.path, self.what, self.begin + self.count, self.is_kept)

    def finding(self, name: str, *, is_mended: bool) -> Finding:
        said = f"{name}, queue offset {self.begin}: {self.said}"
        if self.count > 1:
            said += f"; the same up to queue offset {self.begin + self.count - 1}"
        return Finding(
            *(self.path, self.position, self.what, said, self.expected, self.found),
            size=self.count * ENTRY_BYTES,
            opening_mends=is_mended,
        )


class QueueChecks:
    """All queues that the log or the folders have."""

    def __init__(
        self,
        files: FileLayer,
        root: Path,
        file_bytes: int,
        levels: LevelHistory,
        *,
        log_begin: Callable[[], int],
        persisted_ends: dict[QueueKey, int] | None,
        is_live: bool,
    ) -> None:
        """persisted_ends: as of the last persist; None: opening makes all queues anew."""
        self.levels = levels
        self.waiting = 0
        """How many entries wait for being compared, about."""
        self._files = files
        self._root = root
        self._file_bytes = file_bytes
        self._log_begin = log_begin
        self._persisted_ends = persisted_ends
        self._is_live = is_live
        self._queues: dict[QueueKey, QueueCheck | None] = {}

    def opened(self, key: QueueKey) -> tuple[QueueCheck | None, list[Finding]]:
        """A queue, None if it cannot be opened; what is wrong with it is told the first time."""
        if key in self._queues:
            return self._queues[key], []
        folder = queue_folder(self._root, key)
        found = look_at_folder(self._files, folder, self._file_bytes, is_live=self._is_live)
        try:
            files = ConsumeQueue(self._files, folder, self._file_bytes)
        except StoreDamaged as error:
            self._queues[key] = None
            return None, [*found, from_error(error, UNREADABLE)]
        ends = self._persisted_ends
        queue = QueueCheck(
            *(key, files),
            log_begin=self._log_begin,
            persisted_end=0 if ends is None else ends.get(key, 0),
            is_live=self._is_live,
        )
        self._queues[key] = queue
        return queue, found

    def get(self, key: QueueKey) -> QueueCheck | None:
        return self._queues.get(key)

    def has_topic(self, topic: str) -> bool:
        """Was any queue of a topic met?"""
        return any(name == topic for name, _ in self._queues)

    def is_unreadable(self, key: QueueKey) -> bool:
        return key in self._queues and self._queues[key] is None

    def ranges(self) -> dict[QueueKey, tuple[int, int]]:
        """First and next queue offset of every queue of which the log had a record."""
        return {
            key: (queue.first, queue.next)
            for key, queue in self._queues.items()
            if queue is not None and queue.first is not None
        }

    def compare_all(self) -> None:
        """What waits in every queue; bounds what that takes of memory."""
        self.waiting = 0
        for queue in self._queues.values():
            if queue is not None:
                queue.compare()

    def findings(self, log_end: int) -> Iterator[Finding]:
        """Of every queue that was opened."""
        for queue in self._queues.values():
            if queue is not None:
                yield from queue.findings(log_end)
