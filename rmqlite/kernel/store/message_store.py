"""The store's interface: open, append, read, sync, recover, retain.

append() is the only way in, also for tables: a batch is encoded once, written once and dispatched
at once, so that log and queues never differ while running.  Written bytes are not yet durable:
begin_sync() returns a job for another thread, and synced() takes it back when it is done; a job is
made between two appends, and later ones belong to the next.  An opening walks the log from the last
persisted point; there is no other recovery.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.packed import Packed, PackedRun, packed_records
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.record import NewRecord, Written
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import wait_queue_of
from rmqlite.kernel.store.commit_log import CommitLog, SyncJob
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.deleted_topics import DELETED_TABLE
from rmqlite.kernel.store.disk.files import Files, Lock
from rmqlite.kernel.store.dispatch import Deletions, Dispatch, QueueKey
from rmqlite.kernel.store.key_index import IndexJob, KeyIndex
from rmqlite.kernel.store.log.raw_records import raw_records, records_behind
from rmqlite.kernel.store.log.repaired_place import is_repaired
from rmqlite.kernel.store.opening.adoption import is_foreign_store
from rmqlite.kernel.store.opening.file_sizes import index_shape, sizes_of
from rmqlite.kernel.store.opening.recovery import (
    CHECKPOINT,
    DELAY_OFFSET_TABLE,
    LEVELS_TABLE,
    PROGRESS_TABLE,
    keep_names,
    lengthen,
    progress_snapshot,
    recover,
)
from rmqlite.kernel.store.progress import ScheduleProgress
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.clock_table import clock_table, open_clock
from rmqlite.kernel.store.tables.logged_tables import (
    TABLES_QUEUE,
    Changes,
    LoggedTables,
    Row,
    logged_in,
)
from rmqlite.kernel.store.timer_index import TimerIndex
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import FlushFailed, MessageNotFound, StoreUnavailable
from rmqlite.kernel.words.levels import LevelHistory, LevelTable
from rmqlite.kernel.words.limits import INT64_MAX
from rmqlite.kernel.words.message import StoredMessage, host_text, pack_host

logger = logging.getLogger(__name__)

TRIMMED_QUEUES_MAX: Final = 250
"""Queues trimmed at once: each takes 40 µs, nearly all for reads of its first entries."""

TABLE_RECORDS_CARRIED: Final = 500
"""Changes of tables that carry_tables() reads at once, in 20 ms."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PersistJob:
    """Syncs, then replaces the tables that record progress; runs in any thread."""

    sync: SyncJob
    folders: frozenset[Path]
    index: IndexJob
    tables: tuple[tuple[Path, tables.Snapshot], ...]
    """The job's thread makes and encodes them: a long table takes a tenth of a second."""
    without_previous: tuple[tuple[Path, bytes], ...]
    appended: int
    """Records appended since the store was opened."""

    def run(self) -> None:
        """Sync first, so that the tables never count more than is on disk.

        Raises FlushFailed, which is final, and StoreUnavailable: then the next job does this
        one's work, too.
        """
        self.sync.run()
        for folder in self.folders:
            self.sync.files.sync_folder(folder)
        self.index.run()
        for path, snapshot in self.tables:
            self.sync.files.replace(path, tables.encode(snapshot()), keep_previous=True)
        for path, data in self.without_previous:
            self.sync.files.replace(path, data)


