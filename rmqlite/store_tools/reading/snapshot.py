"""The state of a store at one moment, found without changing it: the ends of log and queues.

The tables under config/ have the progress of queues and deliveries up to some physical
offset.  From there the log is walked to its end, as at an opening, but nothing is cut,
written or mended.  Up to that offset the queues' files are trusted, behind it only the log;
so it does not matter whether the writer runs, was stopped or was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rmqlite.kernel.config.table_shapes import DelayOffsetsTable, ProgressTable
from rmqlite.kernel.records import record
from rmqlite.kernel.records.queue_entry import ENTRY_BYTES, Entry
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of, wait_queue_of, when_due_ms
from rmqlite.kernel.store.commit_log import CHECKSUMS
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.deleted_topics import load_deleted
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.segments import Segments, last_file
from rmqlite.kernel.store.dispatch import QueueKey, queue_keys
from rmqlite.kernel.store.key_index import KeyIndex, recorded
from rmqlite.kernel.store.log.checksums import Checksums, Point
from rmqlite.kernel.store.log.log_walk import LogWalk
from rmqlite.kernel.store.log.repaired_place import is_anonymous
from rmqlite.kernel.store.opening.adoption import NEEDLE, TimerAdoption, is_foreign_store
from rmqlite.kernel.store.opening.file_sizes import Sizes
from rmqlite.kernel.store.opening.recovery import (
    DELAY_OFFSET_TABLE,
    LEVELS_TABLE,
    PROGRESS_TABLE,
    kept_before_ms,
    load_levels,
)
from rmqlite.kernel.store.progress import ScheduleProgress
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.logged_tables import Logged, LoggedTables, Read, changes_in
from rmqlite.kernel.store.walk import Redo
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.kernel.words.names import TABLES_TOPIC
from rmqlite.store_tools.reading.log_view import ChainView, LiveFiles, LogView, listed, windows
from rmqlite.store_tools.reading.queue_view import QueueView, WaitView, end_in_files

FOREIGN_BYTES: Final = 4 << 30
"""If the log is this much longer than rmqlite's progress, RocketMQ has run on it since."""
_CHECKPOINT_MARGIN_MS: Final = 3_000
Report = Callable[[int, int], None]
"""Is called with the bytes of the log that have been read, and that there are to read."""


