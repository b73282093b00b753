"""The files of a store, with changes laid over them in memory.

Nothing reaches the disk.  A check looks through such a layer at a store whose folders cannot
be opened, and a repair is tried out on one before it changes a byte.
"""

from __future__ import annotations

from bisect import insort
from pathlib import Path

from rmqlite.kernel.store.disk.regular_file import REGULAR
from rmqlite.store_tools.reading.log_view import LiveFiles


class FileLayer(LiveFiles):
    """Read-only, like the files below; hide(), resize(), patch() and zero() change the view."""

    def __init__(self) -> None:
        super().__init__()
        self._hidden: set[Path] = set()
        self._sizes: dict[Path, int] = {}
        self._made: dict[Path, list[str]] = {}
        self._patches: dict[Path, list[tuple[int, bytes | None]]] = {}

    def hide(self, path: Path) -> None:
        """Show the folder without this file."""
        self._hidden.add(path)
        self._patches.pop(path, None)
        self._sizes.pop(path, None)
        if path.name in self._made.get(path.parent, ()):
            self._made[path.parent].remove(path.name)

    def resize(self, path: Path, size: int) -> None:
        """Show the file with this length; zeros fill an added part."""
        self._sizes[path] = size

    def make(self, path: Path, size: int) -> None:
        """Show a new file of zeros."""
        self._hidden.discard(path)
        insort(self._made.setdefault(path.parent, []), path.name)
        self._sizes[path] = size

    def patch(self, path: Path, position: int, data: bytes) -> None:
        """Show these bytes at a position."""
        self._patches.setdefault(path, []).append((position, data))

    def zero(self, path: Path, position: int) -> None:
        """Show only zeros from a position on."""
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
        # A patch may lie over a hole of the file.
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
        """The length of the file on disk; 0 if there is none."""
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
    """The bytes of data, which lies at `position`, after a patch at `at`."""
    begin = max(0, at - position)
    end = len(data) if new is None else min(len(data), at + len(new) - position)
    if begin >= end:
        return data
    part = bytes(end - begin) if new is None else new[position + begin - at :][: end - begin]
    return data[:begin] + part + data[end:]
