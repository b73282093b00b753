"""Opening a store: from the last persisted point, walk the log to its true end.

config/storeProgress.json has the physical offset up to which queues, key index and completed
offsets are on disk.  It is only a place to begin: if it is missing, or does not fit the
files, or RocketMQ ran on the store since, the walk begins further back, at worst at the log's
first record.  Opening twice changes nothing.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from rmqlite.kernel.config.table_shapes import DelayOffsetsTable, LevelsTable, ProgressTable
from rmqlite.kernel.records.completion import topic_ahead
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import (
    HASH_END,
    TIMERS,
    queue_of,
    wait_queue_name,
    wait_queue_of,
)
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.deleted_topics import load_deleted
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.segments import last_file
from rmqlite.kernel.store.dispatch import Dispatch, QueueKey, queue_keys
from rmqlite.kernel.store.log.checksums import Point
from rmqlite.kernel.store.opening.adoption import TimerAdoption
from rmqlite.kernel.store.progress import CompletedOffsets, ScheduleProgress, SortedRun
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.logged_tables import (
    TABLES_QUEUE,
    Logged,
    LoggedTables,
    changes_in,
    logged_in,
)
from rmqlite.kernel.store.walk import Redo
from rmqlite.kernel.words.errors import FlushFailed, StoreDamaged
from rmqlite.kernel.words.levels import LevelHistory, LevelTable

PROGRESS_TABLE: Final = "storeProgress.json"
DELAY_OFFSET_TABLE: Final = "delayOffset.json"
LEVELS_TABLE: Final = "delayLevels.json"
WRITE_AGAIN_BYTES_MAX: Final = 64 << 20
"""The most bytes at the end of the log that a recovery writes again."""
TOLD_BYTES: Final = 4 << 30
"""How many bytes a walk reads before it says how far it is."""
CHECKPOINT: Final = struct.Struct(">qqq4072x")
_EVER_MS: Final = 1 << 62

LOOK_BACK_BYTES: Final = 16 << 20
"""Bytes before the persisted end that every opening compares."""
_ENTRIES_AT_ONCE: Final = 8192

logger = logging.getLogger(__name__)


def progress_snapshot(
    log: CommitLog, dispatch: Dispatch, table_ends: Mapping[str, int]
) -> tables.Snapshot:
    """The content of storeProgress.json for a log whose bytes are synced, as of now."""
    ranges = [(key, each.min_offset, each.max_offset) for key, each in dispatch.queues.items()]
    tree: tables.Tree = {
        "checksum": log.point.chain,
        "completed": dispatch.progress.to_json(),
        "index": dispatch.index.state(),
        "logFileBytes": log.segment_bytes,
        "markedOffset": log.marked_end,
        "newestTimestamp": log.newest_timestamp_ms,
        "pending": dispatch.progress.pending_now(),
        "physicalOffset": log.end,
        "runEnds": {n: [run.end for run in runs] for n, runs in dispatch.progress.runs.items()},
        "tables": dict(table_ends),
    }

    def with_queues() -> tables.Tree:
        queues: dict[str, dict[int, list[int]]] = {}
        for (topic, queue_id), low, high in sorted(ranges):
            queues.setdefault(topic, {})[queue_id] = [low, high]
        return {**tree, "queues": queues}

    return with_queues


def keep_names(files: Files, root: Path) -> None:
    """Sync the folders: files created before a SIGKILL may not be durable yet."""
    with suppress(FlushFailed):
        # A process that may not read the folder above did not make this one.
        files.sync_folder(root.parent)
    files.sync_folder(root)
    files.sync_folder(root / "config")


def lengthen(files: Files, root: Path, log_file_bytes: int) -> None:
    """Restore the length of the last log file if it was shortened.

    This is done only if storeProgress.json has the same length: otherwise the configuration
    may be wrong, and opening the log refuses it.
    """
    path = last_file(files, root / "commitlog")
    try:
        tree = tables.load(files, root / "config" / PROGRESS_TABLE) or {}
    except StoreDamaged:
        return
    if path is None or tree.get("logFileBytes") != log_file_bytes:
        return
    size = files.size(path)
    if 0 < size < log_file_bytes:
        logger.error("a log file was cut off, its end is lost file=%s size=%d", path, size)
        files.create(path, log_file_bytes)


def recover(
    files: Files,
    root: Path,
    log: CommitLog,
    dispatch: Dispatch,
    logged: LoggedTables,
    *,
    is_foreign: bool = False,
) -> int:
    """Find the log's end, and make tables, queues and completed offsets fit it.

    Returns the number of dispatched records.  is_foreign: RocketMQ had the store open last, so
    deliver times may come from its table of levels.  A torn tail is zeroed; raises
    StoreDamaged for any other damage.
    """
    was_closed = not is_foreign and not files.kind(root / "abort")
    is_known = _begin(files, root, log, dispatch, logged, is_foreign=is_foreign)
    adoption = TimerAdoption(dispatch.progress) if is_foreign or not is_known else None
    kept = kept_before_ms(logged, dispatch.levels, is_foreign=is_foreign)
    redo = Redo(dispatch, log, kept, adoption.see if adoption else None)
    for key in queue_keys(files, root):
        dispatch.queue(*key)
    ends = {} if is_known else _ends_without_files(files, root, log, dispatch)
    begin = log.end
    timers = dispatch.queues.get(queue_of(TIMERS))
    if adoption is not None and timers is not None:
        adoption.load(open_records(log, timers, dispatch.progress.of(TIMERS)))
    mark = log.log_end.mark_over(log.min_offset)
    is_ours = is_known or not log.persisted_end
    log.sums.forget_from(max(begin, mark.synced_end if mark and is_ours else 0))
    count = redo.run(dispatch.indexed(_told(log.walk(begin, to_end=True), begin, log)))
    dispatch.changed |= redo.entered
    if adoption is not None:
        adoption.report()
    _log_end(log)
    log.cut(log.end)
    logged.end_at(log.end)
    # A clean stop left nothing behind the queues' ends; a cut takes 0.5 ms for each queue.
    is_cut = was_closed and is_known and not count
    for key, queue in dispatch.queues.items():
        if key not in redo.started and not is_known:
            # All its records have expired, but its queue offsets must go on.
            queue.begin_at(max(queue.recovered_end(log.end), ends.get(key, 0)))
        queue.drop_before(log.min_offset)
        if not is_cut:
            queue.cut()
    _empty_deleted(dispatch)
    _adopt_delay_offsets(files, root, dispatch)
    count_pending(log, dispatch)
    _make_durable(files, root, log, begin)
    return count


def _make_durable(files: Files, root: Path, log: CommitLog, begin: int) -> None:
    """Sync the log from a position on, and note that it is."""
    # The process before may have written these bytes without a successful sync.
    log.write_again(max(begin, log.end - WRITE_AGAIN_BYTES_MAX))
    begin = min(begin, log.marked_end)
    log.remove_broken_marks(begin)
    for path in log.paths_between(begin, log.end):
        files.sync(path)
    if log.segment_starts:
        # Otherwise a file that the cut removed could come back after a power cut.
        files.sync_folder(root / "commitlog")
    log.sum_up()
    log.mark_synced(log.point)


def _ends_without_files(
    files: Files, root: Path, log: CommitLog, dispatch: Dispatch
) -> dict[QueueKey, int]:
    """By queue without files the offset that it goes on at, if the log has none of its records.

    The table says so.  A store without queue files was restored from its log.
    """
    persisted = _load(files, root / "config" / PROGRESS_TABLE)
    if persisted is None or not log.has_room_for(persisted.physical_offset):
        return {}
    ends = {key: high for key, (_, high) in persisted.ranges().items() if high}
    return {key: high for key, high in ends.items() if not dispatch.queue(*key).has_files}


def _told(walk: Iterator[Record], begin: int, log: CommitLog) -> Iterator[Record]:
    """The records of a walk; how far it is stands in the broker's log, if it takes minutes."""
    next_told = begin + TOLD_BYTES
    for walked in walk:
        if walked.end >= next_told:
            next_told = walked.end + TOLD_BYTES
            of = log.segment_starts[-1] + log.segment_bytes
            logger.info("the log is read physical_offset=%d of=%d", walked.end, of)
        yield walked