class Snapshot:
    """A store at the moment when this object was made."""

    def __init__(
        self,
        files: LiveFiles,
        root: Path,
        sizes: Sizes,
        levels: LevelTable,
        *,
        is_crashed: bool,
        skip_damaged: bool = False,
        only_ends: bool = False,
    ) -> None:
        """skip_damaged: walk on behind damage, skip missing records of a queue, and trust the
        queues' files only as far as storeProgress.json covers them, as an opening does.
        only_ends: see Redo.

        Raises StoreDamaged for folders and tables that do not fit, StoreUnavailable.
        """
        self._files = files
        self._root = root
        self._sizes = sizes
        self._skips_damaged = skip_damaged
        # Before the tables: a broker that opens the store now saves its progress first.
        self.is_foreign = is_foreign_store(files, root)
        # Tables before the log: then the log has every record that they count.
        self.progress = ScheduleProgress()
        self._taken_at: int | None = None
        """Where the progress was taken; None if it is only that of the records walked over."""
        self._is_settled = False
        self.delivered = self._load_delay_offsets()
        """By level: RocketMQ, or rmqlite, has delivered the queue offsets below."""
        self.persisted = persisted = self._load_progress()
        self.progress_offset = persisted.physical_offset if persisted else None
        """The physical offset of the last persist; None without one."""
        self._lengthen(persisted)
        self.log = LogView(files, root / "commitlog", sizes.log_file_bytes)
        self.begin = self.log.begin
        # After the progress: a topic that was deleted in between must not look damaged.
        self.tables = self._read_tables(persisted)
        self.levels = load_levels(self.tables, levels)
        self.deleted = load_deleted(self.tables)
        self.damage: StoreDamaged | None = None
        """The error at the log's end, if the log ends in damage."""
        self.queues: dict[QueueKey, QueueView] = {}
        self._wait_views: dict[int, WaitView] = {}
        self.newest_timestamp_ms = 0
        self.known_end = self._take_known(persisted, is_crashed=is_crashed)
        """Up to this physical offset the queues' files have an entry for every record."""
        self.end = self.known_end
        """One past the last sound record; a reader shows only records before."""
        self._kept_before_ms = kept_before_ms(self.tables, self.levels, is_foreign=self.is_foreign)
        self._only_ends = only_ends
        self._redo = self._new_redo()
        self._walk()
        for key, queue in self.queues.items():
            if wait_queue := wait_queue_of(*key):
                view = WaitView(queue, self.progress.of(wait_queue), self._due_of)
                view.settle(self.delivered.get(wait_queue, 0))
                self._wait_views[wait_queue] = view

    def last_timestamp_ms(self) -> int:
        """The store timestamp of the last record, even if no walk has read it; 0 for none."""
        last = self.log.last_record_before(self.end) if self.end > self.begin else None
        return last.store_timestamp_ms if last else self.newest_timestamp_ms

    def wait_view(self, wait_queue: int) -> WaitView | None:
        """The view of a wait queue; None if it never had messages.  See settle_timers()."""
        if wait_queue == TIMERS:
            self.settle_timers()
        return self._wait_views.get(wait_queue)

    def settle_timers(self, report: Report | None = None) -> None:
        """Find out which timers are pending, as the next opening will: once, if somebody asks.

        It reads the log if the next opening will take over timers of RocketMQ's.
        """
        view = None if self._is_settled else self._wait_views.get(TIMERS)
        self._is_settled = True
        if view is not None and (self.is_foreign or self._taken_at is None):
            begin = self.begin if self._taken_at is None else self._taken_at
            complete_timers(view, self.progress, self.log, begin, self.end, report)

    def wait_queues_used(self) -> list[int]:
        return sorted(self._wait_views)

    def chains(self) -> ChainView:
        """A comparison of the log with its checksums, for one search."""
        known = self.persisted
        point = Point(known.physical_offset, known.checksum) if known and known.checksum else None
        folder = self._root / CHECKSUMS
        return ChainView(self.log, Checksums(self._files, folder, self.log.segments), point)

    def key_index(self) -> KeyIndex | None:
        """The index, if it has all records before known_end."""
        known = self.persisted
        if known is None or known.physical_offset != self.known_end:
            return None
        return _vouched_index(self._files, self._root / "index", known.index, self.begin)

    # ---- the state that needs no walk

    def _take_known(self, persisted: ProgressTable | None, *, is_crashed: bool) -> int:
        """Take queues and progress from tables and files; returns the end of what they cover."""
        position = self._take_told(persisted, is_crashed=is_crashed)
        if all(self._is_filed(queue) for queue in self.queues.values()):
            return position
        # As at an opening: if a queue's files do not fit, everything comes from the log.
        return self._begin_anew()

    def _begin_anew(self) -> int:
        """Forget everything that tables, files and the log have told; returns the log's begin."""
        self.queues.clear()
        self.progress = ScheduleProgress()
        self._taken_at = None
        self.damage = None
        self.begin = self.log.begin
        return self.begin

    def _take_told(self, persisted: ProgressTable | None, *, is_crashed: bool) -> int:
        if persisted is None:
            # With rmqlite's own table the log alone has the deliveries, so it is walked.
            is_walked = self.tables.has(LEVELS_TABLE) or self._skips_damaged
            return self.begin if is_walked else self._take_files(is_crashed=is_crashed)
        position = persisted.physical_offset
        if not self.log.has_record_before(position):
            return self.begin
        self.progress = ScheduleProgress.from_json(persisted.completed)
        self._taken_at = position
        if self._is_far_behind(position) and not self._skips_damaged:
            return self._take_files(is_crashed=is_crashed)
        self.newest_timestamp_ms = persisted.newest_timestamp
        emptied = {key: (end, end) for key, end in self.deleted.emptied_after(position)}
        for key, (low, high) in (persisted.ranges() | emptied).items():
            self._add_queue(key, low, high)
        return position

    def _is_far_behind(self, position: int) -> bool:
        return self.log.end_of_files - self.log.segment_bytes - position > FOREIGN_BYTES

    def _read_tables(self, persisted: ProgressTable | None) -> LoggedTables:
        if persisted is None:
            return tables_in(self._files, self._root, self.log.segments, self.begin, {})
        begin = persisted.physical_offset
        if self._is_far_behind(begin):
            begin = self.log.end_of_files
        return tables_in(self._files, self._root, self.log.segments, begin, persisted.tables)

    def _lengthen(self, persisted: ProgressTable | None) -> None:
        """Show a shortened last log file with its length, which the next opening restores."""
        if persisted is not None and persisted.log_file_bytes == self._sizes.log_file_bytes:
            path = last_file(self._files, self._root / "commitlog")
            if path is not None and 0 < self._files.size(path) < persisted.log_file_bytes:
                self._files.lengthened[path] = persisted.log_file_bytes

    def _take_files(self, *, is_crashed: bool) -> int:
        """Take queues from RocketMQ's files; returns the physical offset that they cover.

        They lag behind the log by a moment, or by the entries that a power cut took.
        """
        ends: dict[QueueKey, tuple[int, int]] = {}
        lasts = []
        for key in queue_keys(self._files, self._root):
            queue = self.open_queue(key)
            ends[key] = queue.files_begin, end_in_files(queue)
            entry = queue.read_beyond(ends[key][1] - 1) if ends[key][1] > ends[key][0] else None
            if entry is not None:
                lasts.append((entry.physical_offset + entry.size, key, entry))
        position = self.begin
        for end, key, entry in sorted(lasts, reverse=True):
            if self.is_entry_of(key, ends[key][1] - 1, entry):
                position = min(end, self._checkpoint_start()) if is_crashed else end
                break
        if position > self.begin:
            for key, (low, high) in ends.items():
                self._add_queue(key, low, high).clip(position)
        return position

    def _is_filed(self, queue: QueueView) -> bool:
        """Do a queue's files fit the log?  Only the last entry is compared."""
        if queue.filed <= queue.low:
            return True
        entry = queue.entry(queue.filed - 1)
        if entry is None:
            return False
        if entry.physical_offset < self.begin:
            return True
        return self.is_entry_of(queue.key, queue.filed - 1, entry)

    def _checkpoint_start(self) -> int:
        """The start of the file from which RocketMQ would recover (reference §4.2)."""
        data = self._files.read_all(self._root / "checkpoint") or b""
        synced_ms = min(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:16], "big"))
        for start in reversed(self.log.segments.starts):
            first_ms = self.log.timestamp_at(start)
            if first_ms is not None and first_ms <= synced_ms - _CHECKPOINT_MARGIN_MS:
                return start
        return self.begin

    def is_entry_of(self, key: QueueKey, queue_offset: int, entry: Entry) -> bool:
        """Does an entry at a queue offset point at that record of the queue?"""
        found = self.log.head_at(entry.physical_offset)
        if found is None:
            return False
        head = found.head
        own = (head.topic, head.queue_id, head.queue_offset, head.size)
        return own == (*key, queue_offset, entry.size) or is_anonymous(head)

    # ---- the walk

    def _walk(self) -> None:
        """Walk from known_end to the log's end, as LogEnd defines it."""
        position: int | None = self.known_end
        while position is not None:
            position = self._walk_from(position)
        self._redo.write()

    def _walk_from(self, begin: int) -> int | None:
        """Walk to the log's end or to damage; returns where to go on, or None."""
        segments, upto = self.log.segments, self.log.end_of_files
        walk = LogWalk(segments, begin, upto, check_bodies=True, take=self._take_plain)
        enter = self._redo.enter
        for window in walk:
            if self._is_overtaken(walk):
                break
            for head in window.heads:
                if b"\0" in head.properties and self.log.log_end.is_torn(head):
                    return None
                record = Record(head, window.data)
                try:
                    enter(record)
                except StoreDamaged as error:
                    # It cannot be its queue's next.
                    self.damage = error
                    if not self._skips_damaged:
                        return None
                    with suppress(StoreDamaged):
                        enter(record, is_forced=True)
                self.end = head.physical_offset + head.size
                self.newest_timestamp_ms = max(self.newest_timestamp_ms, head.store_timestamp_ms)
        if self._is_overtaken(walk):
            self.known_end = self.end = self._begin_anew()
            self._redo = self._new_redo()
            return self.begin
        damage = self._judged(walk.position) if walk.is_stuck else None
        self.damage = self.damage or damage
        is_over = damage is None or not self._skips_damaged
        return None if is_over else self.log.log_end.next_sound(walk.position, 0)

    def _new_redo(self) -> Redo:
        return Redo(self, self.log.segments, self._kept_before_ms, only_ends=self._only_ends)

    def _take_plain(self, data: bytes, at: int, base: int) -> int:
        plain = self._redo.plain(data, at, base, len(data))
        if plain.at > at:
            self.end = base + plain.at
            self.newest_timestamp_ms = max(self.newest_timestamp_ms, plain.newest_timestamp_ms)
        return plain.at

    def _is_overtaken(self, walk: LogWalk) -> bool:
        """Has retention removed files before the walk came to them?

        Then queues lack their records, and scheduled records their deliveries.
        """
        return bool(walk.gone_before) and self.log.begin > self.begin

    def _judged(self, position: int) -> StoreDamaged | None:
        """The error for a position without a sound record; None if the log ends there."""
        try:
            self.log.log_end.check(position, self.newest_timestamp_ms, self.progress_offset or 0)
        except StoreDamaged as error:
            # The writer may have completed the record meanwhile.
            return None if self.log.sound_at(position) else error
        return None

    def _due_of(self, wait_queue: int, physical_offset: int) -> int:
        """The deliver time that an opening would put in place of RocketMQ's hash."""
        found = self.log.head_at(physical_offset)
        if found is None:
            raise self.log.damage(physical_offset)
        stored_ms, properties = found.head.store_timestamp_ms, found.properties.encoded
        return when_due_ms(self.levels, *queue_of(wait_queue), stored_ms, properties)

    # ---- parts

    def queue(self, topic: str, queue_id: int) -> QueueView:
        """The queue; an empty one is made if there is none."""
        key = (topic, queue_id)
        return self.queues.get(key) or self._add_queue(key, 0, 0)

    def _add_queue(self, key: QueueKey, low: int, high: int) -> QueueView:
        queue = QueueView(
            key,
            lambda: self.open_queue(key),
            low=low,
            high=high,
            file_entries=self._sizes.queue_file_bytes // ENTRY_BYTES,
            log_begin=self.begin,
        )
        self.queues[key] = queue
        return queue

    def queue_files(self, key: QueueKey) -> ConsumeQueue:
        """A queue's files, as they were listed when they were first used.  Raises StoreDamaged."""
        view = self.queues.get(key)
        return view.files if view else self.open_queue(key)

    def open_queue(self, key: QueueKey) -> ConsumeQueue:
        """A queue's files as they are now.  Raises StoreDamaged."""
        folder = self._root / "consumequeue" / key[0] / str(key[1])
        return listed(lambda: ConsumeQueue(self._files, folder, self._sizes.queue_file_bytes))

    def _load_delay_offsets(self) -> dict[int, int]:
        path = self._root / "config" / DELAY_OFFSET_TABLE
        known = tables.load_as(self._files, path, DelayOffsetsTable)
        return known.offset_table if known else {}

    def _load_progress(self) -> ProgressTable | None:
        try:
            path = self._root / "config" / PROGRESS_TABLE
            return tables.load_as(self._files, path, ProgressTable)
        except StoreDamaged:
            # Opening the store rebuilds it; until then the log must do.
            return None


