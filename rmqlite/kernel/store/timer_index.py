"""The timers' places in due order, in one table of SQLite: timers/timers.db.

It is made from the timers' queue and may be deleted while no broker runs.  A write is one
transaction: new rows, deleted rows, and the mark up to which the table is complete.  So a crash
leaves an older table, never a wrong one.  One thread writes; the broker's thread reads.

Each large statement is one call with JSON in and JSON out: the sqlite3 module takes the
interpreter's lock once a row, which beside a busy loop costs up to 5 ms each time.

A place is an integer here, a key: due time << OFFSET_BITS | queue offset.

SQLite has no checksums: a flipped bit makes another due time, and a row that is not there is not
missed.  So a RowComparison compares the table with the queue, which is the truth.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import compress, pairwise
from operator import lt
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqlite.kernel.config.table_shapes import CHUNK_OFFSETS
from rmqlite.kernel.records.queue_entry import ENTRY_BYTES
from rmqlite.kernel.store.consume_queue import ConsumeQueue, codes_in, runs_of
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import REGULAR
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.words.errors import StoreUnavailable

ROWS_A_STEP: Final = 512
"""Steps of so many rows, and of a chunk, take 2 to 3 ms."""
_SEEN: Final = bytes.maketrans(b"\x00\x01", b"\x01\x00")
"""Translates the flags of offsets that were not seen."""

OFFSET_BITS: Final = 40
OFFSETS: Final = (1 << OFFSET_BITS) - 1
"""The bits of a key that are its queue offset."""
SQLITE_LEAST: Final = (3, 26, 0)
"""The oldest release that a distribution with Python 3.11 has; row values need 3.15."""
FORMAT: Final = 1
FILE_NAME: Final = "timers.db"
WRITER_CACHE_KIB: Final = 16_384
READER_CACHE_KIB: Final = 2_048
JOURNAL_BYTES_MAX: Final = 16 << 20
"""The journal is cut to this length when its pages are in the table."""
ENCODED_TOGETHER: Final = 4_096
"""So many due times become text at once: 65,536 would hold the interpreter's lock for 10 ms."""
INSERTED_TOGETHER: Final = 65_536
_DAMAGED: Final = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""A missing table or column is an ERROR: the file is foreign."""
_VERSIONS_AT: Final = 18
"""Where the file says who may write and read it; of another value SQLite says "read-only"."""
_VERSIONS: Final = frozenset({b"\1\1", b"\2\2"})
_TABLES: Final = """
    CREATE TABLE IF NOT EXISTS timers (due_ms INTEGER, queue_offset INTEGER,
        PRIMARY KEY (due_ms, queue_offset)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS mark (format INTEGER, upto INTEGER, physical_offset INTEGER,
        due_ms INTEGER, log_end INTEGER)
"""
_INSERT: Final = """
    INSERT OR IGNORE INTO timers SELECT value, ? + key FROM json_each(?) WHERE value IS NOT NULL
        ORDER BY value
"""
_DELETE: Final = """
    DELETE FROM timers WHERE (due_ms, queue_offset) IN
        (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))
"""
_BEHIND: Final = """
    FROM timers WHERE (due_ms, queue_offset) > (?, ?)
        AND (queue_offset < ? OR queue_offset >= ? AND queue_offset < ?)
"""
_IN_ORDER: Final = "ORDER BY due_ms, queue_offset LIMIT ?"
_SLICE: Final = f"""
    SELECT json_group_array(due_ms), json_group_array(queue_offset)
        FROM (SELECT due_ms, queue_offset {_BEHIND} {_IN_ORDER})
