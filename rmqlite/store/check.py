"""Yields every inconsistency of a store; opens nothing for writing and changes no byte.

The log is the truth.  It is walked as recovery walks it, past what is broken; what each
record promises is compared with the queues, each delivery with the schedule, and last the
tables with where all that ends.  The store must not be written to meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rmqlite.config import BrokerConfig
from rmqlite.errors import InvalidValue, StoreDamaged
from rmqlite.levels import LevelHistory, LevelTable
from rmqlite.names import SCHEDULE_TOPIC
from rmqlite.store import record, tables
from rmqlite.store.commit_log import CommitLog
from rmqlite.store.consume_queue import ENTRY, PRE_BLANK, ConsumeQueue, Entry
from rmqlite.store.dispatch import QueueKey, completes_scheduled
from rmqlite.store.files import Files, ReadOnlyFiles
from rmqlite.store.message_store import LEVELS_TABLE
from rmqlite.store.progress import ScheduleProgress
from rmqlite.store.record import Head
from rmqlite.store.recovery import DELAY_OFFSET_TABLE, PROGRESS_TABLE

_SCAN_ENTRIES: Final = 8192


@dataclass(frozen=True, slots=True)
class Finding:
    """One inconsistency; position: a byte of the file, 0 where all of it is meant."""

    path: Path
    position: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}: {self.sentence}"


def check(
    root: Path,
    *,
    log_file_bytes: int | None = None,
    queue_file_bytes: int | None = None,
    levels: LevelTable | None = None,
) -> Iterator[Finding]:
    """Every inconsistency of the store at root; nothing for a store that is sound.

    File sizes are the broker's mappedFileSize... values; when not given they are what the
    files say.  levels: what was in force if the store keeps no history of its tables.
    """
    files = ReadOnlyFiles()
    default = BrokerConfig()
    if log_file_bytes is None:
        sizes = _sizes(files, root / "commitlog")
        log_file_bytes = next(sizes, default.mapped_file_size_commit_log)
    if queue_file_bytes is None:
        queue_file_bytes = next(_queue_sizes(files, root), default.mapped_file_size_consume_queue)
    try:
        log = CommitLog(files, root / "commitlog", log_file_bytes)
        history = LevelHistory.starting_with(levels or default.levels)
        yield from _Check(files, root, log, queue_file_bytes, history).run()
    except StoreDamaged as error:
        yield _finding(error)
    finally:
        files.close()


class _Queue:
    """What the log says of one queue, beside what the queue's files say."""

    def __init__(self, key: QueueKey, files: ConsumeQueue) -> None:
        self.name = f"{key[0]} queue {key[1]}"
        self.files = files
        self.is_schedule = key[0] == SCHEDULE_TOPIC
        self.first: int | None = None
        """The first queue offset that the log has; None: no record of it is left."""
        self.next = files.files_begin
        self.wrong: list[Finding] = []
        """Kept back until the log's end: a topic made again starts anew."""
        self.missing = 0

    def begin_at(self, queue_offset: int) -> None:
        self.files.begin_at(queue_offset)
        self.first = self.next = queue_offset
        self.wrong.clear()
        self.missing = 0

    def compare(self, wanted: Entry) -> None:
        """The log's next record of this queue should have this entry."""
        queue_offset = self.next
        self.next += 1
        found = self.files.read_beyond(queue_offset)
        if found is None or found.size == 0:
            self.missing += 1
            if self.files.has_files:
                self.add(queue_offset, f"no entry for the record at {wanted.physical_offset}")
            return
        self.files.advance(queue_offset + 1)
        if found.physical_offset != wanted.physical_offset:
            said = f"points at {found.physical_offset}, its record is at {wanted.physical_offset}"
            self.add(queue_offset, said)
        if found.size != wanted.size:
            self.add(queue_offset, f"says {found.size} bytes, its record has {wanted.size}")
        if found.tags_code != wanted.tags_code:
            what = "deliver time" if self.is_schedule else "tags code"
            said = f"has {what} {found.tags_code}, its record {wanted.tags_code}"
            self.add(queue_offset, said)

    def add(self, queue_offset: int, said: str) -> None:
        path, position = self.files.place_of(queue_offset)
        sentence = f"{self.name}, queue offset {queue_offset}: {said}"
        self.wrong.append(Finding(path, position, sentence))

    def findings(self, log: CommitLog) -> Iterator[Finding]:
        """All of this queue, once the log's end is reached."""
        if self.missing and not self.files.has_files:
            path, _ = self.files.place_of(self.first or 0)
            yield Finding(path.parent, 0, f"{self.name}: no files for {self.missing} entries")
        yield from self.wrong
        self.wrong = []
        end = self.files.recovered_end() if self.first is None else self.next
        self._compare_rest(log, self.files.files_begin, end if self.first is None else self.first)
        self._compare_rest(log, end, self.files.files_end)
        yield from self.wrong

    def _compare_rest(self, log: CommitLog, begin: int, end: int) -> None:
        """Entries without a record: only what points before the log, and zeros at the end."""
        for offset in range(begin, end, _SCAN_ENTRIES):
            data = self.files.bytes_at(offset, min(_SCAN_ENTRIES, end - offset))
            if not any(data):
                continue
            for at, raw in enumerate(ENTRY.iter_unpack(data), offset):
                entry = Entry._make(raw)
                is_past = entry.size > 0 and entry.physical_offset < log.min_offset
                if any(entry) and not is_past and ENTRY.pack(*entry) != PRE_BLANK:
                    said = f"an entry for {entry.physical_offset}, where the log has no such record"
                    self.add(at, said)


