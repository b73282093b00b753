"""Key -> physical offsets: RocketMQ's index folder, written along with the log.

A record is entered under its UNIQ_KEY and each of its KEYS, joined to its topic.  Entries
follow the log, so that the same records make the same bytes: after a crash the files return
to the last state() on disk, and later records are added again.  If that fails, the index is
rebuilt: all that it contains comes from the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from rmqlite.kernel.records.key_hashes import (
    Keyed,
    Suffix,
    hashed_keys,
    positive,
    topic_prefix,
)
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import REGULAR
from rmqlite.kernel.store.disk.segments import is_numbered
from rmqlite.kernel.store.index_file import (
    HEADER,
    INDEX_NAME_DIGITS,
    FileChanges,
    Header,
    IndexEntry,
    IndexFile,
    Shape,
    read_header,
)
from rmqlite.kernel.words.clock import local_text
from rmqlite.kernel.words.errors import StoreDamaged
from rmqlite.kernel.words.limits import INT32_MAX, INT64_MAX


@dataclass(frozen=True, slots=True)
class IndexJob:
    """Makes the index of one moment durable; runs in any thread, after the log's sync."""

    files: Files
    parts: tuple[FileChanges, ...]

    def run(self) -> None:
        """Raises FlushFailed; StoreUnavailable: then the next job does this one's work, too."""
        for part in self.parts:
            part.write_entries(self.files)
        for part in self.parts:
            self.files.sync(part.path)
        for part in self.parts:
            part.write_slots(self.files)
        for part in self.parts:
            self.files.sync(part.path)