"""
_NTH: Final = f"SELECT due_ms, queue_offset {_BEHIND} AND due_ms < ? {_IN_ORDER} OFFSET ?"
_COUNT: Final = f"SELECT count(*) {_BEHIND} AND due_ms < ?"


class IndexDamaged(Exception):
    """The file is no index of these timers; the sentence says why."""


def key_of(due_ms: int, queue_offset: int) -> int:
    return (due_ms << OFFSET_BITS) + queue_offset


def due_of(key: int) -> int:
    return key >> OFFSET_BITS


def pair_of(key: int) -> tuple[int, int]:
    """Due time and queue offset of a key."""
    return key >> OFFSET_BITS, key & OFFSETS


class IndexMark(NamedTuple):
    """Up to where the table is complete; the entry at upto - 1 shows that it is of this queue."""

    upto: int
    """Every open entry of the queue below it has a row."""
    physical_offset: int
    due_ms: int
    log_end: int
    """What records behind it completed may still have rows."""


class Indexed(NamedTuple):
    """The queue offsets whose rows count: those below `below`, and begin <= n < end."""

    below: int
    begin: int
    end: int

    def __contains__(self, queue_offset: object) -> bool:
        assert isinstance(queue_offset, int)
        return queue_offset < self.below or self.begin <= queue_offset < self.end


class NewEntries(NamedTuple):
    """Neighbours in the queue: the first one's offset, whole entries, a flag for each open one."""

    queue_offset: int
    entries: bytes
    is_open: bytes

    def due_ms(self, at: int, end: int) -> list[int | None]:
        """When some of them are due, counted from the first one; None if it is not open."""
        codes = codes_in(self.entries[at * ENTRY_BYTES : end * ENTRY_BYTES])
        open_ones = zip(codes, self.is_open[at:end], strict=True)
        return [code if waits else None for code, waits in open_ones]


@dataclass(frozen=True, slots=True)
class IndexWrite:
    """One transaction; it may run again if it failed."""

    index: TimerIndex
    passed: int
    """Rows with keys below it are deleted."""
    gone: Sequence[int]
    """The keys of other rows to delete."""
    new: Sequence[NewEntries]
    mark: IndexMark

    @property
    def log_end(self) -> int:
        """How much of the log must be on disk before it runs.

        Otherwise a power cut might leave a row deleted whose completion is lost, or a row for a
        queue offset that another record gets.
        """
        return self.mark.log_end

    def run(self) -> None:
        """Raises StoreUnavailable, IndexDamaged: then the table has not changed."""
        self.index.write(self)