def _empty_deleted(dispatch: Dispatch) -> None:
    """Give the queues of deleted topics, if no record followed, the offset to go on at."""
    for key in dispatch.deleted.queues():
        queue, end = dispatch.queue(*key), dispatch.deleted.end_of(key)
        if queue.min_offset == queue.max_offset <= end:
            queue.empty(end)


def _log_end(log: CommitLog) -> None:
    path, position = log.path_at(log.end), log.end % log.segment_bytes
    if log.end < log.persisted_end:
        logger.error(
            "the log is shorter than it was on disk: a tail is lost"
            " file=%s position=%d lost_bytes=%d",
            path,
            position,
            log.persisted_end - log.end,
        )
    elif log.has_bytes_from(log.end):
        logger.warning("an unsynced tail is cut off file=%s position=%d", path, position)


def _begin(
    files: Files,
    root: Path,
    log: CommitLog,
    dispatch: Dispatch,
    logged: LoggedTables,
    *,
    is_foreign: bool,
) -> bool:
    """Set up tables, log and queues from the last persist; False: for a walk of the whole log."""
    persisted = _load(files, root / "config" / PROGRESS_TABLE)
    is_there = False
    if persisted is None:
        verify(log, Point(log.min_offset, 0))
    else:
        log.persisted_end = persisted.physical_offset
        is_there = log.has_room_for(persisted.physical_offset) and (
            persisted.checksum is None
            or verify(log, Point(persisted.physical_offset, persisted.checksum))
        )
    known = persisted if is_there else None
    log.begin_at(known.physical_offset if known else log.min_offset, 0)
    _replay_tables(log, dispatch, logged, known)
    if persisted is not None and is_there:
        log.begin_at(persisted.physical_offset, persisted.newest_timestamp)
        emptied = dict(dispatch.deleted.emptied_after(persisted.physical_offset))
        ranges = persisted.ranges() | {key: (end, end) for key, end in emptied.items()}
        for key, (low, high) in ranges.items():
            queue = dispatch.queue(*key)
            queue.min_offset, queue.max_offset = low, high
            if not is_foreign and high > low:
                # It had files when it was persisted; a persist syncs folders before ranges.
                queue.take_unsynced_name()
        ends = None if is_foreign else persisted.run_ends
        progress = ScheduleProgress.from_json(persisted.completed, persisted.pending)
        for level, each in (ends or {}).items():
            progress.runs[level] = [SortedRun(0, end, 0, 0) for end in each]
        if all(_entries_fit(key, log, dispatch) for key in ranges) and not (
            ends is None and any(_has_made_up_time(key, dispatch, progress) for key in ranges)
        ):
            dispatch.progress = progress
            log.marked_end = persisted.marked_offset
            if not dispatch.index.load(persisted.index, min_offset=log.min_offset):
                _make_index(log, dispatch)
            return True
        dispatch.queues.clear()
    log.begin_at(log.min_offset, 0)
    dispatch.index.clear()
    for key, end in dispatch.deleted.emptied_after(log.min_offset):
        dispatch.queue(*key).begin_at(end)
    return False


