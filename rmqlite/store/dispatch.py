"""Enters the records of the log into queues and key index, live and in recovery.

Each record gets an entry in its topic's queue, and one in the index for each of its keys.
Live, they are entered in the same call as the append.  Recovery walks the log again from the
persisted point: existing entries are not entered twice, and records that deliver scheduled ones
complete these again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rmqlite.errors import StoreDamaged, StoreUnavailable
from rmqlite.levels import LevelHistory
from rmqlite.message import TAGS
from rmqlite.names import STORED_NAME_RULE, is_stored_name
from rmqlite.records import record
from rmqlite.records.completion import completed_queue, topic_ahead, waited_for
from rmqlite.records.encoding import EACH_ITS_OWN
from rmqlite.records.key_hashes import Keyed, topic_prefix
from rmqlite.records.packed import PackedRun
from rmqlite.records.queue_entry import ENTRY, ENTRY_BYTES, Entry
from rmqlite.records.record import Head
from rmqlite.records.stored import Record
from rmqlite.records.wait_queues import (
    TIMERS,
    queue_of,
    wait_queue_of,
    when_due_ms,
)
from rmqlite.records.wait_queues import QueueKey as QueueKey
from rmqlite.records.written import Place
from rmqlite.store.consume_queue import ConsumeQueue
from rmqlite.store.deleted_topics import DeletedTopics
from rmqlite.store.disk.files import Files
from rmqlite.store.disk.regular_file import FOLDER
from rmqlite.store.index.key_index import KeyIndex
from rmqlite.store.log.repaired_place import RepairedPlace, explains_gap, is_anonymous, is_repaired
from rmqlite.store.progress import ScheduleProgress

_BUFFERED_MAX: Final = 4096
_INDEXED_TOGETHER: Final = 256
_QUEUE_ID_MAX: Final = 2**31 - 1
_TIMERS: Final = queue_of(TIMERS)
_TAGS: Final = TAGS.encode()
_TAGS_START: Final = f"{TAGS}\x01".encode()
_DELAY_MS: Final = 1_000
"""Every delay is a multiple of this, whatever the table."""


class QueueFlush(NamedTuple):
    """The queues that a persist covers, and their files and folders that are not synced."""

    keys: frozenset[QueueKey] = frozenset()
    files: frozenset[Path] = frozenset()
    folders: frozenset[Path] = frozenset()


class Dispatch:
    """All queues of a store, its key index, and the progress of the schedule."""

    def __init__(
        self, files: Files, folder: Path, file_bytes: int, levels: LevelHistory, index: KeyIndex
    ) -> None:
        self.levels = levels
        self.index = index
        self.progress = ScheduleProgress()
        self.queues: dict[QueueKey, ConsumeQueue] = {}
        self.deleted = DeletedTopics()
        self.changed: set[QueueKey] = set()
        """Queues that were written, or found on disk, since the last begin_flush()."""
        self._flush = QueueFlush()
        self._files = files
        self._folder = folder
        self._file_bytes = file_bytes

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; an empty one is made if there is none."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            folder = self._folder / topic / str(queue_id)
            # A queue can be rebuilt from the log: it need not be durable before a persist.
            queue = ConsumeQueue(self._files, folder, self._file_bytes, names_later=True)
            self.queues[topic, queue_id] = queue
            if queue.has_files:
                self.changed.add((topic, queue_id))
        return queue

    def forget(self, key: QueueKey) -> None:
        """Forget a queue that has neither entries nor files; its next entry will be number 0."""
        queue = self.queues.get(key)
        if queue is not None and queue.min_offset == queue.max_offset and not queue.has_files:
            del self.queues[key]
            self.changed.discard(key)

    def begin_flush(self) -> QueueFlush:
        """The files and folders to sync so that all queues are durable; then call flushed()."""
        last = self._flush
        for key in last.keys & self.queues.keys():
            self.queues[key].not_synced(last.files)
        keys, self.changed = (self.changed | last.keys) & self.queues.keys(), set()
        # Folders of a deleted topic are gone when a persist is tried again.
        files, folders = set[Path](), set(filter(self._files.is_folder, last.folders))
        for key in keys:
            queue = self.queues[key]
            files.update(queue.take_unsynced())
            if queue.take_unsynced_name():
                folders.update((queue.folder, queue.folder.parent))
        if folders:
            folders.update((self._folder, self._folder.parent))
        self._flush = QueueFlush(frozenset(keys), frozenset(files), frozenset(folders))
        return self._flush

    def flushed(self) -> None:
        """Note that the last flush is synced; without this call the next one repeats it."""
        self._flush = QueueFlush()

    def indexed(self, walk: Iterable[Record]) -> Iterator[Record]:
        """The records of a walk; those that RocketMQ would index are entered, the last ones at
        the end."""
        keyed: list[Keyed] = []
        for walked in walk:
            yield walked
            head = walked.head
            if record.is_indexed(head.sys_flag):
                prefix, place = topic_prefix(head.topic), head.physical_offset
                keyed.append((prefix, head.properties, place, head.store_timestamp_ms))
            if len(keyed) >= _INDEXED_TOGETHER:
                self.index.add(keyed)
                keyed = []
        self.index.add(keyed)

    def next_place(self, key: QueueKey, stored_ms: int) -> Place:
        """Where the next record of a queue goes if it is stored at stored_ms.

        The due time is EACH_ITS_OWN for timers.
        """
        due_ms = when_due_ms(self.levels, *key, stored_ms, b"") if key != _TIMERS else EACH_ITS_OWN
        return self.queue(*key).max_offset, due_ms

    def place(self, run: PackedRun) -> None:
        """Enter appended records; on StoreUnavailable no queue has changed."""
        self._enter(run.entries)
        self.index.add_hashed(run.hashes, run.places, [run.stored_ms] * len(run.hashes))
        for packed in run.packed:
            for key, topics in packed.waiting.items():
                for topic, count in topics.items():
                    self.progress.scheduled(wait_queue_of(*key), topic, count)

    def _enter(self, batches: Mapping[QueueKey, Sequence[bytes]]) -> None:
        """Write entries into their queues; on StoreUnavailable no queue has changed."""
        self.changed.update(batches)
        entries: dict[QueueKey, bytes] = {}
        try:
            for key, batch in batches.items():
                queue = self.queues[key]
                entries[key] = b"".join(batch)
                queue.write(queue.max_offset, entries[key])
        except Exception:
            # Cut: RocketMQ would read an entry behind the last one as an entry of the queue.
            for key in batches:
                with suppress(StoreUnavailable):
                    self.queues[key].cut()
            raise
        for key, data in entries.items():
            queue = self.queues[key]
            queue.advance(queue.max_offset + len(data) // ENTRY_BYTES)


class RedoQueue(Protocol):
    """What a walk needs of a queue: the files of one, or a reader's memory."""

    @property
    def max_offset(self) -> int: ...
    def entry(self, queue_offset: int) -> Entry | None: ...
    def read_beyond(self, queue_offset: int) -> Entry | None: ...
    def first_with(self, physical_offset: int) -> int: ...
    def begin_at(self, queue_offset: int) -> None: ...
    def write(self, queue_offset: int, entries: bytes) -> None: ...
    def advance(self, max_offset: int) -> None: ...


