"""A store whose log follows another broker's.

The other log comes as bytes.  Whole records of it are written as they are, and entered by the one
walk: queues, key index, tables, progress of the schedule.  So an opening finds what an opening of
the master's would.  Nothing else is ever appended here.

Until the master has agreed that this log is the beginning of its own, nothing is saved: the end may
have to be cut off, and what was saved before it is then all that need not be made again.

The log gets a piece at once; entering it goes in steps, because thousands of its records may each
make a queue, or search for the one that they complete.  A persist comes behind all steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from rmqlite.kernel.compiled import in_c
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records import record
from rmqlite.kernel.records.record import BLANK_BYTES
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.store.commit_log import SyncJob
from rmqlite.kernel.store.deleted_topics import DELETED_TABLE, load_deleted
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.key_index import IndexJob
from rmqlite.kernel.store.log.checksums import MARK_BYTES, Point, decode_mark, mark_position
from rmqlite.kernel.store.log.log_walk import LogWalk
from rmqlite.kernel.store.message_store import MessageStore, PersistJob
from rmqlite.kernel.store.opening.recovery import LEVELS_TABLE, load_levels
from rmqlite.kernel.store.tables.logged_tables import Logged, changes_in
from rmqlite.kernel.store.tables.tables import Snapshot
from rmqlite.kernel.store.walk import Redo
from rmqlite.kernel.words.clock import Clock, elapsed_s
from rmqlite.kernel.words.errors import FlushFailed, NotMaster, StoreDamaged, StoreUnavailable
from rmqlite.kernel.words.levels import LevelTable
from rmqlite.kernel.words.names import TABLES_TOPIC

STEPS_S: Final = 0.005
STEP_BYTES: Final = 256 << 10
STEP_RECORDS: Final = 64
"""So many records that wait, or complete others, take 4 ms; as many bytes of others do."""
_TABLES = TABLES_TOPIC.encode()
_SIZE_AND_PLACE = record.layout_of_fields("size", "magic", "physical_offset")


class CopiedStore(MessageStore):
    """The same folder as a master's; used by one thread."""

    is_copy = True
    is_agreed = False
    """Has the master said that this log is the beginning of its own?"""

    def __init__(
        self, config: BrokerConfig, files: Files, clock: Clock, *, is_marked: bool = True
    ) -> None:
        self._redo: Redo | None = None
        """Knows the queues that have changed since the last persist."""
        self._steps: Iterator[None] = iter(())
        """What is to be done until all of the log is entered."""
        super().__init__(config, files, clock, is_marked=is_marked)
        if not self.is_agreed:
            self.copied_end = min(self._log.persisted_end, self._log.end)
        self.begin_again()

    def agree(self) -> None:
        """The master has said so."""
        self.is_agreed = True
        self.copied_end = MessageStore.copied_end

    def begin_again(self) -> None:
        """Forget the beginning of a record that has not come whole."""
        self._at = self._log.end
        """Where the bytes of `_rest` lie, which are no whole record yet."""
        self._rest = b""
        self._blank: list[tuple[int, list[bytes]]] = []
        """The blank behind the last record, which is written with the next one."""

    @property
    def wanted(self) -> int:
        """The physical offset of the next byte to receive()."""
        return self._at + len(self._rest)

    def begin_at(self, physical_offset: int) -> None:
        """Let an empty log begin there, at the beginning of a file."""
        self._log.begin_at(physical_offset, 0)
        self._log.sums.last = Point(physical_offset, 0)
        self.begin_again()

    def receive(self, physical_offset: int, data: bytes) -> None:
        """Write the next bytes of the other log, as far as they are whole records; then enter().

        Raises StoreUnavailable: nothing has changed, call begin_again().  Raises FlushFailed, also
        for bytes that are no records.
        """
        while self.enter():
            pass
        if self._blank and physical_offset < self._at:
            # What lies between the blank and the end of its file.
            return
        if physical_offset != self.wanted:
            reason = f"the bytes at {physical_offset} came, not those at {self.wanted}"
            raise StoreUnavailable("copy", str(self._root), reason)
        data = self._rest + data
        size = whole_length(data, self._at)
        if size:
            self._write(data[:size])
            self._at += size
        self._rest = data[size:]
        room = self.log_file_bytes - self._at % self.log_file_bytes
        if self._rest[:BLANK_BYTES] == record.encode_blank(room):
            self._blank = [(self._at, [record.encode_blank(room)])]
            self._at += room
            self._rest = b""

    def enter(self) -> bool:
        """Enter what was received, for STEPS_S at most; False if all of it is entered.

        Raises FlushFailed.
        """
        until_s = elapsed_s() + STEPS_S
        try:
            for _ in self._steps:
                if elapsed_s() >= until_s:
                    return True
        except (StoreUnavailable, StoreDamaged) as error:
            # Queues lack records that the log has: only an opening mends that.
            self._failure = FlushFailed(f"records cannot be entered: {error}")
            raise self._failure from error
        return False

    def begin_persist(self, more: Mapping[str, Snapshot]) -> PersistJob:
        """As any store's; a job that does nothing until is_agreed.  Raises FlushFailed."""
        while self.enter():
            pass
        if not self.is_agreed:
            sync = SyncJob(self._files, (), self._log.point, self._failure)
            return PersistJob(sync, frozenset(), IndexJob(self._files, ()), (), (), self._persisted)
        self._forget_queues()
        return super().begin_persist(more)

    def persisted(self, job: PersistJob) -> None:
        if job.tables:
            super().persisted(job)

    def close(self, more: Mapping[str, Snapshot]) -> None:
        """As any store; what was not agreed is left as a kill leaves it."""
        if self.is_agreed:
            super().close(more)
        else:
            self.release()

    def log_tables(self) -> None:
        """The master's log has everything, or will have."""

    def carry_tables(self, end: int) -> None:
        """The master carries them."""

    def change_levels(
        self,
        table: LevelTable,  # noqa: ARG002
        *,
        is_configured: bool = False,
    ) -> None:
        """The levels are the master's, whatever this broker's broker.conf says."""
        if not is_configured:
            raise NotMaster("")

    def _write(self, data: bytes) -> None:
        begin = self._log.end
        try:
            self._log.write_runs([*self._blank, (self._at, [data])])
        except FlushFailed as error:
            self._failure = error
            raise
        self._blank = []
        changes = changes_in(self._log.segments, begin, self._log.end) if _TABLES in data else ()
        self._steps = self._entering(begin, self._log.end, changes)

    def _entering(
        self, begin: int, end: int, changes: Iterable[tuple[Record, Logged | None]]
    ) -> Iterator[None]:
        for found, change in changes:
            yield from self._walk(begin, found.end)
            begin = found.end
            if change is not None:
                self._change(change)
        yield from self._walk(begin, end)

    def _walk(self, begin: int, end: int) -> Iterator[None]:
        redo = self._redo = self._redo or self._new_redo()
        take = partial(self._take_plain, redo)
        walk = LogWalk(self._log.segments, begin, end, check_bodies=True, take=take)
        for window in walk:
            for head in window.heads:
                for each in self._dispatch.indexed([Record(head, window.data)]):
                    redo.enter(each)
                self._note(1, head.store_timestamp_ms)
            yield
        if walk.is_stuck:
            raise self._log.damage(walk.position, "a record")
        redo.write()

    def _take_plain(self, redo: Redo, data: bytes, at: int, base: int) -> int:
        plain = redo.plain(data, at, base, min(len(data), at + STEP_BYTES), STEP_RECORDS)
        self._dispatch.index.add(plain.keyed)
        self._note(len(plain.keyed), plain.newest_timestamp_ms)
        return plain.at

    def _new_redo(self) -> Redo:
        return Redo(self._dispatch, self._log)

    def _note(self, count: int, newest_ms: int) -> None:
        self._appended += count
        self._log.newest_timestamp_ms = max(self._log.newest_timestamp_ms, newest_ms)

    def _change(self, change: Logged) -> None:
        """Let a change of a table be in force, as it was on the master from there on."""
        dispatch = self._dispatch
        self.tables.put_rows(change.table, change.rows)
        self.tables.logged_end = self._log.end
        if change.table == LEVELS_TABLE:
            dispatch.levels = load_levels(self.tables, dispatch.levels.current)
        if change.table == DELETED_TABLE:
            before, after = dispatch.deleted.topics, load_deleted(self.tables)
            dispatch.deleted = after
            for key, queue in list(dispatch.queues.items()):
                topic = key[0]
                if topic in after.topics and before.get(topic) != after.topics[topic]:
                    queue.empty(queue.max_offset)
                elif topic in before and topic not in after.topics:
                    dispatch.forget(key)
            self._forget_queues()

    def _forget_queues(self) -> None:
        """Find the queues anew with the next record of each."""
        if self._redo is not None:
            self._dispatch.changed |= self._redo.entered
            self._redo = None


