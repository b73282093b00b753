"""Yields every inconsistency of a store; opens nothing for writing and changes no byte.

The log is the truth.  It is walked as recovery walks it, past damage, and all its bytes are
compared with their checksums.  The entry of each record is compared with the queues, each
delivery with the schedule, and at last the tables with the results.  While a broker writes to
the store, the walk ends where the log ends at that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of, wait_queue_name, wait_queue_of
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.store.consume_queue import codes_in
from rmqlite.kernel.store.deleted_topics import load_deleted
from rmqlite.kernel.store.disk.files import ReadOnlyFiles
from rmqlite.kernel.store.dispatch import QueueKey, queue_keys
from rmqlite.kernel.store.log.checksums import Point
from rmqlite.kernel.store.opening.file_sizes import Sizes, has_lengths, sizes_of
from rmqlite.kernel.store.opening.recovery import DELAY_OFFSET_TABLE, PROGRESS_TABLE, load_levels
from rmqlite.kernel.store.progress import ScheduleProgress
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.logged_tables import LoggedTables
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.kernel.words.levels import LevelHistory, LevelTable
from rmqlite.store_tools.checking.file_layer import (
    FileLayer,
    look_at_folder,
    look_at_root,
    queue_name,
)
from rmqlite.store_tools.checking.finding import Finding, Verdict, from_error, verdict
from rmqlite.store_tools.checking.index import IndexCheck, last_indexed
from rmqlite.store_tools.checking.log import LogCheck, Moment
from rmqlite.store_tools.checking.queues import QueueCheck, QueueChecks
from rmqlite.store_tools.checking.sums import SumsCheck
from rmqlite.store_tools.checking.tables import check_tables, check_timers, load_sound
from rmqlite.store_tools.reading.snapshot import tables_in

__all__ = ["Finding", "StoreCheck", "Verdict", "check", "is_store"]

AHEAD: Final = "table-ahead"
BEHIND: Final = "table-behind"
SCAN_ENTRIES: Final = 8_192
UNREADABLE_LOG: Final = "unreadable-log"
Progress = Callable[[int, int], None]
"""Receives the bytes done and the bytes in all, now and then."""


def check(
    root: Path,
    *,
    levels: LevelTable | None = None,
    progress: Progress | None = None,
) -> Iterator[Finding]:
    """Every inconsistency of the store at root; nothing for a store that is sound.

    See StoreCheck for the arguments.
    """
    checking = StoreCheck(
        root,
        levels=levels,
        progress=progress,
    )
    try:
        yield from checking.run()
    finally:
        checking.close()


def is_store(root: Path) -> bool:
    """Is there a store, or a part of one, to check?"""
    kind = ReadOnlyFiles().kind
    return any(kind(root / name) for name in ("commitlog", "consumequeue", "checkpoint"))


class StoreCheck:
    """One check of one store; its attributes are valid after run()."""

    def __init__(
        self,
        root: Path,
        *,
        config: BrokerConfig | None = None,
        sizes: Sizes | None = None,
        levels: LevelTable | None = None,
        progress: Progress | None = None,
        files: FileLayer | None = None,
        trusted_end: int = 0,
    ) -> None:
        """config: the broker's; it sets the sizes for a store without files.  sizes: the right
        lengths of the files, if the caller has them.  levels: the levels of a store without
        a history of its tables; default: the configured ones.  files: a layer to check instead
        of the files themselves.  trusted_end: a physical offset up to which the log was on
        disk, if farther than the store shows.  Raises ConfigInvalid and StoreDamaged, see
        sizes_of().
        """
        self.files = files or FileLayer()
        self.is_live = files is None and self.files.is_locked(root / "lock")
        """A broker has the store open."""
        self.is_closed = self.is_live or "abort" not in self.files.names(root)
        """False: the store's last process was killed."""
        self.messages = 0
        self.log_begin = self.log_end = 0
        """The physical offsets between which the log was checked."""
        self.saved_end: int | None = None
        """rmqlite saved queues, key index and progress up to this physical offset; None: never."""
        self.indexed_end: int | None = None
        """Without saved_end: the last record in the key index, if other records follow."""
        self.bytes_without_checksum = 0
        """RocketMQ wrote these bytes, or their checksums were not written yet."""
        self.log: CommitLog | None = None
        self._queues: QueueChecks | None = None
        self.walk: LogCheck | None = None
        """The walk over the log; None if the log cannot be read."""
        self.logged: LoggedTables | None = None
        """The tables as the log has them; None if the log cannot be read."""
        self._root = root
        self._trusted_end = trusted_end
        self.progress = progress
        self._config = config
        self._is_new = self.is_live and not sizes and not has_lengths(self.files, root)
        """The broker has still to make its first files, perhaps of other lengths than these."""
        self.sizes = sizes or sizes_of(self.files, root, config)
        self.levels_given = levels or (config.levels if config else None)
        self.levels = LevelHistory.starting_with(self.levels_given or BrokerConfig().levels)

    def close(self) -> None:
        self.files.close()

    @property
    def log_bytes(self) -> int:
        """The number of checked bytes of the log."""
        return self.log_end - self.log_begin

    def verdict(self, found: Sequence[Finding]) -> Verdict:
        """The verdict over all findings of run()."""
        return verdict(found, is_closed=self.is_closed)

    def has_levels(self) -> bool:
        """Has a level a queue, in the log or in the folders?"""
        known = self._queues.ranges() if self._queues else {}
        return any(wait_queue_of(*key) > 0 for key in {*known, *queue_keys(self.files, self._root)})

    def run(self) -> Iterator[Finding]:
        """Every inconsistency; those of the log in its order."""
        if not self._is_new:
            yield from self._run()
            return
        found, guessed = list(self._run()), self.sizes
        self.files.close()
        self.files = FileLayer()
        self.sizes = sizes_of(self.files, self._root, self._config)
        if self.sizes != guessed:
            found = list(self._run())
        yield from found

    def _run(self) -> Iterator[Finding]:
        # Read these tables first: all that they count is on disk, even while a broker goes on.
        config = self._root / "config"
        delay_offsets = load_sound(self.files, config / DELAY_OFFSET_TABLE) or {}
        persisted = load_sound(self.files, config / PROGRESS_TABLE)
        yield from look_at_root(self.files, self._root)
        yield from check_tables(self.files, self._root)
        folder = self._root / "commitlog"
        size = self.sizes.log_file_bytes
        yield from look_at_folder(self.files, folder, size, is_live=self.is_live)
        try:
            self.log = CommitLog(self.files, folder, size)
            yield from self._check(self.log, persisted, delay_offsets)
        except StoreDamaged as error:
            yield from_error(error, UNREADABLE_LOG)

    def _check(
        self, log: CommitLog, persisted: tables.Tree | None, delay_offsets: tables.Tree
    ) -> Iterator[Finding]:
        persisted_end = int(persisted["physicalOffset"]) if persisted else 0
        self.saved_end = persisted_end if persisted else None
        if not log.has_room_for(persisted_end):
            persisted_end = 0
        mark = log.log_end.mark_over(log.min_offset)
        trusted_end = max(persisted_end, mark.synced_end if mark else 0, self._trusted_end)
        sums = self._sums_check(log, persisted, persisted_end, trusted_end)
        self.logged = logged = self._tables(log, persisted, persisted_end)
        self.levels = load_levels(logged, self.levels.current)
        begin = log.begin_now
        queues = QueueChecks(
            self.files,
            self._root,
            self.sizes.queue_file_bytes,
            self.levels,
            log_begin=begin,
            persisted_ends=_persisted_ends(persisted),
            deleted=load_deleted(logged),
            is_live=self.is_live,
        )
        index = IndexCheck(
            self.files,
            self._root / "index",
            persisted.get("index") if persisted else None,
            persisted_end=persisted_end,
            log_begin=begin,
            is_live=self.is_live,
        )
        total = (trusted_end or log.min_offset) - log.min_offset
        walk = LogCheck(
            log,
            sums,
            queues,
            index,
            log_begin=begin,
            trusted_end=trusted_end,
            persisted_end=persisted_end,
            is_live=self.is_live,
            progress=lambda done: self._report(done, max(done, total)),
        )
        self.walk, self._queues = walk, queues
        yield from walk.run()
        self.messages = walk.records
        self.log_begin, self.log_end = log.min_offset, walk.end
        self.bytes_without_checksum = sums.bytes_without
        for key in queue_keys(self.files, self._root):
            queues.opened(key)
        yield from queues.take_found()
        yield from queues.findings(walk.end)
        changed = [(span.first.position, span.claim.position) for span, _ in walk.changed]
        yield from index.finish(walk.end, changed)
        yield from self._check_timers(persisted, queues)
        yield from self._check_saved(persisted, walk, queues)
        yield from self._check_delay_offsets(delay_offsets, queues)

    def _tables(
        self, log: CommitLog, persisted: tables.Tree | None, persisted_end: int
    ) -> LoggedTables:
        ends = persisted.get("tables", {}) if persisted and persisted_end else {}
        begin = persisted_end or log.min_offset
        return tables_in(self.files, self._root, log.segments, begin, ends, load_sound)

    def _sums_check(
        self, log: CommitLog, persisted: tables.Tree | None, persisted_end: int, trusted_end: int
    ) -> SumsCheck:
        point = None
        if persisted and persisted_end and "checksum" in persisted:
            point = Point(persisted_end, int(persisted["checksum"]))
        table = self._root / "config" / PROGRESS_TABLE
        marked_end = min(persisted_end, int(persisted.get("markedOffset", 0))) if persisted else 0
        return SumsCheck(
            log, point, table, trusted_end, marked_end=marked_end, is_live=self.is_live
        )

    def _check_saved(
        self, persisted: tables.Tree | None, walk: LogCheck, queues: QueueChecks
    ) -> Iterator[Finding]:
        """Compare the tables of the last persist with the log."""
        if persisted is None:
            indexed = last_indexed(self.files, self._root / "index")
            is_behind = indexed is not None and indexed < queues.last_record
            self.indexed_end = indexed if is_behind else None
        else:
            found = list(self._check_progress(persisted, walk, queues))
            yield from found
            if not found and "pending" in persisted and walk.at_persisted is not None:
                yield from self._check_pending(persisted, walk.at_persisted)

    def _check_timers(
        self, persisted: tables.Tree | None, queues: QueueChecks
    ) -> Iterator[Finding]:
        """Compare the timers' table with their queue, unless that has faults of its own."""
        queue = queues.queues.get(queue_of(TIMERS))
        if self.is_live or queue is None or not queue.is_right:
            return
        completed = queues.progress.of(TIMERS)
        if persisted is not None:
            # RocketMQ may have delivered some, which the log does not show.
            recorded = ScheduleProgress.from_json(persisted["completed"], persisted.get("pending"))
            completed = completed.union(recorded.of(TIMERS))
        yield from check_timers(self.files, self._root, queue, completed)

    def _report(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)

    def _check_progress(
        self, tree: tables.Tree, walk: LogCheck, queues: QueueChecks
    ) -> Iterator[Finding]:
        """Compare storeProgress.json with the log up to the persisted end."""
        path = self._root / "config" / PROGRESS_TABLE
        if tree["physicalOffset"] > walk.end:
            text = f"says the log reaches {tree['physicalOffset']}, it ends at {walk.end}"
            yield Finding(path, 0, AHEAD, text)
        moment = walk.at_persisted
        ranges: dict[QueueKey, tuple[int, int]] = {}
        for topic, by_id in tree["queues"].items():
            for queue_id, (low, high) in by_id.items():
                key = (topic, int(queue_id))
                ranges[key] = (int(low), int(high))
                if high > max(low, queues.deleted.end_of(key)):
                    # Not for an empty queue: it may have no file that shows its end.
                    yield from self._check_reach(path, queues, key, int(high), "reaches")
        recorded = ScheduleProgress.from_json(tree["completed"], tree.get("pending"))
        for level, completed in recorded.ranges().items():
            upto = completed[-1][1] if completed else 0
            key = queue_of(level)
            yield from self._check_reach(path, queues, key, upto, "is completed up to")
        if moment is None:
            return
        for key, (first, following) in moment.queues.items():
            low, high = ranges.get(key, (0, 0))
            if not low <= first or high < following:
                text = (
                    f"says {queue_name(key)} has {high - low} entries from {low} on,"
                    f" the log has {following - first} from {first} on"
                )
                yield Finding(path, 0, BEHIND, text)
        yield from _check_completed(path, recorded, moment)
        for level, ends in (tree.get("runEnds") or {}).items():
            yield from _check_runs(path, recorded, queues.queues.get(queue_of(int(level))), ends)

    def _check_pending(self, tree: tables.Tree, moment: Moment) -> Iterator[Finding]:
        """Compare the counts of waiting messages in storeProgress.json with the log."""
        path = self._root / "config" / PROGRESS_TABLE
        recorded = ScheduleProgress.from_json(tree["completed"], tree["pending"])
        for level, known in moment.pending.items():
            counts = recorded.pending.get(level, Counter())
            _, end = moment.queues.get(queue_of(level), (0, 0))
            waiting = end - recorded.of(level).count_between(0, end)
            if waiting != counts.total():
                text = f"says that {counts.total()} messages of {wait_queue_name(level)} wait, but"
                text += f" {waiting} do"
                yield Finding(path, 0, BEHIND, text)
            elif counts.total() == sum(known.values()):
                # Otherwise RocketMQ has delivered messages, which the log does not show.
                yield from _differing(path, level, counts, known)

    def _check_delay_offsets(self, tree: tables.Tree, queues: QueueChecks) -> Iterator[Finding]:
        path = self._root / "config" / DELAY_OFFSET_TABLE
        for level, offset in tree.get("offsetTable", {}).items():
            key = queue_of(int(level))
            yield from self._check_reach(path, queues, key, int(offset), "is delivered up to")

    def _check_reach(
        self, path: Path, queues: QueueChecks, key: QueueKey, high: int, does: str
    ) -> Iterator[Finding]:
        queue = queues.queues.get(key)
        if key in queues.unreadable:
            return
        end = queue.max_offset if queue else 0
        if queue and (queue.first is None or self.is_live):
            # A broker goes on writing queues, and its tables count the new entries.
            end = max(end, queue.files.recovered_end(1 << 62))
        if high > end:
            text = f"says {queue_name(key)} {does} {high}, it ends at {end}"
            yield Finding(path, 0, AHEAD, text)