class MessageStore:
    """One store directory, open for writing.  Used by one thread; holds its lock file.

    files_found: the names of the files under config/ before the opening.
    """

    is_copy = False
    """Does the log only follow another broker's?  Then nothing is appended here, nor delivered."""
    copied_end = INT64_MAX
    """The physical offset up to which the log is on the disk of whoever must have a copy."""

    def __init__(
        self, config: BrokerConfig, files: Files, clock: Clock, *, is_marked: bool = True
    ) -> None:
        """Open and recover.

        is_marked: until it is closed it counts as killed; False if nothing will be appended.
        Raises StoreLocked, StoreDamaged, StoreUnavailable, and ConfigInvalid for a configured
        file length that differs from the files'.
        """
        self._root = config.store_path
        self._files = files
        self._clock = clock
        self.tables = LoggedTables(files, self._root / "config")
        self._host = pack_host(host_text(config.broker_ip, config.listen_port))
        files.make_folder(self._root / "config")
        self.files_found = frozenset(files.names(self._root / "config"))
        keep_names(files, self._root)
        # Read before locking: closing the file would release the lock of this process.
        is_foreign = is_foreign_store(files, self._root)
        self._lock: Lock = files.lock(self._root / "lock")
        try:
            sizes = sizes_of(files, self._root, config)
            shape = index_shape(files, self._root, config)
            lengthen(files, self._root, sizes.log_file_bytes)
            self._log = CommitLog(files, self._root / "commitlog", sizes.log_file_bytes)
            self._dispatch = Dispatch(
                files,
                self._root / "consumequeue",
                sizes.queue_file_bytes,
                LevelHistory.starting_with(config.levels),
                KeyIndex(files, self._root / "index", slots=shape.slots, entries=shape.entries),
            )
            self.deletions = Deletions(
                self._dispatch, lambda rows: self.change_table(DELETED_TABLE, rows)
            )
            self.timers = TimerIndex(files, self._root / "timers")
            self.recovered = recover(
                files, self._root, self._log, self._dispatch, self.tables, is_foreign=is_foreign
            )
            """The number of records that the recovery walk dispatched."""
            if clamped := self.deletions.clamp(self._log.end):
                self.tables.put_rows(DELETED_TABLE, clamped, is_logged=False)
            newest_ms = self._log.newest_timestamp_ms
            self.clock_origin = open_clock(files, self._root, clock, newest_ms, self._dispatch)
            if is_marked and not files.kind(self._root / "abort"):
                files.replace(self._root / "abort", b"")
            self.synced_end = self.persisted_end = self._sync_end = self._log.end
            """The physical offset up to which the log is on this disk."""
            self._appended = self._persisted = 0
            self._failure: FlushFailed | None = None
            self._dropped_before = self._log.min_offset
            self._untrimmed: list[ConsumeQueue] = []
            self.change_levels(config.levels, is_configured=True)
            self._persist_if_there_is_room()
        except BaseException:
            self._lock.release()
            raise

    # ---- writing

    def append(self, records: Sequence[NewRecord]) -> list[Written]:
        """Write records, all or none, and enter them into their queues.

        Raises StoreUnavailable (nothing was stored), MessageTooLarge, and FlushFailed, after
        which every job fails.  The caller notes completed scheduled records in `progress`.
        """
        packed = packed_records(records)
        self.append_packed([packed])
        return packed.written()

    def append_packed(self, packed: Sequence[Packed]) -> None:
        """append() for packed records, which know their places then."""
        if self.is_copy:
            raise StoreUnavailable("append to", str(self._root), "another broker is the master")
        if self.tables.unlogged and any(
            wait_queue_of(*key) > 0 for each in packed for key in each.queues
        ):
            # Who has only the log needs the levels before the first record that waits in one.
            self.log_tables()
        stored_ms = self._log.timestamp_ms(self._clock.now_ms())
        run = PackedRun(packed, lambda key: self._dispatch.next_place(key, stored_ms), stored_ms)
        before = self._log.point
        try:
            self._log.append(run)
            try:
                self._dispatch.place(run)
            except Exception:
                self._log.cut_back(before)
                raise
        except FlushFailed as error:
            self._failure = error
            raise
        self._appended += len(run)

    def begin_sync(self) -> SyncJob:
        """A job that makes everything appended so far durable."""
        paths = tuple(self._log.take_unsynced())
        return SyncJob(self._files, paths, self._log.point, self._failure)

    def synced(self, job: SyncJob) -> None:
        """Note that a job has run: its records may be acknowledged and read."""
        self._sync_end = max(self._sync_end, job.log_end)
        self._made_durable(job)

    def begin_persist(self, more: Mapping[str, tables.Snapshot]) -> PersistJob:
        """A job that makes queues and tables durable; more: other tables, by file name."""
        # All new files of the log, not only unsynced ones: another job may be syncing those.
        paths = self._log.paths_between(self.persisted_end, self._log.end)
        paths += self._log.take_unsynced_sums()
        queues = self._dispatch.begin_flush()
        index = self._dispatch.index.begin_flush()
        delay_offsets = {"offsetTable": self.progress.delay_offsets()}
        trees = {
            DELAY_OFFSET_TABLE: lambda: delay_offsets,
            **more,
            **self.tables.begin_save(self._log.end),
            PROGRESS_TABLE: progress_snapshot(self._log, self._dispatch, self.tables.ends),
        }
        data = tuple((self._root / "config" / name, tree) for name, tree in trees.items())
        newest = self._log.newest_timestamp_ms
        clock = clock_table(self._root, self._clock, self.clock_origin)
        checkpoint = (self._root / "checkpoint", CHECKPOINT.pack(newest, newest, newest))
        sync = SyncJob(self._files, (*paths, *queues.files), self._log.point, self._failure)
        return PersistJob(sync, queues.folders, index, data, (*clock, checkpoint), self._appended)

    def persisted(self, job: PersistJob) -> None:
        """Note that a job has run; without this call the next one repeats its work."""
        self._dispatch.flushed()
        self._dispatch.index.flushed(job.index)
        self.tables.saved()
        self.persisted_end = job.sync.log_end
        self._persisted = job.appended
        self._made_durable(job.sync)

    def persist(self, more: Mapping[str, tables.Snapshot]) -> None:
        """begin_persist(), the job, persisted(), all in this thread."""
        job = self.begin_persist(more)
        job.run()
        self.persisted(job)

    def change_table(self, name: str, rows: Sequence[Row]) -> None:
        """Append a change of a table; it is in force at once, and durable with the next sync.

        Raises what append() does: then nothing has changed.
        """
        self._append_rows({name: [*self.tables.unlogged.get(name, ()), *rows]})
        self.tables.put_rows(name, rows)
        self.tables.logged_end = self._log.end

    def log_tables(self) -> None:
        """Append what tables have and the log lacks.  Raises what append() does."""
        self._append_rows(self.tables.unlogged)
        self.tables.logged()

    def carry_tables(self, end: int) -> None:
        """Append rows again, as they are now, whose records lie before a physical offset.

        Those of at most TABLE_RECORDS_CARRIED records: tables.carried_end says how far it came.
        Raises what append() does.
        """
        queue, begin = self.queue(*TABLES_QUEUE), self.tables.carried_end
        if queue is None or begin >= end:
            self.tables.carried_end = max(begin, end)
            return
        first = queue.first_with(begin)
        entries = queue.read(first, min(TABLE_RECORDS_CARRIED, queue.first_with(end) - first))
        found = [each for each in self.read_records(entries) if each is not None]
        changes = [change for each in found if (change := logged_in(each)) is not None]
        self._append_rows(self.tables.still(changes))
        is_rest = len(entries) == TABLE_RECORDS_CARRIED
        self.tables.carried_end = entries[-1].physical_offset + 1 if is_rest else end

    def load_table(self, name: str, shape: type[_T]) -> _T | None:
        """A table under config/ that is not logged; None when there is none.

        Raises StoreDamaged.
        """
        return tables.load_as(self._files, self._root / "config" / name, shape)

    def change_levels(self, table: LevelTable, *, is_configured: bool = False) -> None:
        """Put a table in force from the next append on; queued messages keep their times.

        is_configured: the table is from broker.conf; it counts only if broker.conf has changed,
        and is logged before the first message that waits.  Raises what append() does: then nothing
        has changed.
        """
        known, newest_ms = self.levels, self._log.newest_timestamp_ms
        # The millisecond of the newest record still belongs to the table before.
        since_ms = max(self._clock.now_ms(), newest_ms + 1)
        is_first = not self.tables.has(LEVELS_TABLE)
        if is_first and newest_ms:
            # The tables by which RocketMQ delayed the existing messages are unknown.
            known = LevelHistory.starting_with(table, since_ms)
        after = known.configured_as if is_configured else known.changed_to
        history = after(table, since_ms)
        if history is self.levels and not is_first:
            return
        rows = [((name,), value) for name, value in history.to_json().items()]
        if is_configured:
            self.tables.put_rows(LEVELS_TABLE, rows, is_logged=False)
        else:
            self.change_table(LEVELS_TABLE, rows)
        self._dispatch.levels = history
        self._clock.not_before(history.in_force_from_ms)

    def close(self, more: Mapping[str, tables.Snapshot]) -> None:
        """Sync, persist, mark the store as closed.  Raises StoreUnavailable: the log is synced."""
        job = self.begin_sync()
        job.run()
        self.synced(job)
        self.persist(more)
        self._files.remove(self._root / "abort")
        self.release()

    def release(self) -> None:
        """Close the files without a persist; the next opening recovers the store."""
        self.timers.close()
        self._files.close()
        self._lock.release()

    # ---- reading

    @property
    def levels(self) -> LevelHistory:
        return self._dispatch.levels

    @property
    def progress(self) -> ScheduleProgress:
        return self._dispatch.progress

    @property
    def unpersisted(self) -> int:
        """The number of records since the last persist, which recovery would walk."""
        return self._appended - self._persisted

    @property
    def index(self) -> KeyIndex:
        return self._dispatch.index

    @property
    def log_file_bytes(self) -> int:
        """The length of each log file; no record is longer."""
        return self._log.segment_bytes

    @property
    def min_offset(self) -> int:
        """The physical offset at which the log begins."""
        return self._log.min_offset

    @property
    def end(self) -> int:
        """One past the last record: the next physical offset."""
        return self._log.end

    @property
    def durable_end(self) -> int:
        """The log before this physical offset may be acknowledged and read."""
        return min(self.synced_end, self.copied_end)

    @property
    def final_end(self) -> int:
        """Bytes of the log's files before this physical offset are on disk, and change no more."""
        return min(self.synced_end, self._log.marked_end)

    @property
    def newest_timestamp_ms(self) -> int:
        return self._log.newest_timestamp_ms

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that has or had entries; None for any other."""
        return self._dispatch.queues.get((topic, queue_id))

    def queue_keys(self) -> list[QueueKey]:
        return list(self._dispatch.queues)

    def read(self, physical_offset: int, size: int) -> bytes:
        """Bytes of the log: whole records, if the arguments come from queue entries."""
        return self._log.read(physical_offset, size)

    def read_each(self, spans: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """What read() returns for each of these physical offsets and sizes, fetched together."""
        return self._log.read_each(spans)

    def read_record(self, physical_offset: int, size: int = 4096) -> Record:
        """The record that begins there; size is a guess.  Raises MessageNotFound, StoreDamaged."""
        found = self._log.read_record(physical_offset, size)
        if is_repaired(found.head):
            raise MessageNotFound(physical_offset)
        return found

    def read_message(self, physical_offset: int, size: int = 4096) -> StoredMessage:
        """read_record(), as a message."""
        return self.read_record(physical_offset, size).to_message()

    def read_records(
        self, entries: Sequence[Entry], *, check_bodies: bool = True
    ) -> list[Record | None]:
        """The records behind queue entries, None for one that is gone, or a repaired place.

        Neighbours in the log are read at once.  Raises StoreDamaged for a body whose CRC
        does not fit, if bodies are checked.
        """
        return records_behind(entries, self.read_each, self._log.damage, check_bodies=check_bodies)

    def read_raw(self, entries: Sequence[Entry]) -> bytes:
        """The bytes of the records behind queue entries, without repaired places.

        Bodies are not checked.  Raises StoreDamaged for an entry that points at no such record.
        """
        return b"".join(raw_records(entries, self.read_each, self._log.damage))

    def walk(self, physical_offset: int) -> Iterator[Record]:
        """Every record from one on, CRC checked.  Raises StoreDamaged."""
        return self._log.walk(physical_offset)

    def store_timestamp_ms(self, physical_offset: int) -> int | None:
        """The store timestamp of the record that begins there; None if there is none."""
        found = self._log.read_head(physical_offset, 512)
        return found.head.store_timestamp_ms if found else None

    # ---- retention

    def used_ratio(self) -> float:
        """Used share of the disk, 0 to 1."""
        return self._files.used_ratio(self._root)

    def disk_bytes(self) -> tuple[int, int]:
        """Bytes of the store's disk, and how many of them are free."""
        return self._files.disk_bytes(self._root)

    def expired_segments(self, older_than_ms: int) -> int:
        """The physical offset up to which whole files are older than a wall-clock time.

        The newest file does not count, nor do files that a running sync may still open.
        """
        limit, last = self.min_offset, min(self.persisted_end, self._sync_end)
        for start in self._log.segment_starts[:-1]:
            end = start + self._log.segment_bytes
            path = self._log.path_at(start)
            if end > last or self._files.modified_ms(path) > older_than_ms:
                break
            limit = end
        return limit

    def drop_before(self, physical_offset: int) -> list[Path]:
        """Remove log files that end at or before there, and index and queue entries for them."""
        gone = self._log.drop_before(physical_offset)
        if self.min_offset > self._dropped_before:
            gone += self._dispatch.index.drop_before(self.min_offset)
            self._untrimmed = list(self._dispatch.queues.values())
            # Set it last: after an error the next call drops the rest.
            self._dropped_before = self.min_offset
        return gone + self.trim_queues()

    def trim_queues(self) -> list[Path]:
        """Forget entries of records that drop_before() has removed, for some queues at a time.

        A call takes a few milliseconds.  Until its turn a queue has entries whose records are
        gone; every reader skips them.
        """
        gone = []
        for _ in range(min(TRIMMED_QUEUES_MAX, len(self._untrimmed))):
            gone += self._untrimmed[-1].drop_before(self.min_offset)
            self._untrimmed.pop()
        return gone

    def _append_rows(self, changes: Changes) -> None:
        room = self._log.segment_bytes
        records = self.tables.records(changes, self._host, self._clock.now_ms(), room)
        if records:
            self.append(records)

    def _made_durable(self, job: SyncJob) -> None:
        self.synced_end = max(self.synced_end, job.log_end)
        self._log.mark_synced(job.point)

    def _persist_if_there_is_room(self) -> None:
        """Persist; a full disk is no error: only an open store can be consumed and cleaned."""
        try:
            self.persist({})
            self._lock.sign()
        except StoreUnavailable as error:
            if not error.is_full:
                raise
            self.persisted_end = self._log.persisted_end
            logger.warning("no room to save the state after the opening error=%s", error)
