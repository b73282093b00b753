"""Compares what a store has with what it promises.

A log that was cut off ends in a sound record, and a queue whose first entries are zeros only
looks shorter: what is left does not show the loss.  But tables, marks and queues tell how much
there was.  A reading that answers for all records begins with this comparison.  It reads a few
entries of each queue and no record; `store check` compares every byte.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.kernel.records.queue_entry import ENTRY, ENTRY_BYTES, PRE_BLANK, Entry
from rmqlite.kernel.records.record import BLANK_BYTES, encode_blank
from rmqlite.kernel.records.wait_queues import queue_of
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.disk.segments import is_zeros
from rmqlite.kernel.store.dispatch import QueueKey, queue_keys
from rmqlite.kernel.store.opening.recovery import DELAY_OFFSET_TABLE, PROGRESS_TABLE
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.store_tools.reading.log_view import LiveFiles
from rmqlite.store_tools.reading.overview import CONSUMER_OFFSET_TABLE, GroupLag, StoreState
from rmqlite.store_tools.reading.snapshot import Snapshot

_ENTRIES_AT_ONCE: Final = 8192


class Shortfall(NamedTuple):
    """Something that a store lacks.

    is_explained: no promised record is missing.  A crash has taken what was not synced yet,
    RocketMQ leaves it so, or the log has all that a queue lacks.
    """

    error: StoreDamaged
    is_explained: bool


class Promises:
    """The promises of the store that a snapshot shows."""

    def __init__(self, files: LiveFiles, root: Path, state: StoreState, snapshot: Snapshot) -> None:
        self._files = files
        self._root = root
        self._snapshot = snapshot
        self._is_closed = state is StoreState.CLOSED
        self._is_live = state is StoreState.LIVE
        persisted = None if snapshot.is_foreign else snapshot.persisted
        self._is_ours = persisted is not None
        self._is_all_from_log = snapshot.known_end == snapshot.begin
        self._is_log_short = False
        self._ranges = persisted.ranges() if persisted else {}

    def shortfalls(self, topics: Container[str], lags: Iterable[GroupLag]) -> Iterator[Shortfall]:
        """All that the store lacks, the log's part first.  Raises StoreDamaged.

        topics: those that exist.  lags: of all groups.
        """
        snapshot = self._snapshot
        yield from self._in_log()
        keys = {*snapshot.queues, *self._ranges}
        if self._is_all_from_log:
            # Queues with only lost records are not among these.
            keys.update(queue_keys(self._files, self._root))
        for key in sorted(keys):
            files = snapshot.queue_files(key)
            yield from self._missing(key, files)
            yield from self._behind(key, files)
        for level, offset in snapshot.delivered.items():
            is_explained = not self._is_ours and not self._is_closed
            yield from self._ahead(DELAY_OFFSET_TABLE, queue_of(level), offset, is_explained)
        for lag in lags:
            key = (lag.topic, lag.queue_id)
            if key in snapshot.queues or lag.topic in topics:
                # RocketMQ keeps the offsets of a topic that was deleted and made again.
                is_explained = not self._is_ours
                yield from self._ahead(
                    CONSUMER_OFFSET_TABLE, key, lag.committed_offset, is_explained
                )

    def _in_log(self) -> Iterator[Shortfall]:
        """Is the log shorter than it was on disk?"""
        snapshot, end = self._snapshot, self._snapshot.end
        persisted_end = snapshot.progress_offset or 0
        mark = snapshot.log.log_end.mark_over(snapshot.begin)
        if end < persisted_end:
            expected = f"records up to {persisted_end}, as config/{PROGRESS_TABLE} says"
        elif mark is not None and end < mark.synced_end and not self._goes_on():
            expected = f"records up to {mark.synced_end}, as the synced mark says"
        elif self._files.lengthened and not self._is_closed:
            expected = "the rest of the file, with the synced mark"
        else:
            return
        self._is_log_short = True
        yield Shortfall(self._log_damage(expected), is_explained=False)

    def _missing(self, key: QueueKey, files: ConsumeQueue) -> Iterator[Shortfall]:
        """Do the files lack an entry that they had?

        min_offset was found by halves, so it lies behind missing entries, wherever these are.
        """
        view = self._snapshot.queues.get(key)
        filed = (files.files_begin, view.filed) if view else (0, 0)
        low, high = self._ranges.get(key, filed)
        if high <= max(low, self._snapshot.deleted.end_of(key)):
            return
        begin = view.min_offset if view else high
        for offset in (begin - 1, begin, high - 1):
            data = files.bytes_at(offset, 1) if low <= offset < high else PRE_BLANK
            if len(data) == ENTRY_BYTES and Entry._make(ENTRY.unpack(data)).size > 0:
                continue
            if data or not self._is_live:
                # Retention may have removed a whole file after the last persist.
                is_explained = self._is_all_from_log or not (data or self._is_closed)
                yield Shortfall(_queue_damage(key, files, offset), is_explained)
                return

    def _behind(self, key: QueueKey, files: ConsumeQueue) -> Iterator[Shortfall]:
        """Does an entry behind the queue's end show that the log lost records, or the queue?"""
        snapshot = self._snapshot
        view = snapshot.queues.get(key)
        end = max(view.max_offset if view else 0, snapshot.deleted.end_of(key))
        for offset, data in files.data_blocks(end, files.files_end, _ENTRIES_AT_ONCE):
            whole = b"" if is_zeros(data) else data[: len(data) - len(data) % ENTRY_BYTES]
            for at, raw in enumerate(ENTRY.iter_unpack(whole), offset):
                entry = Entry._make(raw)
                if entry.size <= 0 or ENTRY.pack(*entry) == PRE_BLANK:
                    continue
                if entry.physical_offset >= snapshot.end:
                    if not self._is_log_short and not self._goes_on():
                        # One queue is enough to tell it.
                        self._is_log_short = True
                        queue = f"{key[0]} queue {key[1]}"
                        expected = f"a record at {entry.physical_offset}, as {queue} says"
                        yield Shortfall(self._log_damage(expected), not self._is_closed)
                elif snapshot.is_entry_of(key, at, entry):
                    yield Shortfall(_queue_damage(key, files, end), is_explained=False)
                return

    def _ahead(
        self, table: str, key: QueueKey, offset: int, is_explained: bool
    ) -> Iterator[Shortfall]:
        """Is an offset in a table of config/ higher than its queue's end?"""
        view = self._snapshot.queues.get(key)
        end = view.max_offset if view else 0
        if offset > end:
            # The writer has added entries meanwhile, or all records of the queue have expired.
            end = max(end, self._snapshot.open_queue(key).recovered_end())
        if offset > end:
            expected = f"at most {end} for {key[0]} queue {key[1]}, which ends there"
            path = str(self._root / "config" / table)
            yield Shortfall(StoreDamaged(path, 0, expected, str(offset)), is_explained)

    def _goes_on(self) -> bool:
        """Has the writer appended since the snapshot was made?"""
        log = self._snapshot.log
        found = log.sound_at(self._snapshot.end)
        is_whole = found is not None and not log.log_end.is_torn(found.head)
        return is_whole or log.segments.is_there(log.end_of_files)

    def _log_damage(self, expected: str) -> StoreDamaged:
        log, end = self._snapshot.log, self._snapshot.end
        room = log.segment_bytes - end % log.segment_bytes
        if log.segments.read(end, BLANK_BYTES) == encode_blank(room):
            # The last file is full: the next one is missing.
            end += room
        return log.damage(end, expected)


def _queue_damage(key: QueueKey, files: ConsumeQueue, queue_offset: int) -> StoreDamaged:
    path, position = files.place_of(queue_offset)
    found = "zeros" if files.is_there(queue_offset) else "no file"
    expected = f"the entry of {key[0]} queue {key[1]}, queue offset {queue_offset}"
    return StoreDamaged(str(path), position, expected, found)