def _vouched_index(
    files: Files, folder: Path, state: Mapping[str, Any] | None, log_begin: int
) -> KeyIndex | None:
    """The index, if it has every record from the log's beginning up to where it was persisted.

    storeProgress.json has its state there, and the files must have grown from that.  Those of a
    store that only RocketMQ wrote may lack keys.
    """
    known = recorded(state)
    if known is None:
        return None
    shape, headers = known
    index = KeyIndex.reading(files, folder, slots=shape.slots, entries=shape.entries)
    try:
        there = index.headers()
    except (StoreDamaged, StoreUnavailable):
        return None
    for name, header in headers.items():
        grown = there.get(folder / name)
        if grown is None and header.end_offset < log_begin:
            # Retention removed it, together with its records.
            continue
        if grown is None or not header.can_become(grown):
            return None
    return index


def complete_timers(
    view: WaitView,
    progress: ScheduleProgress,
    log: LogView,
    begin: int,
    end: int,
    report: Report | None = None,
) -> None:
    """Complete the timers that are not pending at physical offset `end`.

    progress: as it was at physical offset `begin`, and with all that our own records complete.
    """
    oldest = view.queue.entry(view.queue.min_offset)
    if oldest is None:
        return
    adoption = TimerAdoption(progress)
    adoption.load(_pending_before(view, log, begin))
    begin = max(begin, oldest.physical_offset)
    for position, (heads, data) in windows(log, begin, end, needle=NEEDLE):
        for head in heads:
            if record.has_entry(head.sys_flag):
                adoption.see(Record(head, data))
        if report is not None:
            report(position - begin, end - begin)


def _pending_before(
    view: WaitView, log: LogView, physical_offset: int
) -> Iterator[tuple[int, Record | None]]:
    queue = view.queue
    for queue_offset in view.completed.open_between(queue.min_offset, queue.max_offset):
        entry = queue.entry(queue_offset)
        if entry is None or entry.physical_offset >= physical_offset:
            return
        yield queue_offset, log.head_at(entry.physical_offset)


def tables_in(
    files: Files,
    root: Path,
    segments: Segments,
    begin: int,
    ends: Mapping[str, int],
    read: Read = tables.load,
) -> LoggedTables:
    """The tables of a store that is only read; begin, ends: see replay()."""

    def between(start: int, end: int) -> list[Logged]:
        return [change for _, change in changes_in(segments, start, end) if change is not None]

    found = LoggedTables(files, root / "config", read)
    # A store of RocketMQ's has none, and its log may be long.
    if files.is_folder(root / "consumequeue" / TABLES_TOPIC):
        behind = between(begin, segments.end_position)
        found.replay(behind, begin, ends, lambda: between(segments.first_position, begin))
    return found