class TimerIndex:
    """The table; without a file it is empty."""

    def __init__(self, files: Files, folder: Path, *, is_fixed: bool = False) -> None:
        """is_fixed: it is only read, nobody changes it meanwhile, and no file is made beside it."""
        self._files = files
        self._folder = folder
        self._is_fixed = is_fixed
        self._path = folder / FILE_NAME
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._is_there = False

    def open(self) -> IndexMark | None:
        """The mark of the file; None if there is no file.  Raises IndexDamaged."""
        kind = self._files.kind(self._path)
        if not kind:
            return None
        if kind != REGULAR:
            raise IndexDamaged(f"it is {kind}")
        if self._files.read(self._path, _VERSIONS_AT, 2) not in _VERSIONS:
            raise IndexDamaged("it is no database that SQLite can write")
        self._is_there = True
        try:
            with self._translated():
                # A newer release may have other columns.
                found = self._read().execute("SELECT * FROM mark").fetchall()
        except StoreUnavailable as error:
            raise IndexDamaged(str(error)) from error
        match found:
            case [(number, *mark)] if number == FORMAT and len(mark) == len(IndexMark._fields):
                return IndexMark(*mark)
        raise IndexDamaged("it has another format")

    def remove(self) -> None:
        """Delete the file.  Raises StoreUnavailable."""
        self.close()
        self._is_there = False
        for name in self._files.names(self._folder):
            if name.startswith(self._path.name):
                self._files.remove(self._folder / name)

    def close(self) -> None:
        """Close the file; no write may be running."""
        for connection in (self._reader, self._writer):
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()
        self._reader = self._writer = None

    def make_folder(self) -> None:
        """Before the first write.  Raises StoreUnavailable."""
        if not self._is_there:
            self._files.make_folder(self._folder)

    # ---- by the thread that writes

    def write(self, batch: IndexWrite) -> None:
        if not self._is_there:
            # SQLite would make a file that others may read.
            self._files.replace(self._path, b"")
        with self._translated():
            if self._writer is None:
                self._writer = self._connected(WRITER_CACHE_KIB, is_new=not self._is_there)
            cursor = self._writer.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                self._change(cursor, batch)
                cursor.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    cursor.execute("ROLLBACK")
                raise
        self._is_there = True

    def _change(self, cursor: sqlite3.Cursor, batch: IndexWrite) -> None:
        # First of all: a row that is inserted below may be due earlier.
        passed = pair_of(batch.passed)
        cursor.execute("DELETE FROM timers WHERE (due_ms, queue_offset) < (?, ?)", passed)
        if batch.gone:
            gone = _json_of(0, len(batch.gone), lambda at, end: map(pair_of, batch.gone[at:end]))
            cursor.execute(_DELETE, (gone,))
        for new in batch.new:
            count = len(new.is_open)
            for at in range(0, count, INSERTED_TOGETHER):
                due_ms = _json_of(at, min(at + INSERTED_TOGETHER, count), new.due_ms)
                cursor.execute(_INSERT, (new.queue_offset + at, due_ms))
        cursor.execute("DELETE FROM mark")
        cursor.execute("INSERT INTO mark VALUES (?, ?, ?, ?, ?)", (FORMAT, *batch.mark))

    # ---- by the broker's thread

    def slice(self, behind: int, count_max: int, indexed: Indexed) -> list[int]:
        """The first keys behind one, in order.  Raises StoreUnavailable, IndexDamaged."""
        if not self._is_there:
            return []
        with self._translated():
            asked = (*pair_of(behind), *indexed, count_max)
            ((due_ms, offsets),) = self._read().execute(_SLICE, asked).fetchall()
            pairs = zip(json.loads(due_ms), json.loads(offsets), strict=True)
            keys = [(due << OFFSET_BITS) + offset for due, offset in pairs]
        # SQLite believes the order of damaged rows, too.
        if not all(map(lt, (behind, *keys), keys)):
            raise IndexDamaged("its rows are not in order")
        return keys

    def count(
        self, behind: int, until_ms: int, count_max: int, indexed: Indexed
    ) -> tuple[int, int | None]:
        """How many rows behind a key are due before a time; count_max of them at most.

        If there may be more: the key of the last one that was counted.  Raises as slice().
        """
        if not self._is_there:
            return 0, None
        with self._translated():
            asked = (*pair_of(behind), *indexed, until_ms)
            last = self._read().execute(_NTH, (*asked, 1, count_max - 1)).fetchall()
            if last and key_of(*last[0]) <= behind:
                raise IndexDamaged("its rows are not in order")
            if last:
                return count_max, key_of(*last[0])
            ((count,),) = self._read().execute(_COUNT, asked).fetchall()
        return count, None

    # ---- inside

    def _read(self) -> sqlite3.Connection:
        if self._reader is None:
            self._reader = self._connected(READER_CACHE_KIB)
        return self._reader

    def _connected(self, cache_kib: int, *, is_new: bool = False) -> sqlite3.Connection:
        # Nobody else uses the file, so that a lock is never waited for.
        address = self._path.absolute().as_uri() + "?immutable=1" * self._is_fixed
        connection = sqlite3.connect(
            address, timeout=0, isolation_level=None, check_same_thread=False, uri=True
        )
        settings: dict[str, object] = {
            "page_size": 4_096,
            "journal_mode": "WAL",
            "synchronous": "NORMAL",
            "temp_store": "MEMORY",
            "journal_size_limit": JOURNAL_BYTES_MAX,
            "cache_size": -cache_kib,
        }
        try:
            for name, value in settings.items() if not self._is_fixed else ():
                connection.execute(f"PRAGMA {name} = {value}").fetchall()
            for statement in _TABLES.split(";") if is_new else ():
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError) as error:
            # A damaged row may be a text or a fraction.
            raise IndexDamaged(f"it has a row of another type: {error}") from error
        except sqlite3.Error as error:
            number = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if number in _DAMAGED:
                raise IndexDamaged(str(error)) from error
            is_full = number == sqlite3.SQLITE_FULL
            path = str(self._path)
            raise StoreUnavailable("use", path, str(error), is_full=is_full) from error


def check_sqlite() -> None:
    """Raises StoreUnavailable if this Python's SQLite cannot do what the index needs."""
    needed = f"SQLite {'.'.join(map(str, SQLITE_LEAST))} or newer with its JSON functions"
    found = sqlite3.sqlite_version
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("SELECT json_group_array(value) FROM json_each('[1]')").fetchall()
    except sqlite3.Error as error:
        found += f" ({error})"
    else:
        if sqlite3.sqlite_version_info >= SQLITE_LEAST:
            return
    raise StoreUnavailable("open", "the index of timers", f"it needs {needed}, not {found}")