class RedoState(Protocol):
    """What a walk changes: a store's Dispatch, or what a reader knows of a store."""

    levels: LevelHistory
    progress: ScheduleProgress
    deleted: DeletedTopics

    @property
    def queues(self) -> Mapping[QueueKey, RedoQueue]: ...
    def queue(self, topic: str, queue_id: int) -> RedoQueue: ...


class LogPlaces(Protocol):
    """The files of a log, for error sentences."""

    @property
    def segment_bytes(self) -> int: ...
    def path_at(self, position: int, /) -> Path: ...


class Redo:
    """Dispatches an existing log: the walk of an opening, and of a reader."""

    def __init__(
        self,
        dispatch: RedoState,
        log: LogPlaces,
        kept_before_ms: int,
        see: Callable[[Record], None] | None = None,
    ) -> None:
        """kept_before_ms: records stored before this time keep their existing deliver times.

        see: is called with each record that has been dispatched.
        """
        self._see = see
        self._dispatch = dispatch
        self._log = log
        self._kept_before_ms = kept_before_ms
        self.started = set(dispatch.queues)
        """Queues whose maximum offset is right."""
        self.entered: set[QueueKey] = set()
        """Queues that got entries."""
        self._buffers: dict[QueueKey, list[bytes]] = {}
        self._place: RepairedPlace | None = None
        """The last anonymous repaired place."""

    def run(self, walk: Iterable[Record]) -> int:
        """Dispatch every record of a walk; returns their number."""
        count = 0
        for walked in walk:
            count += 1
            self.enter(walked)
        self.write()
        return count

    def enter(self, walked: Record, *, is_forced: bool = False) -> None:
        """Dispatch the next record; write() makes its entry visible.

        Raises StoreDamaged if records of its queue are missing before it; is_forced: only if
        the log before it has no room for them.  Then nothing has changed.
        """
        head = walked.head
        if record.has_entry(head.sys_flag):
            self._enter(walked, is_forced)
            wait_queue = wait_queue_of(head.topic, head.queue_id)
            if wait_queue:
                self._dispatch.progress.scheduled(wait_queue, topic_ahead(walked.properties))
            if head.completes:
                self._complete(walked)
            if self._see is not None:
                self._see(walked)
        elif is_anonymous(head):
            self._place = _place_of(head)
        elif is_repaired(head):
            self._enter(walked, is_forced)
            self._complete_lost(head.topic, head.queue_id, head.queue_offset, 1)

    def write(self) -> None:
        """Write the entries of all records so far into their queues."""
        for key in list(self._buffers):
            self._write(key)

    def _enter(self, walked: Record, is_forced: bool) -> None:
        head = walked.head
        key = (head.topic, head.queue_id)
        if self._dispatch.deleted.is_dead(*key, head.queue_offset, head.physical_offset):
            return
        queue = self._dispatch.queue(*key)
        self.entered.add(key)
        buffer = self._buffers.setdefault(key, [])
        expected = queue.max_offset + len(buffer)
        if head.queue_offset >= 0 and (key not in self.started or head.queue_offset < expected):
            # First of its queue in this log, or the topic was deleted and made again.
            self._write(key)
            self.started.add(key)
            queue.begin_at(head.queue_offset)
            buffer = self._buffers.setdefault(key, [])
        elif head.queue_offset != expected:
            self._write(key)
            self._enter_lost(queue, head, is_forced)
            buffer = self._buffers.setdefault(key, [])
        buffer.append(ENTRY.pack(head.physical_offset, head.size, self._code(queue, walked)))
        if len(buffer) >= _BUFFERED_MAX:
            self._write(key)

    def _enter_lost(self, queue: RedoQueue, head: Head, is_forced: bool) -> None:
        """Enter lost records that a repaired place explains; raises StoreDamaged otherwise."""
        expected, place = queue.max_offset, self._place
        missing = head.queue_offset - expected
        last = queue.entry(expected - 1)
        last_offset = last.physical_offset if last else -1
        if not explains_gap(place, last_offset=last_offset, head=head, missing=missing):
            place = _place_of(head)
            if not (is_forced and explains_gap(place, last_offset=-1, head=head, missing=missing)):
                raise StoreDamaged(
                    str(self._log.path_at(head.physical_offset)),
                    head.physical_offset % self._log.segment_bytes,
                    f"queue offset {expected} of {head.topic} queue {head.queue_id}",
                    f"{head.queue_offset}",
                )
        assert place is not None
        levels, stored_ms = self._dispatch.levels, place.store_timestamp_ms
        code = when_due_ms(levels, head.topic, head.queue_id, stored_ms, b"")
        queue.write(expected, ENTRY.pack(place.physical_offset, place.size, code) * missing)
        queue.advance(head.queue_offset)
        self._complete_lost(head.topic, head.queue_id, expected, missing)

    def _complete_lost(self, topic: str, queue_id: int, queue_offset: int, count: int) -> None:
        """Complete the lost records of a wait queue, so that nobody waits for them."""
        wait_queue = wait_queue_of(topic, queue_id)
        if wait_queue:
            completed = self._dispatch.progress.of(wait_queue)
            completed.add(queue_offset, queue_offset + count)

    def _code(self, queue: RedoQueue, walked: Record) -> int:
        head, stored_ms = walked.head, walked.head.store_timestamp_ms
        wait_queue = wait_queue_of(head.topic, head.queue_id)
        if not wait_queue:
            return record.tags_code(head.properties)
        levels, encoded = self._dispatch.levels, walked.properties.encoded
        due_ms = when_due_ms(levels, head.topic, head.queue_id, stored_ms, encoded)
        if wait_queue == TIMERS or stored_ms >= self._kept_before_ms:
            return due_ms
        # RocketMQ set this time by a table of levels that we may not have: keep it.  But its
        # abnormal recovery writes a hash (reference §4.4), and a torn time is no whole delay.
        there = queue.read_beyond(head.queue_offset)
        if (
            there is not None
            and there.physical_offset == head.physical_offset
            and there.size == head.size
            and there.tags_code > stored_ms
            and (there.tags_code - stored_ms) % _DELAY_MS == 0
        ):
            return there.tags_code
        return due_ms

    def _write(self, key: QueueKey) -> None:
        buffer = self._buffers.pop(key, None)
        if not buffer:
            return
        queue = self._dispatch.queue(*key)
        # Write existing entries again, too: they may not be on disk.
        queue.write(queue.max_offset, b"".join(buffer))
        queue.advance(queue.max_offset + len(buffer))

    def _complete(self, walked: Record) -> None:
        head = walked.head
        left = completed_queue(head, walked.properties)
        if not left:
            return
        key = queue_of(left)
        self._write(key)
        queue = self._dispatch.queue(*key)
        progress = self._dispatch.progress
        completed = progress.of(left)
        for queue_offset in (completed.below, queue.first_with(head.completes) - 1):
            entry = queue.entry(queue_offset)
            if entry is not None and entry.physical_offset + entry.size == head.completes:
                progress.complete_one(left, queue_offset, waited_for(head.topic, walked.properties))
                return


def _place_of(head: Head) -> RepairedPlace:
    return RepairedPlace(head.physical_offset, head.size, head.store_timestamp_ms)


def queue_keys(files: Files, root: Path) -> Iterator[QueueKey]:
    """Topic and queue id of every queue that has a folder in the store at root.

    Raises StoreDamaged for a folder that could lead out of the store, and for a name that no
    topic can have.
    """
    folder = root / "consumequeue"
    for topic in _folders_in(files, folder):
        if not is_stored_name(topic):
            raise StoreDamaged(str(folder / topic), 0, STORED_NAME_RULE, ascii(topic))
        for name in _folders_in(files, folder / topic):
            if name.isascii() and name.isdigit() and int(name) <= _QUEUE_ID_MAX:
                yield topic, int(name)


def _folders_in(files: Files, folder: Path) -> Iterator[str]:
    for name in files.names(folder):
        kind = files.kind(folder / name)
        # An empty kind: the folder was removed after the listing.
        if kind not in ("", FOLDER):
            raise StoreDamaged(str(folder / name), 0, FOLDER, kind)
        yield name
