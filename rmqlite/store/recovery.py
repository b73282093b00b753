"""Opening a store: from the last persisted point, walk the log to its true end.

config/storeProgress.json says up to which physical offset queues, key index and completed
offsets are on disk.  It is only a place to begin: when it is missing, or does not fit the files, or
RocketMQ ran on the store since, the walk begins further back, at worst at the log's first
record.  Opening twice changes nothing.
"""

from __future__ import annotations

import logging
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from rmqlite.errors import FlushFailed, StoreDamaged
from rmqlite.names import SCHEDULE_TOPIC
from rmqlite.store.commit_log import CommitLog
from rmqlite.store.dispatch import Dispatch, QueueKey, Redo, queue_keys
from rmqlite.store.files import Files
from rmqlite.store.log.checksums import Point
from rmqlite.store.pending_counts import count_pending
from rmqlite.store.progress import ScheduleProgress
from rmqlite.store.tables import tables
from rmqlite.store.tables.levels_table import LEVELS_TABLE as LEVELS_TABLE
from rmqlite.store.verification import verify
from rmqlite.table_shapes import DelayOffsetsTable, ProgressTable

PROGRESS_TABLE: Final = "storeProgress.json"
DELAY_OFFSET_TABLE: Final = "delayOffset.json"
WRITE_AGAIN_BYTES_MAX: Final = 64 << 20
"""Of what a walk has found, how much of the end is written once more."""
_SCAN_ENTRIES: Final = 8192
CHECKPOINT: Final = struct.Struct(">qqq4072x")
_EVER_MS: Final = 1 << 62
_HASH_END: Final = 1 << 31
"""A tags code below is no time: the hash of tags has 32 bits, a time in milliseconds 41."""

logger = logging.getLogger(__name__)


def progress_snapshot(log: CommitLog, dispatch: Dispatch) -> tables.Snapshot:
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
    }

    def with_queues() -> tables.Tree:
        queues: dict[str, dict[int, list[int]]] = {}
        for (topic, queue_id), low, high in sorted(ranges):
            queues.setdefault(topic, {})[queue_id] = [low, high]
        return {**tree, "queues": queues}

    return with_queues


def keep_names(files: Files, root: Path) -> None:
    """What a killed process has made may be here and not on disk: its names are kept now."""
    with suppress(FlushFailed):
        # Who may not read the folder above did not make this one.
        files.sync_folder(root.parent)
    files.sync_folder(root)
    files.sync_folder(root / "config")


def lengthen(files: Files, root: Path, log_file_bytes: int) -> None:
    """Give the last log file its length again, if it was cut to a shorter one.

    Only where the store is known to have files of this length: otherwise the configuration
    may be the wrong one, which opening the log refuses.
    """
    folder = root / "commitlog"
    path = folder / max(files.names(folder), default="")
    try:
        tree = tables.load(files, root / "config" / PROGRESS_TABLE) or {}
    except StoreDamaged:
        return
    if path == folder or tree.get("logFileBytes") != log_file_bytes:
        return
    size = files.size(path)
    if 0 < size < log_file_bytes:
        logger.error("a log file was cut off, what was behind is lost file=%s size=%d", path, size)
        files.create(path, log_file_bytes)


def recover(
    files: Files, root: Path, log: CommitLog, dispatch: Dispatch, *, is_foreign: bool = False
) -> int:
    """Find the log's end, make queues and completed offsets fit it; the records dispatched.

    is_foreign: RocketMQ had the store open last, so deliver times may be by a table of its.

    Raises StoreDamaged for anything but a torn tail; a torn tail is zeroed.
    """
    was_closed = not is_foreign and not files.kind(root / "abort")
    is_known = _begin(files, root, log, dispatch, is_foreign=is_foreign)
    redo = Redo(dispatch, log, _kept_before_ms(files, root, dispatch, is_foreign))
    for key in queue_keys(files, root):
        dispatch.queue(*key)
    begin = log.end
    mark = log.log_end.mark_over(log.min_offset)
    is_ours = is_known or not log.persisted_end
    log.sums.forget_from(max(begin, mark.synced_end if mark and is_ours else 0))
    count = redo.run(log.walk(begin, to_end=True))
    _tell_end(log)
    log.cut(log.end)
    # A clean stop left nothing behind the queues' ends; looking takes 0.5 ms for each queue.
    is_cut = was_closed and is_known and not count
    for key, queue in dispatch.queues.items():
        if key not in redo.started and not is_known:
            # Every record of it has expired, yet its queue offsets must go on.
            queue.begin_at(queue.recovered_end(log.end))
        queue.drop_before(log.min_offset)
        if not is_cut:
            queue.cut()
    _adopt_delay_offsets(files, root, dispatch)
    count_pending(log, dispatch)
    # The process before may have written all this and synced none of it.
    log.write_again(max(begin, log.end - WRITE_AGAIN_BYTES_MAX))
    begin = min(begin, log.marked_end)
    log.remove_broken_marks(begin)
    for path in log.paths_between(begin, log.end):
        files.sync(path)
    if log.segment_starts:
        # A file that it removed could come back in a power cut.
        files.sync_folder(root / "commitlog")
    log.sum_up()
    log.mark_synced(log.point)
    return count