def _json_of(start: int, end: int, values: Callable[[int, int], Iterable[Any]]) -> str:
    """A JSON array of the values from one place to another, made in short calls."""
    bounds = [*range(start, end, ENCODED_TOGETHER), end]
    parts = [json.dumps([*values(*each)])[1:-1] for each in pairwise(bounds)]
    return f"[{','.join(parts)}]"


class RowComparison:
    """One comparison; call step() until it is done.

    All rows are read once, in due order.  It is noted which queue offsets were seen, and a sum over
    the rows of each chunk of the queue; then the queue is read in its order, chunk by chunk: what
    was seen there must have the same sum, and what waits must have been seen.

    It takes the offsets that had rows when it began: a timer that waits all the time has its row
    all the time, whatever is written between two steps.
    """

    def __init__(
        self,
        index: TimerIndex,
        queue: ConsumeQueue,
        completed: CompletedOffsets,
        indexed: Indexed,
    ) -> None:
        self._index = index
        self._queue = queue
        self._completed = completed
        self._indexed = indexed
        self._first = max(completed.below, queue.min_offset)
        self._seen = CompletedOffsets([(0, completed.below)])
        self._sums = Counter[int]()
        """By number of a chunk: the sum of the squares of its rows' keys."""
        self._read_to: int | None = -1
        """The key of the last row that was read; None: all were."""
        self._chunk = 0
        self.is_done = False

    def step(self, passed: int = 0) -> Sequence[int]:
        """Compare some more; returns the keys of rows whose timers are completed.

        passed: rows with keys below it need not be read.  Raises IndexDamaged, which says what
        differs, and StoreUnavailable.
        """
        if self._read_to is None:
            self._compare_chunk()
            return ()
        begin = max(self._read_to, passed - 1)
        keys = self._index.slice(begin, ROWS_A_STEP, self._indexed)
        self._read_to = keys[-1] if len(keys) == ROWS_A_STEP else None
        return self._note(keys)

    def _note(self, keys: Sequence[int]) -> list[int]:
        is_open, sums, first = self._completed.is_open, self._sums, self._queue.min_offset
        gone, offsets = [], []
        for key in keys:
            queue_offset = key & OFFSETS
            if not is_open(queue_offset):
                gone.append(key)
            elif queue_offset >= first:
                sums[queue_offset // CHUNK_OFFSETS] += key * key
                offsets.append(queue_offset)
        for start, end in runs_of(sorted(offsets)):
            self._seen.add(start, end)
        return gone

    def _compare_chunk(self) -> None:
        """Compare the next chunk that has rows or timers.  Raises IndexDamaged."""
        waits = self._completed.next_open(max(self._chunk * CHUNK_OFFSETS, self._first))
        if waits < self._indexed.end:
            number = min(waits // CHUNK_OFFSETS, *self._sums, self._indexed.end)
        elif self._sums:
            number = min(self._sums)
        else:
            self.is_done = True
            return
        start = max(number * CHUNK_OFFSETS, self._first)
        end = min((number + 1) * CHUNK_OFFSETS, self._indexed.end)
        unseen = self._seen.open_flags(start, end)
        codes = self._queue.tags_codes(start, end - start)
        self._chunk, total = number + 1, self._sums.pop(number, 0)
        if start < self._queue.min_offset:
            # Retention has removed entries meanwhile; the next comparison does without them.
            return
        seen = unseen.translate(_SEEN)
        keys = map(key_of, compress(codes, seen), compress(range(start, end), seen))
        if sum([key * key for key in keys]) != total:
            raise IndexDamaged(f"rows of queue offsets {start} to {end - 1} differ from the queue")
        missing = map(int.__and__, unseen, self._completed.open_flags(start, end))
        for queue_offset in compress(range(start, end), missing):
            if queue_offset in self._indexed:
                raise IndexDamaged(f"the timer at queue offset {queue_offset} has no row")


def check_mark(mark: IndexMark, queue: ConsumeQueue) -> None:
    """Raises IndexDamaged for the table of another queue."""
    entry = queue.entry(mark.upto - 1)
    if entry is None:
        there = f"{queue.min_offset} to {queue.max_offset}"
        raise IndexDamaged(f"it ends at {mark.upto}, and the queue has {there}")
    if (entry.physical_offset, entry.tags_code) != (mark.physical_offset, mark.due_ms):
        raise IndexDamaged("it is of another queue")