def _replay_tables(
    log: CommitLog, dispatch: Dispatch, logged: LoggedTables, known: ProgressTable | None
) -> None:
    """Take the tables as the log has them: the walk needs levels and deletions before it begins."""
    begin = log.end
    found = list(changes_in(log.segments, begin, log.segments.end_position))
    mark = log.log_end.mark_over(log.min_offset)
    if found and found[-1][0].end > max(begin, mark.synced_end if mark else 0):
        # Behind the synced mark, only a walk tells whether these records are in the log.
        deque(log.walk(begin, to_end=True), maxlen=0)
        found = [each for each in found if each[0].end <= log.end]
    log.begin_at(begin, 0)
    ends = known.tables if known else {}
    changes = [change for _, change in found if change is not None]
    logged.replay(changes, begin, ends, lambda: _older(log, dispatch, known))
    logged.load_all()
    dispatch.levels = load_levels(logged, dispatch.levels.current)
    dispatch.deleted = load_deleted(logged)


def load_levels(tables: LoggedTables, table: LevelTable) -> LevelHistory:
    """The history of level tables; without one it begins with table.  Raises StoreDamaged."""
    known = tables.load(LEVELS_TABLE, LevelsTable)
    return LevelHistory.starting_with(table) if known is None else known.history()


def _older(log: CommitLog, dispatch: Dispatch, known: ProgressTable | None) -> list[Logged]:
    """The changes of tables before the persisted end."""
    if known is None or TABLES_QUEUE not in (ranges := known.ranges()):
        return []
    queue = dispatch.queue(*TABLES_QUEUE)
    present = queue.min_offset, queue.max_offset
    queue.min_offset, queue.max_offset = low, high = ranges[TABLES_QUEUE]
    if _entries_fit(TABLES_QUEUE, log, dispatch):
        records = [log.read_head(each.physical_offset, each.size) for each in queue.read(low, high)]
        changes = [logged_in(each) for each in records if each is not None]
    else:
        found = changes_in(log.segments, log.min_offset, known.physical_offset)
        changes = [change for _, change in found]
    queue.min_offset, queue.max_offset = present
    return [each for each in changes if each is not None]


