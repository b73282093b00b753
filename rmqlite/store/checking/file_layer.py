"""The files of a store as they are, under changes that are only thought of.

Nothing reaches the disk.  A store whose folders hold what cannot be opened is looked at
through such a layer, and a repair is tried out on one before a byte is changed.
"""

from __future__ import annotations

from bisect import insort
from pathlib import Path

from rmqlite.store.reading.log_view import LiveFiles
from rmqlite.store.regular_file import REGULAR


class FileLayer(LiveFiles):
    """Read-only, like the files below; hide(), resize(), patch() and zero() change the view."""

    def __init__(self) -> None:
        super().__init__()
        self._hidden: set[Path] = set()
        self._sizes: dict[Path, int] = {}
        self._made: dict[Path, list[str]] = {}
        self._patches: dict[Path, list[tuple[int, bytes | None]]] = {}

    def hide(self, path: Path) -> None:
        """As if there were no such file."""
        self._hidden.add(path)
        self._patches.pop(path, None)
        self._sizes.pop(path, None)
        if path.name in self._made.get(path.parent, ()):
            self._made[path.parent].remove(path.name)

    def resize(self, path: Path, size: int) -> None:
        """As if the file ended there, or went on with zeros up to there."""
        self._sizes[path] = size

    def make(self, path: Path, size: int) -> None:
        """As if there were such a file, of zeros."""
        self._hidden.discard(path)
        insort(self._made.setdefault(path.parent, []), path.name)
        self._sizes[path] = size

    def patch(self, path: Path, position: int, data: bytes) -> None:
        """As if these bytes were there."""
        self._patches.setdefault(path, []).append((position, data))

    def zero(self, path: Path, position: int) -> None:
        """As if there were only zeros from a position on."""
        self._patches.setdefault(path, []).append((position, None))

    def read(self, path: Path, position: int, size: int) -> bytes:
        if path in self._hidden:
            return b""
        wanted = self._sizes.get(path)
        if wanted is not None:
            size = max(0, min(size, wanted - position))
        data = b"" if self._is_made(path) else super().read(path, position, size)
        if wanted is not None:
            data = data.ljust(size, b"\0")
        for at, new in self._patches.get(path, ()):
            data = _patched(data, position, at, new)
        return data

    def read_all(self, path: Path) -> bytes | None:
        if path in self._hidden:
            return None
        if self._is_made(path) or path in self._patches:
            return self.read(path, 0, self.size(path))
        return super().read_all(path)

    def next_data(self, path: Path, position: int) -> int:
        # What lies over a file may be where the file itself has a hole.
        if path in self._patches or self._is_made(path):
            return min(position, self.size(path))
        found = super().next_data(path, position)
        wanted = self._sizes.get(path)
        if wanted is None:
            return found
        return min(found, wanted) if found < super().size(path) else wanted

    def size(self, path: Path) -> int:
        if path in self._sizes:
            return self._sizes[path]
        return super().size(path)

    def size_below(self, path: Path) -> int:
        """The length that a file really has; 0 if there is none."""
        return super().size(path) if super().kind(path) == REGULAR else 0

    def kind(self, path: Path) -> str:
        if path in self._hidden:
            return ""
        return REGULAR if self._is_made(path) else super().kind(path)

    def names(self, folder: Path) -> list[str]:
        names = [name for name in super().names(folder) if folder / name not in self._hidden]
        made = self._made.get(folder)
        return sorted({*names, *made}) if made else names

    def _is_made(self, path: Path) -> bool:
        return path.name in self._made.get(path.parent, ())


def _patched(data: bytes, position: int, at: int, new: bytes | None) -> bytes:
    """data, which lies at a position, with other bytes where the patch covers it."""
    begin = max(0, at - position)
    end = len(data) if new is None else min(len(data), at + len(new) - position)
    if begin >= end:
        return data
    part = bytes(end - begin) if new is None else new[position + begin - at :][: end - begin]
    return data[:begin] + part + data[end:]
