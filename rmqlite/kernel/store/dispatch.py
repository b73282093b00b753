"""Enters the records of the log into queues and key index, live and in recovery.

Each record gets an entry in its topic's queue, and one in the index for each of its keys.
Live, they are entered in the same call as the append.  Recovery walks the log again from the
persisted point: existing entries are not entered twice, and records that deliver scheduled ones
complete these again.

A deletion of a topic is one write of config/deletedTopics.json.  From then on its queues are as
empty as if retention had taken all their messages, also after a crash; their files go later, and
the log keeps the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
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
from rmqlite.kernel.store.deleted_topics import Deleted, DeletedTopics
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import FOLDER
from rmqlite.kernel.store.key_index import KeyIndex
from rmqlite.kernel.store.progress import ScheduleProgress
from rmqlite.kernel.store.tables.logged_tables import Row
from rmqlite.kernel.words.errors import Overloaded, StoreDamaged, StoreUnavailable
from rmqlite.kernel.words.levels import LevelHistory
from rmqlite.kernel.words.limits import INT32_MAX
from rmqlite.kernel.words.names import STORED_NAME_RULE, is_stored_name

QUEUES_MAX: Final = 20_000
"""Queues of deleted topics that are remembered."""
QUEUES_A_ROUND: Final = 2
"""Queues whose files are removed at once: each takes four syncs of a folder."""

_INDEXED_TOGETHER: Final = 256
_WRITTEN_TOGETHER: Final = 1 << 20
"""So many records of a walk may have keys that are in memory only, in some 150 MiB."""
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
        for count, walked in enumerate(walk, 1):
            yield walked
            head = walked.head
            if record.is_indexed(head.sys_flag):
                prefix, place = topic_prefix(head.topic), head.physical_offset
                keyed.append((prefix, head.properties, place, head.store_timestamp_ms))
            if len(keyed) >= _INDEXED_TOGETHER:
                self.index.add(keyed)
                keyed = []
            if count % _WRITTEN_TOGETHER == 0:
                job = self.index.begin_flush()
                job.run()
                self.index.flushed(job)
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
            if name.isascii() and name.isdigit() and int(name) <= INT32_MAX:
                yield topic, int(name)


def _folders_in(files: Files, folder: Path) -> Iterator[str]:
    for name in files.names(folder):
        kind = files.kind(folder / name)
        # An empty kind: the folder was removed after the listing.
        if kind not in ("", FOLDER):
            raise StoreDamaged(str(folder / name), 0, FOLDER, kind)
        yield name


class Deletions:
    """The deleted topics of one store.  change: appends rows of their table."""

    def __init__(self, dispatch: Dispatch, change: Callable[[Sequence[Row]], None]) -> None:
        self._dispatch = dispatch
        self._change = change

    @property
    def topics(self) -> DeletedTopics:
        return self._dispatch.deleted

    def empty(self, topic: str, log_end: int) -> None:
        """Take all messages from a topic's queues; log_end: a physical offset.

        The queues go on at their next offset if the topic is made again.  Raises Overloaded,
        StoreUnavailable: then nothing has changed.
        """
        queues = {key: queue for key, queue in self._dispatch.queues.items() if key[0] == topic}
        if not queues:
            return
        ends = {key[1]: queue.max_offset for key, queue in queues.items()}
        deleted = DeletedTopics({**self.topics.topics, topic: Deleted(log_end, ends)})
        if deleted.queue_count > QUEUES_MAX:
            raise Overloaded("QUEUES_MAX of deleted topics", QUEUES_MAX)
        self._save(deleted, topic)
        for queue in queues.values():
            queue.empty(queue.max_offset)

    def remove_files(self) -> None:
        """Remove files of emptied queues, for some queues at a time; call it now and then.

        Not while a persist job runs, which may sync these files.  Raises StoreUnavailable.
        """
        queues = [self._dispatch.queues.get(key) for key in self.topics.queues()]
        for queue in islice((each for each in queues if each and each.is_dead), QUEUES_A_ROUND):
            queue.remove_dead_files()

    def clamp(self, log_end: int) -> list[Row]:
        """Note at an opening where the log ends now: a crash may have taken its last records.

        Otherwise new records would look as if they were older than the deletion.  Returns the rows
        that have changed.
        """
        before = self.topics.topics
        clamped = {
            topic: each._replace(physical_end=min(each.physical_end, log_end))
            for topic, each in before.items()
        }
        self._dispatch.deleted = deleted = DeletedTopics(clamped)
        return [deleted.row(topic) for topic in clamped if clamped[topic] != before[topic]]

    def forget(self, topic: str) -> None:
        """Forget a deletion whose records retention has taken.  Raises StoreUnavailable."""
        rest = dict(self.topics.topics)
        gone = rest.pop(topic)
        self._save(DeletedTopics(rest), topic)
        for queue_id in gone.ends:
            self._dispatch.forget((topic, queue_id))

    def _save(self, deleted: DeletedTopics, topic: str) -> None:
        self._change([deleted.row(topic)])
        self._dispatch.deleted = deleted
