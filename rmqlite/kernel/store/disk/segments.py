"""A run of fixed-size files seen as one long array of bytes.

A file's name is the position of its first byte, 20 decimal digits (reference §1.5).  A file
has its full length from the start, sparse.  This module does not interpret the bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.words.errors import StoreDamaged

NAME_DIGITS: Final = 20


def is_zeros(data: bytes) -> bool:
    """Are all bytes zero?  A hundred times faster than any() for long data."""
    return data == bytes(len(data))


def is_numbered(name: str, digits: int = NAME_DIGITS) -> bool:
    """Is a file's name a number with this many digits?"""
    return len(name) == digits and name.isascii() and name.isdigit()


def last_file(files: Files, folder: Path) -> Path | None:
    """The file with the highest name; a name that is no position is not one of these files."""
    last = max(filter(is_numbered, files.names(folder)), default=None)
    return folder / last if last else None


def position_name(start: int) -> str:
    """The name of the file that begins at a position."""
    return f"{start:0{NAME_DIGITS}d}"


class Segments:
    """The files of one folder.  A file is made when a write first reaches it.

    names_later: the names of the first file and of the folders above it are not synced before
    the first write; the caller syncs those folders when take_unsynced_name() returns True.
    """

    def __init__(
        self, files: Files, folder: Path, segment_bytes: int, *, names_later: bool = False
    ) -> None:
        """Raises StoreDamaged for a name or length that RocketMQ would not load either."""
        self.folder = folder
        self.segment_bytes = segment_bytes
        self._files = files
        self._starts = [self._checked_start(name) for name in files.names(folder)]
        self._paths = {start: self._path(start) for start in self._starts}
        self._unsynced: set[int] = set()
        self._gone = 0
        """The number of listed files that begin_now() has found removed."""
        self._names_later = names_later
        # A killed process may have made the file without a sync of its name.
        self._has_unsynced_name = names_later and bool(self._starts)
        self._half_made: set[int] = set()
        """The starts of files whose creation has failed; their names may exist."""
        for earlier, later in zip(self._starts, self._starts[1:], strict=False):
            if later - earlier != segment_bytes:
                raise StoreDamaged(
                    str(folder), later, f"a file for every {segment_bytes} bytes", "a gap"
                )

    @property
    def is_empty(self) -> bool:
        return not self._starts

    @property
    def starts(self) -> tuple[int, ...]:
        """The positions at which files begin, ascending."""
        return tuple(self._starts)

    @property
    def first_position(self) -> int:
        return self._starts[0] if self._starts else 0

    @property
    def end_position(self) -> int:
        """One past the last file's last byte, written or not."""
        return self._starts[-1] + self.segment_bytes if self._starts else 0

    def path_at(self, position: int) -> Path:
        """The file of a position, existing or not; for error sentences."""
        return self._path(position - position % self.segment_bytes)

    def is_there(self, position: int) -> bool:
        """Does the file of a position exist now, whether or not it was listed?"""
        return bool(self._files.kind(self.path_at(position)))

    def begin_now(self) -> int:
        """The position of the oldest file that still exists, if its writer removes files."""
        while self._gone < len(self._starts) - 1 and not self.is_there(self._starts[self._gone]):
            self._gone += 1
        return self._starts[self._gone] if self._starts else 0

    def write(self, position: int, data: bytes) -> None:
        """Write all of data, making files as needed.  Raises StoreUnavailable."""
        while data:
            start = position - position % self.segment_bytes
            room = start + self.segment_bytes - position
            path = self._paths.get(start) or self._make(start)
            part = data if len(data) <= room else data[:room]
            self._unsynced.add(start)
            self._files.write(path, position - start, part)
            position += len(part)
            data = data[len(part) :]

    def ensure(self, start: int) -> None:
        """Make the file that begins there if there is none.  Raises StoreUnavailable."""
        if start not in self._paths:
            self._make(start)

    def read(self, position: int, size: int) -> bytes:
        """Up to size bytes; fewer where the last file ends, none before the first."""
        parts = []
        while size > 0:
            start = position - position % self.segment_bytes
            path = self._paths.get(start)
            if path is None:
                break
            wanted = min(size, start + self.segment_bytes - position)
            part = self._files.read(path, position - start, wanted)
            parts.append(part)
            if len(part) < wanted:
                break
            position += wanted
            size -= wanted
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def will_read(self, position: int, size: int) -> None:
        """Let the disk fetch these bytes, and do not wait for them.

        Reads here and there cost 70 us each if the disk fetches one after the other, else 10.
        """
        start = position - position % self.segment_bytes
        if size > 0 and (path := self._paths.get(start)):
            self._files.will_read(path, position - start, size)

    def read_each(self, spans: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """What read() returns for each of these positions and sizes."""
        for span in spans if len(spans) > 1 else ():
            self.will_read(*span)
        for span in spans:
            yield self.read(*span)

    def take_unsynced(self) -> list[Path]:
        """The files written since the last call; sync each, in any thread."""
        paths = [self._paths[start] for start in self._unsynced if start in self._paths]
        self._unsynced.clear()
        return paths

    def take_unsynced_name(self) -> bool:
        """May the first file's name, or a folder's above it, be new since the last call?"""
        is_unsynced = self._has_unsynced_name
        self._has_unsynced_name = False
        return is_unsynced

    def not_synced(self, paths: Collection[Path]) -> None:
        """Put files back that take_unsynced() returned and whose sync was not done."""
        self._unsynced.update(start for start, path in self._paths.items() if path in paths)

    def cut(self, position: int, end: int | None = None) -> None:
        """Make everything from a position on zeros, and remove whole files behind it.

        end: where the zeros end in the position's own file.
        """
        # Remove the last file first, so that a crash in between leaves no gap.
        for start in sorted({*self._starts, *self._half_made}, reverse=True):
            if start < position:
                break
            self._remove(start)
        start = position - position % self.segment_bytes
        if start in self._paths and position > start:
            self._files.cut(self._paths[start], position - start, end and end - start)

    def drop_before(self, position: int) -> list[Path]:
        """Remove whole files that end at or before a position; the last file always stays."""
        gone = []
        while len(self._starts) > 1 and self._starts[0] + self.segment_bytes <= position:
            gone.append(self._paths[self._starts[0]])
            self._remove(self._starts[0])
        return gone

    def drop_all(self) -> None:
        for start in list(self._starts):
            self._remove(start)

    def remove_folder(self) -> None:
        """Remove all files, their folder, and the folder above it if it is empty then."""
        self.drop_all()
        self._has_unsynced_name = False
        for folder in (self.folder, self.folder.parent):
            if self._files.kind(folder) and not self._files.names(folder):
                self._files.remove(folder)

    def data_ranges(self, position: int, step: int) -> Iterator[tuple[int, bytes]]:
        """(position, bytes) of all bytes from a position on that are not in a hole."""
        while (position := self.next_data(position)) < self.end_position:
            size = min(step, self.segment_bytes - position % self.segment_bytes)
            yield position, self.read(position, size)
            position += size

    def next_data(self, position: int) -> int:
        """The first position at or after this one that is not in a hole; end_position if none."""
        while position < self.end_position:
            start = position - position % self.segment_bytes
            found = self._files.next_data(self._paths[start], position - start)
            if found < self.segment_bytes:
                return start + found
            position = start + self.segment_bytes
        return self.end_position

    def _make(self, start: int) -> Path:
        path = self._path(start)
        # Only the first file: of several unsynced names some might be lost and leave a gap.
        if self._names_later and not self._starts:
            make = self._files.create_unsynced
            self._has_unsynced_name = True
        else:
            make = self._files.create
            if not self._starts:
                self._files.make_folder(self.folder)
        self._half_made.add(start)
        make(path, self.segment_bytes)
        self._half_made.discard(start)
        self._paths[start] = path
        self._starts.insert(bisect_right(self._starts, start), start)
        return path

    def _remove(self, start: int) -> None:
        path = self._path(start)
        try:
            self._files.remove(path)
        finally:
            # A file that could not be removed stays listed, unless its name is gone by now.
            if path.name not in self._files.names(self.folder):
                self._half_made.discard(start)
                self._unsynced.discard(start)
                if self._paths.pop(start, None):
                    self._starts.remove(start)

    def _path(self, start: int) -> Path:
        return self.folder / position_name(start)

    def _checked_start(self, name: str) -> int:
        path = self.folder / name
        if not is_numbered(name) or int(name) % self.segment_bytes:
            rule = f"a name of {NAME_DIGITS} digits, a multiple of {self.segment_bytes}"
            raise StoreDamaged(str(path), 0, rule, repr(name))
        size = self._files.size(path)
        if size == 0:
            # A crash between creating a file and setting its length left it empty.
            self._files.create(path, self.segment_bytes)
        elif size != self.segment_bytes:
            raise StoreDamaged(str(path), size, f"{self.segment_bytes} bytes", f"{size} bytes")
        return int(name)