def _make_index(log: CommitLog, dispatch: Dispatch) -> None:
    """Rebuild the key index up to the persisted end from the log."""
    dispatch.index.clear()
    if log.end > log.min_offset:
        logger.warning(
            "the key index is made again from the log bytes=%d", log.end - log.min_offset
        )
    for _ in dispatch.indexed(log.walk(log.min_offset)):
        pass


def _load(files: Files, path: Path) -> ProgressTable | None:
    try:
        return tables.load_as(files, path, ProgressTable)
    except StoreDamaged:
        # It is rebuilt from the log: a damaged table costs only time.
        return None


def _entries_fit(key: QueueKey, log: CommitLog, dispatch: Dispatch) -> bool:
    """Does the first entry exist, and does the last one point at a record that agrees?"""
    queue = dispatch.queue(*key)
    if queue.max_offset == queue.min_offset:
        return True
    if queue.min_offset < queue.files_begin:
        return False
    entry = queue.entry(queue.max_offset - 1)
    if entry is None or entry.physical_offset + entry.size > log.end:
        return False
    if entry.physical_offset < log.min_offset:
        return True
    found = log.read_head(entry.physical_offset, entry.size)
    if found is None:
        return False
    head = found.head
    return (head.topic, head.queue_id, head.queue_offset) == (*key, queue.max_offset - 1)


def _has_made_up_time(key: QueueKey, dispatch: Dispatch, progress: ScheduleProgress) -> bool:
    """Has a pending entry a hash of tags in place of its deliver time?

    RocketMQ's abnormal recovery leaves it in queues that it rebuilds (reference §4.4).
    """
    wait_queue = wait_queue_of(*key)
    if not wait_queue:
        return False
    queue = dispatch.queue(*key)
    begin = max(queue.min_offset, progress.of(wait_queue).below)
    return any(
        min(queue.tags_codes(offset, _ENTRIES_AT_ONCE), default=0) < HASH_END
        for offset in range(begin, queue.max_offset, _ENTRIES_AT_ONCE)
    )