class KeyIndex:
    """The index files of a store.  One thread uses it; only its jobs run in others."""

    def __init__(self, files: Files, folder: Path, *, slots: int, entries: int) -> None:
        """Touches no file.  slots, entries: maxHashSlotNum and maxIndexNum."""
        self._files = files
        self._folder = folder
        self._shape = Shape(slots, entries)
        self._all: dict[Path, IndexFile] = {}  # the oldest first
        self._newest: IndexFile | None = None
        self._end_offset = -1

    @classmethod
    def reading(cls, files: Files, folder: Path, *, slots: int, entries: int) -> Self:
        """The files as they are now, for find(), headers() and entries() only.

        A broker or RocketMQ may go on writing them.  Raises StoreDamaged for a file whose
        length or count does not fit slots and entries.
        """
        index = cls(files, folder, slots=slots, entries=entries)
        for path in index._paths_there():
            size = files.size(path)
            if size == 0:
                # A file that was just created, or left by a crash, is empty.
                continue
            wanted = index._shape.file_bytes
            if size != wanted:
                raise StoreDamaged(str(path), size, f"{wanted} bytes", f"{size} bytes")
            header = read_header(files, path)
            if not 1 <= header.next_number <= entries:
                rule = f"a number of the next entry from 1 to {entries}"
                raise StoreDamaged(str(path), 36, rule, str(header.next_number))
            index._adopt(path, header)
        return index

    # ---- opening

    def load(self, state: Mapping[str, Any] | None, *, min_offset: int = 0) -> bool:
        """Return the files to an earlier state(); the caller adds later records again.

        False if the folder does not fit the state: then call clear() and add every record of
        the log.  min_offset: the log's; files with entries only before it may be missing.
        Raises StoreUnavailable, FlushFailed.
        """
        self._forget()
        headers = self._headers_in(state)
        if headers is None:
            return False
        there = self._paths_there()
        while headers and (oldest := min(headers)) not in there:
            if headers[oldest].end_offset >= min_offset:
                return False
            del headers[oldest]
        found = self._found(headers)
        if found is None:
            return False
        for path in there:
            if path not in headers:
                # It began after the state, or is none of ours.
                self._files.remove(path)
        for path, header in headers.items():
            self._adopt(path, header)
        if self._newest is not None and self._newest.next_number < self._shape.entries:
            self._newest.load_slots()
            if found[self._newest.path] != self._newest.header:
                self._newest.take_back()
        return True

    def clear(self) -> None:
        """Remove all index files; the index is empty then."""
        self._forget()
        for path in self._paths_there():
            self._files.remove(path)

    # ---- writing

    def add(self, records: Sequence[Keyed]) -> None:
        """Enter each record under its UNIQ_KEY, then each of its KEYS; in memory, never fails.

        Records come in the order of the log; those that are in the index are skipped.
        """
        if records and records[0][2] <= self._end_offset:
            records = [each for each in records if each[2] > self._end_offset]
        self.add_hashed(*hashed_keys(records))

    def add_hashed(
        self, hashes: Sequence[int], places: Sequence[int], times: Sequence[int]
    ) -> None:
        """Enter new keys, whose hashes are known; places: physical offsets, in the log's order."""
        begin = 0
        while begin < len(hashes):
            file = self._newest
            if file is None or file.next_number >= self._shape.entries:
                file = self._begin_file(places[begin], times[begin])
            end = begin + self._shape.entries - file.next_number
            file.enter(hashes[begin:end], places[begin:end], times[begin:end])
            begin = end
        if places:
            self._end_offset = places[-1]

    def begin_flush(self) -> IndexJob:
        """A job for all changes up to now; add() may go on while the job runs.

        The job before must not run any more; without a call of flushed(), this one repeats it.
        """
        parts = (file.begin_flush() for file in self._all.values())
        return IndexJob(self._files, tuple(part for part in parts if part is not None))

    def flushed(self, job: IndexJob) -> None:
        """Note that the last job has run: the next one begins where it ended."""
        for part in job.parts:
            self._all[part.path].flushed(part)

    def state(self) -> dict[str, Any]:
        """The state for load(); it is valid once the job of the same moment has run."""
        return {
            "entries": self._shape.entries,
            "files": [[file.path.name, *file.header] for file in self._all.values()],
            "slots": self._shape.slots,
        }

    def drop_before(self, physical_offset: int) -> list[Path]:
        """Remove files with entries only before physical_offset; the newest always stays."""
        gone = []
        for path, file in list(self._all.items())[:-1]:
            if file.end_offset >= physical_offset or not file.is_flushed:
                break
            self._files.remove(path)
            del self._all[path]
            gone.append(path)
        return gone

    # ---- reading

    def find(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = INT64_MAX
    ) -> Iterator[int]:
        """Physical offsets of records that may have this key and this time, newest first.

        Different keys may have one hash, and times are exact to the second only: the caller
        compares the records.  Raises StoreUnavailable.
        """
        wanted = positive(_suffix(key).behind(topic_prefix(topic)))
        last = -1
        for file in reversed(list(self._all.values())):
            times = (file.begin_ms, file.end_ms)
            if min(times) <= end_ms and max(times) >= begin_ms:
                for physical_offset in file.find(wanted, begin_ms, end_ms):
                    # A record has the key twice, or RocketMQ entered it again after a crash.
                    if physical_offset != last:
                        last = physical_offset
                        yield physical_offset
            if file.begin_ms < begin_ms:
                return

    def find_any(
        self, topic: str, keys: Sequence[Suffix], begin_ms: int, min_offset: int = 0
    ) -> Iterator[tuple[int, int]]:
        """Entries that may have one of the keys since begin_ms: (ordinal, physical offset).

        The same as find() for each key, in any order.  Raises StoreUnavailable.
        """
        prefix = topic_prefix(topic)
        hashes = [positive(key.behind(prefix)) for key in keys]
        for file in reversed(list(self._all.values())):
            if max(file.begin_ms, file.end_ms) >= begin_ms:
                yield from file.find_any(hashes, begin_ms, min_offset)
            if file.begin_ms < begin_ms or file.begin_offset < min_offset:
                return

    def headers(self) -> dict[Path, Header]:
        """The header of each file, the oldest first."""
        return {path: file.header for path, file in self._all.items()}

    def entries(self) -> Iterator[IndexEntry]:
        """Every entry on disk, in the order of the log.  Raises StoreUnavailable."""
        for file in self._all.values():
            yield from file.entries()

    # ---- files

    def _begin_file(self, physical_offset: int, timestamp_ms: int) -> IndexFile:
        digits = "".join(each for each in local_text(timestamp_ms) if each.isdigit())
        # Local time goes back once a year, and a file may be full within a millisecond.
        after = int(self._newest.path.name) + 1 if self._newest is not None else 0
        path = self._folder / f"{max(int(digits), after):0{INDEX_NAME_DIGITS}d}"
        header = Header(timestamp_ms, timestamp_ms, physical_offset, physical_offset, 0, 1)
        file = IndexFile(self._files, path, self._shape, header, is_made=False)
        self._all[path] = self._newest = file
        return file

    def _adopt(self, path: Path, header: Header) -> None:
        self._all[path] = self._newest = IndexFile(self._files, path, self._shape, header)
        self._end_offset = max(self._end_offset, header.end_offset)

    def _forget(self) -> None:
        self._all = {}
        self._newest = None
        self._end_offset = -1

    def _headers_in(self, state: Mapping[str, Any] | None) -> dict[Path, Header] | None:
        """The headers in a state; None if it does not belong to an index of this shape."""
        found = recorded(state)
        if found is None or found[0] != self._shape:
            return None
        return {self._folder / name: header for name, header in found[1].items()}

    def _found(self, headers: Mapping[Path, Header]) -> dict[Path, Header] | None:
        """The headers on disk; None if the files cannot have grown from the given ones."""
        found = {}
        newest = max(headers, default=None)
        there = self._paths_there()
        for path, header in headers.items():
            # A link or a pipe in its place is no error here: clear() removes it.
            is_file = path in there and self._files.kind(path) == REGULAR
            if not is_file or self._files.size(path) != self._shape.file_bytes:
                return None
            found[path] = read_header(self._files, path)
            if found[path] != header and (path != newest or not header.can_become(found[path])):
                return None
        return found

    def _paths_there(self) -> list[Path]:
        return [
            self._folder / name
            for name in self._files.names(self._folder)
            if is_numbered(name, INDEX_NAME_DIGITS)
        ]


@lru_cache(maxsize=16)
def _suffix(key: str) -> Suffix:
    """A key that is looked for in many topics; a long one takes up to 10 ms."""
    return Suffix.of(key.encode("utf-8", "replace").decode())


def recorded(state: Mapping[str, Any] | None) -> tuple[Shape, dict[str, Header]] | None:
    """Shape and headers, by name, of KeyIndex.state(); None if it cannot be one."""
    try:
        if state is None:
            return None
        shape = Shape(int(state["slots"]), int(state["entries"]))
        headers = {str(name): Header(*map(int, numbers)) for name, *numbers in state["files"]}
        for header in headers.values():
            HEADER.pack(*header)
    except (KeyError, TypeError, ValueError, struct.error):
        return None
    counts = [each.next_number for each in headers.values()]
    is_sound = list(headers) == sorted(headers) and shape.slots > 0 and shape.entries > 0
    # RocketMQ maps a whole file, so no file is larger.
    is_sound = is_sound and shape.file_bytes <= INT32_MAX
    is_sound = is_sound and all(1 < count <= shape.entries for count in counts)
    return (shape, headers) if is_sound else None