@in_c
def whole_length(data: bytes, base: int) -> int:
    """The length of the whole records at the beginning of the log's bytes from base on."""
    at = 0
    while len(data) - at >= record.RECORD_BYTES_MIN:
        size, magic, place = _SIZE_AND_PLACE.unpack_from(data, at)
        is_whole = record.RECORD_BYTES_MIN <= size <= len(data) - at
        if magic != record.MAGIC or place != base + at or not is_whole:
            break
        at += size
    return at


def next_piece(
    store: MessageStore, begin: int, known: int, bytes_max: int
) -> tuple[int, int, bytes]:
    """Where the next bytes to send begin, known anew, and those bytes, of one log file.

    known: the last place where a record surely ends, of those up to which all is sent.
    """
    size, start = store.log_file_bytes, begin - begin % store.log_file_bytes
    end = store.end if store.end < start + size else end_in_file(store, start, known)
    if begin >= end:
        begin = start + size
        end = min(store.end, begin + size)
    data = store.read(begin, min(end, begin + bytes_max) - begin)
    return begin, store.end if begin + len(data) == store.end else known, data


def end_in_file(store: MessageStore, start: int, known: int = 0) -> int:
    """Where the bytes of a full log file end, with the first ones of its blank.

    Its mark says how far it was synced, or, without a mark, RocketMQ wrote it.  From there, or from
    a known end of a record, the few records behind are walked.
    """
    size = store.log_file_bytes
    mark = decode_mark(store.read(start + mark_position(size), MARK_BYTES))
    if mark is None:
        return start + size
    at = max(mark.summed_end, known)
    while at <= start + size - record.BLANK_BYTES:
        length, magic = record.BLANK.unpack(store.read(at, record.BLANK_BYTES))
        if magic == record.BLANK_MAGIC:
            return at + record.BLANK_BYTES
        if magic != record.MAGIC or length < record.RECORD_BYTES_MIN:
            break
        at += length
    return at