def kept_before_ms(logged: LoggedTables, levels: LevelHistory, *, is_foreign: bool) -> int:
    """The store timestamp before which RocketMQ may have set deliver times.

    Recovery keeps the deliver times of such records.
    """
    if is_foreign or not logged.has(LEVELS_TABLE):
        return _EVER_MS
    return levels.begins_at_ms


def _adopt_delay_offsets(files: Files, root: Path, dispatch: Dispatch) -> None:
    """Take RocketMQ's progress over: its deliveries do not point back at scheduled records."""
    try:
        known = tables.load_as(files, root / "config" / DELAY_OFFSET_TABLE, DelayOffsetsTable)
    except StoreDamaged:
        return
    for level, offset in known.offset_table.items() if known else ():
        queue = dispatch.queues.get(queue_of(level))
        if queue is not None:
            dispatch.progress.of(level).add(0, min(offset, queue.max_offset))
    for key, queue in dispatch.queues.items():
        if wait_queue := wait_queue_of(*key):
            # Records that retention removed can no longer be delivered.
            dispatch.progress.of(wait_queue).add(0, queue.min_offset)


def verify(log: CommitLog, persisted: Point, look_back_bytes: int = LOOK_BACK_BYTES) -> bool:
    """Compare from look_back_bytes before the persisted end up to the synced mark.

    False: the log ends earlier, because its tail was cut off.  Raises StoreDamaged; it names
    the broken record if that record's CRC or lengths are wrong.
    """
    newest = log.log_end.mark_over(log.min_offset)
    trusted_end = max(persisted.position, newest.synced_end if newest else 0)
    begin = max(log.min_offset, persisted.position - look_back_bytes)
    for start in log.segment_starts:
        if start + log.segment_bytes <= begin:
            continue
        point = log.sums.known_before(max(begin, start))
        for known in log.log_end.known_points(log.sums, start, point, persisted, trusted_end):
            chain = log.sums.chain_at(point, known.position)
            if chain != known.chain:
                _check_broken(log, start, point, known, chain)
                return False
            point = known
    return True


def _check_broken(log: CommitLog, start: int, begin: Point, known: Point, chain: int) -> None:
    """Raises StoreDamaged for changed bytes between two points, unless the log ends there."""
    log.end, position = start + log.segment_bytes, start
    try:
        for walked in log.walk(start):
            position = walked.head.physical_offset + walked.head.size
            if position >= known.position:
                break
    except StoreDamaged:
        log.log_end.check(position, 0, known.position)
        return
    raise StoreDamaged(
        str(log.path_at(begin.position)),
        begin.position % log.segment_bytes,
        f"the checksum {known.chain:#010x} of all bytes before {known.position - start}",
        f"{chain:#010x}: a header or properties have changed since they were written",
    )


def count_pending(log: CommitLog, dispatch: Dispatch) -> None:
    """Count levels anew whose counts do not add up to their pending records."""
    pending = dispatch.progress.pending
    for (topic, queue_id), queue in dispatch.queues.items():
        level = wait_queue_of(topic, queue_id)
        if not level:
            continue
        completed = dispatch.progress.of(level)
        waiting = queue.max_offset - completed.below - completed.count_above
        if sum(pending.get(level, {}).values()) != waiting:
            name = wait_queue_name(level)
            logger.info("pending messages of %s are counted anew pending=%d", name, waiting)
            found = (each for _, each in open_records(log, queue, completed))
            pending[level] = Counter(topic_ahead(each.properties) if each else "" for each in found)


def open_records(
    log: CommitLog, queue: ConsumeQueue, completed: CompletedOffsets
) -> Iterator[tuple[int, Record | None]]:
    """The queue offset and the record of all that waits; None if the record cannot be read."""
    for start in range(completed.below, queue.max_offset, _ENTRIES_AT_ONCE):
        entries = queue.read(start, _ENTRIES_AT_ONCE)
        for queue_offset in completed.open_between(start, start + len(entries)):
            entry = entries[queue_offset - start]
            yield queue_offset, log.read_head(entry.physical_offset, entry.size)
