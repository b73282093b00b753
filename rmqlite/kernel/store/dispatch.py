"""Enters the records of the log into queues and key index, live and in recovery.

Each record gets an entry in its topic's queue, and one in the index for each of its keys.
Live, they are entered in the same call as the append.  Recovery walks the log again from the
persisted point: existing entries are not entered twice, and records that deliver scheduled ones
complete these again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.kernel.records import record
from rmqlite.kernel.records.encoding import EACH_ITS_OWN
from rmqlite.kernel.records.key_hashes import Keyed, topic_prefix
from rmqlite.kernel.records.packed import PackedRun
from rmqlite.kernel.records.queue_entry import ENTRY_BYTES
from rmqlite.kernel.records.record import Place
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of, wait_queue_of, when_due_ms
from rmqlite.kernel.records.wait_queues import QueueKey as QueueKey
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.deleted_topics import DeletedTopics
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import FOLDER
from rmqlite.kernel.store.index.key_index import KeyIndex
from rmqlite.kernel.store.progress import ScheduleProgress
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable
from rmqlite.kernel.words.levels import LevelHistory
from rmqlite.kernel.words.names import STORED_NAME_RULE, is_stored_name

_INDEXED_TOGETHER: Final = 256
_QUEUE_ID_MAX: Final = 2**31 - 1
_TIMERS: Final = queue_of(TIMERS)


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