class _Check:
    def __init__(
        self, files: Files, root: Path, log: CommitLog, queue_bytes: int, levels: LevelHistory
    ) -> None:
        self._files = files
        self._root = root
        self._log = log
        self._queue_bytes = queue_bytes
        self._levels = levels
        self._queues: dict[QueueKey, _Queue | None] = {}
        self._completed = ScheduleProgress()

    def run(self) -> Iterator[Finding]:
        yield from self._read_levels()
        yield from self._walk()
        for key in _queue_keys(self._files, self._root):
            if key not in self._queues:
                yield from self._open_queue(key)
        for queue in self._queues.values():
            if queue is not None:
                yield from queue.findings(self._log)
        yield from self._check_progress()
        yield from self._check_delay_offsets()

    def _read_levels(self) -> Iterator[Finding]:
        path = self._root / "config" / LEVELS_TABLE
        try:
            tree = tables.load(self._files, path)
            if tree is not None:
                self._levels = LevelHistory.from_json(tree)
        except StoreDamaged as error:
            yield _finding(error)
        except (InvalidValue, KeyError, TypeError, ValueError) as error:
            yield Finding(path, 0, f"not a table of delay levels: {error}")

    def _walk(self) -> Iterator[Finding]:
        """Every record, going on behind what is broken at the next that is sound."""
        log = self._log
        position: int | None = log.min_offset
        while position is not None:
            try:
                for walked in log.walk(position, to_end=True):
                    yield from self._check_record(walked.head)
                break
            except StoreDamaged as error:
                broken = int(Path(error.path).name) + error.position
                yield self._at(broken, f"{self._what_is_wrong(broken)}; records follow")
                position = log.next_sound(broken)
                if position is not None:
                    log.begin_at(position, log.newest_timestamp_ms)
        for end in (log.end, log.end + log.segment_bytes - log.end % log.segment_bytes):
            if log.has_bytes_from(end):
                what = self._what_is_wrong(end)
                if what:
                    yield self._at(end, f"{what}; nothing follows, so opening the store cuts it")
                    return

    def _what_is_wrong(self, position: int) -> str:
        """What stands where a record or a blank should; empty for a blank as it should be."""
        room = self._log.segment_bytes - position % self._log.segment_bytes
        data = self._log.read_raw(position, room)
        if len(data) < record.BLANK_BYTES:
            return "too few bytes for a record"
        size, magic = record.BLANK.unpack_from(data)
        if magic == record.BLANK_MAGIC:
            return "" if size == room else f"a blank of {size} bytes where {room} are left"
        if magic != record.MAGIC:
            return f"neither a record nor a blank: {data[:8].hex(' ', 4)}"
        head = record.read_head(data)
        if head is None:
            return f"a record of {size} bytes whose lengths do not add up"
        if head.physical_offset != position:
            return f"a record that says it is at {head.physical_offset}, not at {position}"
        return f"a record whose body does not fit its CRC {head.body_crc:#010x}"

    def _check_record(self, head: Head) -> Iterator[Finding]:
        transaction = head.sys_flag & record.TRANSACTION_TYPE
        if transaction not in (record.PREPARED, record.ROLLBACK):
            key = (head.topic, head.queue_id)
            if key not in self._queues:
                yield from self._open_queue(key)
            queue = self._queues[key]
            if queue is not None:
                yield from self._check_entry(queue, head)
        if completes_scheduled(head):
            yield from self._check_completed(head)

    def _open_queue(self, key: QueueKey) -> Iterator[Finding]:
        folder = self._root / "consumequeue" / key[0] / str(key[1])
        self._queues[key] = None
        try:
            self._queues[key] = _Queue(key, ConsumeQueue(self._files, folder, self._queue_bytes))
        except StoreDamaged as error:
            yield _finding(error)

    def _check_entry(self, queue: _Queue, head: Head) -> Iterator[Finding]:
        if queue.first is None or head.queue_offset < queue.next:
            queue.begin_at(head.queue_offset)
        elif head.queue_offset != queue.next:
            said = f"{queue.name}: queue offset {head.queue_offset} follows {queue.next - 1}"
            yield self._at(head.physical_offset, said)
            queue.next = head.queue_offset
        code = (
            self._levels.deliver_at_ms(head.queue_id + 1, head.store_timestamp_ms)
            if queue.is_schedule
            else record.tags_code(head.properties)
        )
        queue.compare(Entry(head.physical_offset, head.size, code))

    def _check_completed(self, head: Head) -> Iterator[Finding]:
        """A delivered record: of which scheduled one, the first time, and not too early?"""
        if head.completes <= self._log.min_offset:
            return
        level = record.delay_level(head.properties)
        queue = self._queues.get((SCHEDULE_TOPIC, level - 1))
        if (SCHEDULE_TOPIC, level - 1) in self._queues and queue is None:
            return
        queue_offset = queue.files.first_with(head.completes) - 1 if queue else -1
        entry = queue.files.entry(queue_offset) if queue else None
        if entry is None or entry.physical_offset + entry.size != head.completes:
            said = f"completes {head.completes}, where no record of level {level} ends"
            yield self._at(head.physical_offset, said)
            return
        if head.store_timestamp_ms < entry.tags_code:
            early_ms = entry.tags_code - head.store_timestamp_ms
            yield self._at(head.physical_offset, f"delivered {early_ms} ms early")
        completed = self._completed.level(level)
        if completed.next_open(queue_offset) != queue_offset:
            said = f"delivers queue offset {queue_offset} of level {level} again"
            yield self._at(head.physical_offset, said)
        completed.add(queue_offset, queue_offset + 1)

    def _check_progress(self) -> Iterator[Finding]:
        """Does storeProgress.json say more than the log?"""
        path = self._root / "config" / PROGRESS_TABLE
        tree: dict[str, Any] = {}
        try:
            tree = tables.load(self._files, path) or {}
            if tree.get("physicalOffset", 0) > self._log.end:
                said = f"says the log reaches {tree['physicalOffset']}, it ends at {self._log.end}"
                yield Finding(path, 0, said)
            for topic, ranges in tree.get("queues", {}).items():
                for queue_id, (_, high) in ranges.items():
                    yield from self._check_reach(path, (topic, int(queue_id)), high, "reaches")
            for level, completed in tree.get("completed", {}).items():
                upto = max((end for _, end in completed), default=0)
                key = (SCHEDULE_TOPIC, int(level) - 1)
                yield from self._check_reach(path, key, upto, "is completed up to")
        except StoreDamaged as error:
            yield _finding(error)
        except (TypeError, ValueError, AttributeError):
            yield Finding(path, 0, "not a table of progress")

    def _check_delay_offsets(self) -> Iterator[Finding]:
        path = self._root / "config" / DELAY_OFFSET_TABLE
        try:
            tree = tables.load(self._files, path) or {}
            for level, offset in tree.get("offsetTable", {}).items():
                key = (SCHEDULE_TOPIC, int(level) - 1)
                yield from self._check_reach(path, key, offset, "is delivered up to")
        except StoreDamaged as error:
            yield _finding(error)
        except (TypeError, ValueError, AttributeError):
            yield Finding(path, 0, "not a table of delay offsets")

    def _check_reach(self, path: Path, key: QueueKey, high: int, does: str) -> Iterator[Finding]:
        queue = self._queues.get(key)
        if key in self._queues and queue is None:
            return
        end = queue.next if queue else 0
        if queue and queue.first is None:
            end = queue.files.recovered_end()
        if high > end:
            name = f"{key[0]} queue {key[1]}"
            yield Finding(path, 0, f"says {name} {does} {high}, it ends at {end}")

    def _at(self, physical_offset: int, sentence: str) -> Finding:
        path = self._log.path_at(physical_offset)
        return Finding(path, physical_offset % self._log.segment_bytes, sentence)


def _finding(error: StoreDamaged) -> Finding:
    return Finding(Path(error.path), error.position, str(error))


def _sizes(files: Files, folder: Path) -> Iterator[int]:
    sizes = (files.size(folder / name) for name in files.names(folder))
    return (size for size in sizes if size)


def _queue_sizes(files: Files, root: Path) -> Iterator[int]:
    for topic, queue_id in _queue_keys(files, root):
        yield from _sizes(files, root / "consumequeue" / topic / str(queue_id))


def _queue_keys(files: Files, root: Path) -> Iterator[QueueKey]:
    folder = root / "consumequeue"
    for topic in files.names(folder):
        for queue_id in files.names(folder / topic):
            if queue_id.isascii() and queue_id.isdigit():
                yield topic, int(queue_id)