def _persisted_ends(tree: tables.Tree | None) -> dict[QueueKey, int] | None:
    if tree is None:
        return None
    return {
        (topic, int(queue_id)): int(high)
        for topic, queues in tree["queues"].items()
        for queue_id, (_, high) in queues.items()
    }


def _check_completed(path: Path, recorded: ScheduleProgress, moment: Moment) -> Iterator[Finding]:
    """Report deliveries in the log that the table lacks."""
    for level, ranges in moment.completed.items():
        known = recorded.of(level)
        first, _ = moment.queues.get(queue_of(level), (0, 0))
        for begin, end in ranges:
            begin = max(begin, first)
            if begin < end and known.count_between(begin, end) < end - begin:
                name = wait_queue_name(level)
                text = f"does not say that {begin} to {end - 1} of {name} are delivered"
                yield Finding(path, 0, BEHIND, text)


def _check_runs(
    path: Path, recorded: ScheduleProgress, queue: QueueCheck | None, ends: Sequence[int]
) -> Iterator[Finding]:
    """Report messages that would wait behind one that is due later."""
    if queue is None or not queue.is_right:
        return
    completed, begin = recorded.of(queue.wait_queue), queue.files.files_begin
    for end in sorted(each for each in ends if each <= queue.max_offset):
        # Runs that were completed before are not in the table: the next one begins with them.
        begin = completed.next_open(begin)
        for first in range(begin, end - 1, SCAN_ENTRIES):
            count = min(SCAN_ENTRIES + 1, end - first)
            codes = codes_in(queue.files.bytes_at(first, count))
            if any(code > following for code, following in pairwise(codes)):
                name = wait_queue_name(queue.wait_queue)
                text = f"says that {begin} to {end - 1} of {name} are in the order of their times"
                yield Finding(path, 0, BEHIND, text)
                break
        begin = max(begin, end)


def _differing(
    path: Path, level: int, counts: Counter[str], known: dict[str, int]
) -> Iterator[Finding]:
    for topic in sorted({*counts, *known}):
        if counts[topic] != known.get(topic, 0):
            text = (
                f"says that {counts[topic]} messages of {wait_queue_name(level)} wait for {topic},"
                f" but the log has {known.get(topic, 0)}"
            )
            yield Finding(path, 0, BEHIND, text)