def _tell_end(log: CommitLog) -> None:
    path, position = log.path_at(log.end), log.end % log.segment_bytes
    if log.end < log.persisted_end:
        logger.error(
            "the log ends before what was on disk once: a tail is lost"
            " file=%s position=%d lost_bytes=%d",
            path,
            position,
            log.persisted_end - log.end,
        )
    elif log.has_bytes_from(log.end):
        logger.warning("what no sync has covered is cut off file=%s position=%d", path, position)


def _begin(
    files: Files, root: Path, log: CommitLog, dispatch: Dispatch, *, is_foreign: bool
) -> bool:
    """Set up log and queues as they were persisted; False: as if nothing were known."""
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
    if persisted is not None and is_there:
        log.begin_at(persisted.physical_offset, persisted.newest_timestamp)
        for key, (low, high) in persisted.ranges().items():
            queue = dispatch.queue(*key)
            queue.min_offset, queue.max_offset = low, high
            if not is_foreign:
                # A persist syncs the folders of its queues before it writes their ranges.
                queue.take_unsynced_name()
        progress = ScheduleProgress.from_json(persisted.completed, persisted.pending)
        if all(
            _entries_fit(key, log, dispatch) and not _has_made_up_time(key, dispatch, progress)
            for key in persisted.ranges()
        ):
            dispatch.progress = progress
            log.marked_end = persisted.marked_offset
            if not dispatch.index.load(persisted.index, min_offset=log.min_offset):
                _make_index(log, dispatch)
            return True
        dispatch.queues.clear()
    log.begin_at(log.min_offset, 0)
    dispatch.index.clear()
    return False


def _make_index(log: CommitLog, dispatch: Dispatch) -> None:
    """All of the key index up to where the log was persisted, from the log alone."""
    dispatch.index.clear()
    if log.end > log.min_offset:
        logger.warning(
            "the key index is made again from the log bytes=%d", log.end - log.min_offset
        )
    for walked in log.walk(log.min_offset):
        dispatch.index_record(walked.head)


def _load(files: Files, path: Path) -> ProgressTable | None:
    try:
        return tables.load_as(files, path, ProgressTable)
    except StoreDamaged:
        # Made again from the log, so that a damaged table costs time and nothing else.
        return None


def _entries_fit(key: QueueKey, log: CommitLog, dispatch: Dispatch) -> bool:
    """Is the first entry there, and does the last point at a record that says the same?"""
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
    """Is a hash there for the deliver time of something to be delivered?

    RocketMQ's abnormal recovery leaves it in queues that it makes again (reference §4.4).
    """
    topic, queue_id = key
    if topic != SCHEDULE_TOPIC:
        return False
    queue = dispatch.queue(*key)
    begin = max(queue.min_offset, progress.level(queue_id + 1).below)
    return any(
        min(queue.tags_codes(offset, _SCAN_ENTRIES), default=0) < _HASH_END
        for offset in range(begin, queue.max_offset, _SCAN_ENTRIES)
    )


def _kept_before_ms(files: Files, root: Path, dispatch: Dispatch, is_foreign: bool) -> int:
    """Up to which time of storing RocketMQ may have promised deliver times, and not we."""
    if is_foreign or files.read_all(root / "config" / LEVELS_TABLE) is None:
        return _EVER_MS
    return dispatch.levels.begins_at_ms


def _adopt_delay_offsets(files: Files, root: Path, dispatch: Dispatch) -> None:
    """RocketMQ may have run on this store: what it delivered bears no pointer back."""
    try:
        known = tables.load_as(files, root / "config" / DELAY_OFFSET_TABLE, DelayOffsetsTable)
    except StoreDamaged:
        return
    for level, offset in known.offset_table.items() if known else ():
        queue = dispatch.queues.get((SCHEDULE_TOPIC, level - 1))
        if queue is not None:
            dispatch.progress.level(level).add(0, min(offset, queue.max_offset))
    for (topic, queue_id), queue in dispatch.queues.items():
        if topic == SCHEDULE_TOPIC:
            # What retention has taken can no longer be delivered.
            dispatch.progress.level(queue_id + 1).add(0, queue.min_offset)
